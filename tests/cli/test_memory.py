"""What new conversations are told, from a shell."""

import json

import pytest

from .conftest import Cli


def test_what_is_saved_is_shown_and_can_be_cleared(cli: Cli):
    (cli.here / "notes.md").write_bytes("tabs, not spaces: é\n".encode())

    saved = cli("memory", "save", "notes.md")
    shown = cli("memory", "show")
    cleared = cli("memory", "clear")

    assert saved.returncode == shown.returncode == cleared.returncode == 0
    assert shown.stdout == "tabs, not spaces: é\n".encode()
    assert b"[memory] inject = true" in saved.stderr
    assert cli("memory", "show").stdout == b""


def test_json_stays_json(cli: Cli):
    cli("memory", "save", "--json", stdin=b'{"style": ["tabs"]}')

    assert json.loads(cli("memory", "show").stdout) == {"style": ["tabs"]}
    assert json.loads(cli("memory", "show", "--json").stdout)["content"] == {"style": ["tabs"]}


@pytest.mark.parametrize(("stdin", "options"), [(b"{", ["--json"]), (b"x" * 70_000, [])])
def test_what_cannot_be_kept_is_refused_in_one_line(cli: Cli, stdin: bytes, options: list[str]):
    refused = cli("memory", "save", *options, stdin=stdin)

    assert (refused.returncode, refused.stderr.count(b"\n")) == (2, 1)
    assert cli("memory", "show").stdout == b""


def test_bytes_that_are_not_utf8_are_saved_as_characters_that_a_provider_takes(cli: Cli):
    cli("memory", "save", stdin=b"caf\xe9 au lait\n")

    assert cli("memory", "show").stdout == "café au lait\n".encode()
