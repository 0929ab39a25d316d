"""The contract of the pruner over HTTP: its schemas, its answers, every error path."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.api import wire
from tests.support.api.app import OPTIONS, lines
from tests.support.api.pruner_world import pruner
from tests.support.tool_schemas import PRUNE_SCHEMA, RECOVER_SCHEMA

from kimi_proxy.assembly.apps import rules_of
from kimi_proxy.core import json
from kimi_proxy.core.config import parse
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.proxy.local_server import outward_address

LOG = "\n".join(
    f"2026-11-15 10:{i // 60:02}:{i % 60:02} INFO worker {i % 7} finished job {i} in {i * 37 % 900} ms"
    if i != 150
    else "2026-11-15 10:02:30 ERROR payment gateway refused the card of order 4711"
    for i in range(300)
)


def question(text: str = LOG, **options: JsonValue) -> JsonObject:
    return {
        "text": text,
        "goal_hint": "why was the payment refused",
        "source_type": "logs",
        "options": {**OPTIONS, **options},
    }


def rpc(port: int, method: str, params: JsonObject) -> JsonObject:
    heard = wire.post(port, "/rpc", {"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    assert heard.status == 200
    assert isinstance(heard.json, dict)
    return heard.json


def result(port: int, method: str, params: JsonObject) -> JsonObject:
    found = rpc(port, method, params)["result"]
    assert isinstance(found, dict)
    return found


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with pruner(tmp_path_factory.mktemp("home")) as port:
        yield port


@pytest.fixture(scope="module")
def pruned(port: int) -> JsonObject:
    return result(port, "prune_text", question())


# What it offers


@pytest.mark.parametrize("path", ["/rpc", "/mcp"])
def test_the_tools_are_those_of_the_contract(port: int, path: str):
    match wire.post(port, path, {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}).json:
        case {"result": {"tools": [*tools]}}:
            schemas = {tool["name"]: tool["inputSchema"] for tool in tools}
            hints = [tool["annotations"] for tool in tools]
        case other:
            raise AssertionError(other)

    assert list(schemas) == ["prune_text", "recover_text", "health", "read", "grep"]
    assert schemas["prune_text"] == json.decode(PRUNE_SCHEMA.encode())
    assert schemas["recover_text"] == json.decode(RECOVER_SCHEMA.encode())
    assert hints == [{"readOnlyHint": True}] * 5


def test_health_is_the_same_at_every_door(port: int):
    shown = wire.ask(port, "GET", "/health").json
    told = result(port, "health", {})
    called = result(port, "tools/call", {"name": "health", "arguments": {}})["structuredContent"]
    assert isinstance(shown, dict)
    assert isinstance(called, dict)

    for answer in (shown, told, called):
        assert answer.pop("timestamp")
        assert answer == {
            "status": "healthy",
            "server": "mcp-pruner",
            "version": answer["version"],
            "capabilities": ["prune_text", "recover_text", "annotations", "markers"],
        }


# Prune and recover


def test_an_answer_has_the_shape_of_the_contract(pruned: JsonObject):
    assert set(pruned) == {"prune_id", "pruned_text", "annotations", "stats", "warnings"}
    assert {
        "original_lines",
        "kept_lines",
        "pruned_lines",
        "pruned_ratio",
        "tokens_est_before",
        "tokens_est_after",
        "elapsed_ms",
        "used_fallback",
    } <= set(pruned["stats"])
    assert pruned["annotations"]
    assert "ERROR payment gateway" in str(pruned["pruned_text"])


def test_what_was_pruned_comes_back_exactly(port: int, pruned: JsonObject):
    everything = result(port, "recover_text", lines(str(pruned["prune_id"]), (1, 300)))

    assert everything["raw_text"] == LOG
    assert everything["metadata"] == {
        "prune_id": pruned["prune_id"],
        "ranges": [{"start_line": 1, "end_line": 300}],
        "line_numbering": "original",
        "numbering": "lines",
    }


@pytest.mark.parametrize("tool", ["recover_text", "recover_range"])
def test_lines_come_with_their_numbers_in_the_order_asked(port: int, pruned: JsonObject, tool: str):
    asked = lines(str(pruned["prune_id"]), (10, 11), (2, 2), numbers=True)
    source = LOG.split("\n")

    assert result(port, tool, asked)["raw_text"] == "\n".join(f"{n}│ {source[n - 1]}" for n in (10, 11, 2))


def test_the_text_of_a_call_is_its_structure(port: int):
    found = result(port, "tools/call", {"name": "prune_text", "arguments": question()})
    match found["content"]:
        case [{"type": "text", "text": str(text)}]:
            assert json.decode(text.encode()) == found["structuredContent"]
        case other:
            raise AssertionError(other)


def test_lone_surrogates_survive_the_way_through_http(port: int):
    text = "\ud800 begins\n" + LOG + "\nends \udfff"
    answer = result(port, "prune_text", question(text))

    assert result(port, "recover_text", lines(str(answer["prune_id"]), (1, 1000)))["raw_text"] == text


# Errors


def error(answer: JsonObject) -> JsonObject:
    found = answer["error"]
    assert isinstance(found, dict)
    return found


OTHER_OPTIONS = [f"options.{name}" for name in ("min_keep_lines", "timeout_ms", "annotate_lines", "include_markers")]


@pytest.mark.parametrize(
    ("arguments", "field", "others"),
    [
        ({}, "text", ["goal_hint", "source_type", "options"]),
        ({**question(), "text": 1}, "text", []),
        ({**question(), "goal_hint": None}, "goal_hint", []),
        ({**question(), "source_type": "poem"}, "source_type", []),
        ({**question(), "options": {}}, "options.max_prune_ratio", OTHER_OPTIONS),
        ({**question(), "options": None}, "options", []),
        (question(max_prune_ratio=1.5), "options.max_prune_ratio", []),
        (question(max_prune_ratio=-0.1), "options.max_prune_ratio", []),
        (question(max_prune_ratio="0.5"), "options.max_prune_ratio", []),
        (question(min_keep_lines=-1), "options.min_keep_lines", []),
        (question(timeout_ms=0), "options.timeout_ms", []),
        (question(timeout_ms=1.5), "options.timeout_ms", []),
        (question(annotate_lines=1), "options.annotate_lines", []),
        (question(include_markers="yes"), "options.include_markers", []),
        (question(speed="high"), "options.speed", []),
        ({**question(), "language": "python"}, "language", []),
    ],
)
def test_wrong_arguments_are_named_at_every_door(port: int, arguments: JsonObject, field: str, others: list[str]):
    direct = error(rpc(port, "prune_text", arguments))
    called = error(rpc(port, "tools/call", {"name": "prune_text", "arguments": arguments}))
    told = wire.post(
        port,
        "/mcp",
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": "prune_text", "arguments": arguments},
        },
    )

    assert direct == called
    more = {"fields": [field, *others]} if others else {}
    assert (direct["code"], direct["data"]) == (-32602, {"code": "invalid_params", "field": field, **more})
    match told.json:
        case {"result": {"isError": True, "content": [{"text": str(text)}]}}:
            assert text.startswith(f"invalid_params: {field}: ")
        case other:
            raise AssertionError(other)


@pytest.mark.parametrize(
    "prune_id", ["prn_0123456789abcdef", "", "x", "../../etc/passwd", "prn_" + "z" * 1000, "\ud800"]
)
def test_an_unknown_id_is_told(port: int, prune_id: str):
    found = error(rpc(port, "recover_text", lines(prune_id, (1, 2))))

    assert (found["code"], found["message"]) == (-32004, "prune_id_not_found")
    assert found["data"]["code"] == "prune_id_not_found"
    assert found["data"]["reason"] == "unknown"


@pytest.mark.parametrize("ranges", [[(5, 2)], [(0, 2)], [(-3, 2)], [(1, 0)], [(1, 2), (9, 3)]])
def test_a_range_that_means_nothing_is_told(port: int, pruned: JsonObject, ranges: list[tuple[int, int]]):
    found = error(rpc(port, "recover_text", lines(str(pruned["prune_id"]), *ranges)))

    assert (found["code"], found["message"], found["data"]["code"]) == (-32005, "invalid_range", "invalid_range")


def test_a_range_past_the_end_is_told_where_the_end_is(port: int, pruned: JsonObject):
    found = error(rpc(port, "recover_text", lines(str(pruned["prune_id"]), (301, 400))))

    assert (found["code"], found["data"]["max_line"]) == (-32005, 300)


def test_an_end_past_the_end_is_the_end(port: int, pruned: JsonObject):
    found = result(port, "recover_text", lines(str(pruned["prune_id"]), (300, 9999)))

    assert found["raw_text"] == LOG.split("\n")[-1]


def test_an_id_that_has_expired_is_told_apart(tmp_path: Path):
    with pruner(tmp_path, MCP_PRUNER_PRUNE_ID_TTL_S="1") as port:
        prune_id = str(result(port, "prune_text", question())["prune_id"])
        time.sleep(1.5)
        found = error(rpc(port, "recover_text", lines(prune_id, (1, 2))))

    assert (found["code"], found["data"]["reason"]) == (-32004, "expired")


# Fail open


def test_a_text_that_is_too_large_comes_back_whole(tmp_path: Path):
    with pruner(tmp_path, MCP_PRUNER_MAX_INPUT_CHARS="1000") as port:
        answer = result(port, "prune_text", question())
        again = result(port, "recover_text", lines(str(answer["prune_id"]), (1, 300)))

    assert (answer["pruned_text"], answer["annotations"]) == (LOG, [])
    assert answer["stats"]["used_fallback"] is True
    assert "input_too_large" in answer["warnings"]
    assert again["raw_text"] == LOG


def test_without_time_the_text_comes_back_whole(port: int):
    text = "\n".join(f"{i} {LOG[i : i + 80]!r}" for i in range(12_000))
    answer = result(port, "prune_text", question(text, timeout_ms=1))

    assert (answer["pruned_text"], answer["annotations"]) == (text, [])
    assert answer["stats"]["used_fallback"] is True
    assert "timeout" in answer["warnings"]


def test_a_store_that_is_broken_loses_nothing(tmp_path: Path):
    home = tmp_path / "home"
    home.write_text("a file where the directory should be")
    with pruner(home) as port:
        answer = result(port, "prune_text", question())
        health = wire.ask(port, "GET", "/health").json
        metrics = wire.ask(port, "GET", "/metrics").body
        found = error(rpc(port, "recover_text", lines("prn_0123456789abcdef", (1, 2))))

    assert (answer["pruned_text"], answer["prune_id"]) == (LOG, None)
    assert "recovery_unavailable" in answer["warnings"]
    assert isinstance(health, dict)
    assert (health["status"], str(health["store"]).partition(":")[0]) == ("healthy", "degraded")
    assert b"kimi_proxy_store_degraded 1.0" in metrics
    assert (found["code"], found["data"]["code"]) == (-32603, "recovery_unavailable")


def test_an_id_outlives_the_server(tmp_path: Path):
    with pruner(tmp_path) as port:
        prune_id = str(result(port, "prune_text", question())["prune_id"])
    with pruner(tmp_path) as port:
        assert result(port, "recover_text", lines(prune_id, (1, 300)))["raw_text"] == LOG


@pytest.mark.parametrize("path", ["/rpc", "/mcp"])
def test_clients_that_leave_during_a_long_prune_harm_nobody(port: int, path: str):
    modern: JsonObject = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    headers = (
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", "prune_text"),
    )
    for i in range(4):
        text = "\n".join(f"{path} {i} {n} {LOG[n : n + 60]!r}" for n in range(10_000))
        params: JsonObject = {"name": "prune_text", "arguments": question(text), "_meta": modern}
        body = json.encode({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        with wire.connect(port) as line:
            line.sendall(wire.request(port, "POST", path, body, headers=headers))
            time.sleep(0.05 * i)

    assert wire.ask(port, "GET", "/health").status == 200
    assert result(port, "prune_text", question())["annotations"]


# Metrics and access


def test_metrics_count_calls_refusals_and_room(port: int, pruned: JsonObject):
    wire.ask(port, "GET", "/health", host="evil.example")
    rpc(port, "recover_text", lines("prn_0123456789abcdef", (1, 2)))
    shown = wire.ask(port, "GET", "/metrics")
    text = shown.body.decode()

    assert shown.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert 'kimi_proxy_tool_calls_total{outcome="ok",tool="prune_text"}' in text
    assert 'kimi_proxy_tool_calls_total{outcome="prune_id_not_found",tool="recover_text"}' in text
    assert 'kimi_proxy_http_refusals_total{code="host"} ' in text
    assert "kimi_proxy_store_degraded 0.0" in text
    assert "kimi_proxy_store_originals 0.0" not in text


def test_the_token_of_the_environment_locks_the_doors(tmp_path: Path):
    with pruner(tmp_path, KIMI_PROXY_TOKEN="s3cret", KIMI_PROXY_ALLOWED_HOSTS="pruner.example") as port:
        body = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
        own = (("Authorization", "Bearer s3cret"),)

        assert wire.ask(port, "GET", "/health").status == 200
        assert wire.ask(port, "GET", "/metrics").status == 401
        assert wire.ask(port, "POST", "/rpc", body).status == 401
        assert wire.ask(port, "POST", "/rpc", body, headers=own).status == 200
        assert wire.ask(port, "POST", "/rpc", body, headers=own, host="pruner.example").status == 200
        assert wire.ask(port, "POST", "/rpc", body, headers=own, host="other.example").status == 421


@pytest.mark.parametrize(
    ("host", "names"),
    [
        ("127.0.0.1", ()),
        ("localhost", ()),
        ("::1", ()),
        ("192.0.2.7", ("192.0.2.7",)),
        ("2001:db8::7", ("[2001:db8::7]",)),
    ],
)
def test_the_address_we_listen_on_is_a_name_of_ours(host: str, names: tuple[str, ...]):
    assert rules_of(parse("", {}, Path("home")), host).hosts == names


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_on_all_interfaces_the_address_that_the_start_message_names_is_ours(host: str):
    outward = outward_address(host)

    assert rules_of(parse("", {}, Path("home")), host).hosts == ((outward,) if outward else ())
