"""Which settings members of a team see, and what of a value even an admin does not."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel, SecretStr

from kimi_proxy.core.addresses import Address
from kimi_proxy.core.config import FileSettings, parse
from kimi_proxy.core.config.sections import SettingsSection
from kimi_proxy.core.config.visible import FOR_MEMBERS, show, visible_settings

LISTED = [name for names in FOR_MEMBERS.values() for name in names]


def names(model: type[BaseModel], path: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield f"{path}{name}"
        inner = [each for each in (field.annotation, *get_args(field.annotation)) if isinstance(each, type)]
        for each in inner:
            if issubclass(each, BaseModel):
                yield from names(each, f"{path}{name}." if each is field.annotation else f"{path}{name}.*.")


def test_every_setting_on_the_list_exists_and_stands_there_once():
    assert set(LISTED) - set(names(FileSettings)) == set()
    assert len(LISTED) == len(set(LISTED))


def test_members_see_the_list_and_admins_everything_else_too(tmp_path: Path):
    config = parse('[sanitizer]\npolicy = "deep"\n[access]\nallowed_hosts = ["inside.example.org"]\n', {}, tmp_path)

    member = visible_settings(config, FileSettings.model_fields, is_admin=False)
    admin = visible_settings(config, FileSettings.model_fields, is_admin=True)

    assert member["sanitizer"] == admin["sanitizer"]
    assert member["access"] == {"max_body_bytes": 32 * 1024**2}
    hidden = {"allowed_hosts": ["inside.example.org"], "trusted_proxies": []}
    assert admin["access"] == {**hidden, "max_body_bytes": 32 * 1024**2}
    assert "log" not in member
    assert "issuer" not in str(member)
    # A table of names is no list of what others have: its names stand where they are used.
    assert member.keys().isdisjoint({"providers", "models", "mcp"})


class NewSection(SettingsSection):
    """A section that a later version may have."""

    note: str = "anything"
    sanitizer: str = "not the section of that name"


def test_a_setting_that_nobody_put_on_the_list_is_hidden_from_members():
    assert visible_settings(NewSection(), ("note", "sanitizer"), is_admin=False) == {}
    assert visible_settings(NewSection(), ("note",), is_admin=True) == {"note": "anything"}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (Address("https://ann:secret@example.org/x"), "https://example.org/…"),
        (SecretStr("secret"), "…"),
        (SecretStr(""), ""),
        ((SecretStr("secret"), SecretStr("")), ["…", ""]),
        ({"NAME": SecretStr("secret")}, {"NAME": "…"}),
        ("words", "words"),
        (1.5, 1.5),
        (True, True),
        (object(), "…"),
        (b"secret", "…"),
    ],
)
def test_a_value_is_shown_without_its_secrets(value: object, shown: object):
    assert show(value) == shown


def test_no_server_behind_the_gateway_shows_its_arguments_and_variables(tmp_path: Path):
    toml = '[mcp.servers.mine]\ncommand = "npx"\nargs = ["secret"]\nenv = { NAME = "secret" }\n'
    shown = show(parse(toml, {}, tmp_path).mcp)

    assert isinstance(shown, Mapping)
    assert "secret" not in str(shown)
    assert shown["servers"]["mine"]["command"] == "npx"  # type: ignore[index, call-overload]
