"""The agent tools over HTTP: which are offered, and what happens to a command whose caller hangs up."""

from pathlib import Path

import pytest
from tests.support.api import wire
from tests.support.api.pruner_world import pruner
from tests.support.processes import runs_in, within

from kimi_proxy.core import json
from kimi_proxy.core.json import JsonObject, JsonValue


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    place.mkdir()
    (place / "file.txt").write_text("".join(f"line {n}\n" for n in range(1, 21)))
    return place


def names(port: int, path: str = "/mcp") -> list[str]:
    match wire.post(port, path, {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).json:
        case {"result": {"tools": list(tools)}}:
            return [str(tool["name"]) for tool in tools if isinstance(tool, dict)]
        case other:
            raise AssertionError(other)


def message(name: str, arguments: JsonObject) -> JsonObject:
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}


def called(port: int, name: str, **arguments: JsonValue) -> JsonObject:
    match wire.post(port, "/mcp", message(name, arguments)).json:
        case {"result": dict(result)}:
            return result
        case other:
            raise AssertionError(other)


def test_reading_and_searching_are_offered_and_commands_are_not(folder: Path, tmp_path: Path):
    with pruner(tmp_path / "state", MCP_PRUNER_CWD=str(folder)) as port:
        assert names(port)[3:] == ["read", "grep"]
        assert names(port, "/rpc") == names(port)
        read = called(port, "read", file_path="file.txt", start_line=2, end_line=3)
        refused = wire.post(port, "/mcp", message("bash", {"command": "id"}))

    assert read["content"] == [{"type": "text", "text": "2│ line 2\n3│ line 3"}]
    assert "structuredContent" not in read
    assert refused.error_code == -32602


def test_switched_off_none_is_offered(folder: Path, tmp_path: Path):
    with pruner(tmp_path / "state", MCP_PRUNER_CWD=str(folder), JEEVES_MCP_PRUNER_ENABLED="false") as port:
        assert names(port) == ["prune_text", "recover_text", "health"]


def test_a_wrong_argument_is_told_to_the_model_by_name(folder: Path, tmp_path: Path):
    with pruner(tmp_path / "state", MCP_PRUNER_CWD=str(folder)) as port:
        wrong = called(port, "grep", pattern="a", max_matches=0)

    assert wrong["isError"] is True
    assert "max_matches" in str(wrong["content"])


def test_a_command_ends_when_its_caller_hangs_up(folder: Path, tmp_path: Path):
    with pruner(tmp_path / "state", toml="[tools]\nbash_over_http = true", MCP_PRUNER_CWD=str(folder)) as port:
        assert "bash" in names(port)
        answered = called(port, "bash", command="pwd")
        body = json.encode(message("bash", {"command": "touch begun; sleep 600"}))
        with wire.connect(port) as line:
            line.sendall(wire.request(port, "POST", "/mcp", body))
            assert within(60, (folder / "begun").exists)
            assert runs_in(folder)
        assert within(60, lambda: not runs_in(folder))

    assert answered["content"] == [{"type": "text", "text": f"{folder}\n"}]
