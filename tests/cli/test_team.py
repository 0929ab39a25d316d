"""`kimi-proxy team`, and the commands that read a store which is a team's."""

import json
from dataclasses import replace
from pathlib import Path

import anyio
from tests.support.services.store import postgres_server
from tests.support.services.store.making import a_metric, opened
from tests.support.texts import a_log

from kimi_proxy.team.tables import team_tables

from .conftest import Cli

ON = {"KIMI_PROXY__TEAM__ENABLED": "true"}
TOKEN = "KIMI_PROXY_TOKEN"


def added(cli: Cli, name: str, *more: str) -> str:
    """Add a person; return the token."""
    done = cli("team", "add", name, *more, env=ON)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode().strip()


def test_a_token_is_shown_once_rotated_and_revoked_and_what_was_done_is_in_the_log(cli: Cli):
    first = added(cli, "ada", "--team", "platform")
    assert first.startswith("kpt_") and len(first) > 40
    assert b"already exists" in cli("team", "add", "ada", env=ON).stderr

    rotated = cli("team", "rotate", "ada", "--json", env=ON)
    assert json.loads(rotated.stdout)["token"] not in ("", first)
    assert cli("team", "revoke", "ada", env=ON).returncode == 0
    listed = cli("team", "list", env=ON).stdout.decode()
    assert "ada" in listed and "platform" in listed and "revoked" in listed and "kpt_" not in listed
    assert b"there is no" in cli("team", "revoke", "ben", env=ON).stderr

    log = [json.loads(line) for line in cli("team", "audit-log", env=ON).stdout.splitlines()]
    assert [entry["action"] for entry in log] == ["revoke_token", "rotate_token", "add_person"]


def test_an_export_is_a_file_that_only_its_owner_can_read(cli: Cli, tmp_path: Path):
    added(cli, "ada")
    file = tmp_path / "ada.jsonl"
    file.write_text("an older one, which all may read")
    file.chmod(0o644)
    for path in (file, tmp_path / "new.jsonl"):
        cli("team", "export", "ada", "-o", str(path), env=ON)
        assert json.loads(path.read_text().splitlines()[0])
        assert path.stat().st_mode & 0o777 == 0o600


def test_a_person_is_exported_erased_and_the_name_is_free_again(cli: Cli):
    ada = {**ON, TOKEN: added(cli, "ada")}
    text = a_log(400).encode()
    pruned = cli("prune", "-", "--goal", "what failed?", "--source-type", "logs", "--json", stdin=text, env=ada)
    prune_id = json.loads(pruned.stdout)["prune_id"]

    exported = [json.loads(line) for line in cli("team", "export", "ada", env=ON).stdout.splitlines()]
    assert [one["text"] for one in exported if one["kind"] == "original"] == [text.decode()]
    assert b"revoke" in cli("team", "remove", "ada", env=ON).stderr
    erased = cli("team", "erase", "ada", "--yes", "--json", env=ON)
    assert json.loads(erased.stdout)["erased"]["originals"] == 1, erased.stderr
    assert cli("team", "list", env=ON).stdout == b""
    assert cli("recover", prune_id, env=ada).returncode == 2
    added(cli, "ada")

    log = [json.loads(line) for line in cli("team", "audit-log", env=ON).stdout.splitlines()]
    by_operator = [one["action"] for one in log if one["person"].startswith("os:")]
    assert by_operator[:2] == ["add_person", "erase_person"]
    assert {"export_person", "delete_original", "revoke_token"} < set(by_operator)


def test_a_person_recovers_what_is_theirs_and_no_other_does(cli: Cli):
    ada, ben = ({**ON, TOKEN: added(cli, name)} for name in ("ada", "ben"))
    text = a_log(400).encode()
    pruned = cli("prune", "-", "--goal", "what failed?", "--source-type", "logs", "--json", stdin=text, env=ada)
    prune_id = json.loads(pruned.stdout)["prune_id"]

    assert cli("recover", prune_id, env=ada).stdout == text
    for other in (ben, ON, {**ON, TOKEN: "kpt_guessed"}):
        refused = cli("recover", prune_id, env=other)
        assert (refused.returncode, refused.stdout) == (2, b"")
    assert b"unknown id" in cli("recover", prune_id, env=ben).stderr
    log = [json.loads(line) for line in cli("team", "audit-log", env=ON).stdout.splitlines()]
    assert {(entry["person"], entry["action"], entry["subject"]) for entry in log} >= {
        ("ada", "recover", prune_id),
        ("ben", "recover", prune_id),
    }


def test_the_report_adds_up_by_the_columns_that_are_asked_for(cli: Cli):
    ada = {**ON, TOKEN: added(cli, "ada")}
    added(cli, "ben")

    async def fill() -> None:
        async with opened(Path(cli.env["KIMI_PROXY_HOME"])) as store:
            ids = {one.name: one.id for one in await team_tables(store).people()}
            one = replace(a_metric(at=1.79e9), person=ids["ada"], model="=kimi")
            await store.sessions.write([], [one, replace(one, id="req_2", person=ids["ben"], cost_usd=2.0)])

    anyio.run(fill)
    admin = {**ON, TOKEN: "the-server's-own"}
    rows = json.loads(cli("report", "--by", "person", "--json", env=admin).stdout)["rows"]
    assert [(row["person"], row["requests"], row["cost_usd"]) for row in rows] == [("ben", 1, 2.0), ("ada", 1, 0.25)]
    own = cli("report", "--by", "person,model", "--csv", env=ada).stdout.decode().splitlines()
    assert own[0].startswith("person,model,requests,") and own[1].startswith("ada,'=kimi,1,") and len(own) == 2
    assert b"cost USD" in cli("report", "--by", "day", env=admin).stdout
    assert b"use some of person, team, model, day" in cli("report", "--by", "colour", env=admin).stderr


def said(cli: Cli, command: str, tool: str, arguments: dict[str, object], env: dict[str, str]) -> tuple[int, str, str]:
    """Call a tool over standard input; return the exit code, the answer and what was said beside it."""
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
    done = cli(command, "--stdio", stdin=json.dumps(call).encode() + b"\n", env=env)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


PRUNE = {
    "text": a_log(400),
    "goal_hint": "what failed?",
    "source_type": "logs",
    "options": {
        "max_prune_ratio": 0.9,
        "min_keep_lines": 1,
        "timeout_ms": 60_000,
        "annotate_lines": False,
        "include_markers": True,
    },
}
EVERYTHING = [{"start_line": 1, "end_line": 400}]


def test_over_stdio_the_tools_act_for_the_person_of_the_token_and_for_nobody_without_one(cli: Cli):
    ada, ben = ({**ON, TOKEN: added(cli, name)} for name in ("ada", "ben"))
    _, answer, problem = said(cli, "pruner", "prune_text", PRUNE, ada)
    prune_id = json.loads(answer)["result"]["structuredContent"]["prune_id"]
    asked: dict[str, object] = {"prune_id": prune_id, "ranges": EVERYTHING}
    for command in ("pruner", "tools"):
        recovered = json.loads(said(cli, command, "recover_text", asked, ada)[1])["result"]
        assert recovered["structuredContent"]["raw_text"] == a_log(400)
        assert json.loads(said(cli, command, "recover_text", asked, ben)[1])["result"]["isError"]
        for stranger in (ON, {**ON, TOKEN: "kpt_guessed"}):
            code, answer, problem = said(cli, command, "recover_text", asked, stranger)
            assert (code, answer) == (2, "")
            assert "this store belongs to a team: set KIMI_PROXY_TOKEN to your own token" in problem
    log = [json.loads(line) for line in cli("team", "audit-log", env=ON).stdout.splitlines()]
    assert {entry["person"] for entry in log if entry["subject"] == prune_id} == {"ada", "ben"}


def test_over_stdio_the_tools_use_the_database_of_the_settings(cli: Cli, tmp_path: Path):
    with postgres_server.serving() as server:
        env = {"KIMI_PROXY_DATABASE_URL": postgres_server.url_of(server, tmp_path)}
        _, answer, _ = said(cli, "pruner", "prune_text", PRUNE, env)
        prune_id = json.loads(answer)["result"]["structuredContent"]["prune_id"]
        asked: dict[str, object] = {"prune_id": prune_id, "ranges": EVERYTHING}
        assert not json.loads(said(cli, "tools", "recover_text", asked, env)[1])["result"]["isError"]
        assert cli("recover", prune_id, env=env).stdout.decode() == a_log(400)
        assert json.loads(said(cli, "tools", "recover_text", asked, {})[1])["result"]["isError"]
