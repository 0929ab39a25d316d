"""What the gateway does with each kind of message, its servers replaced by functions."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support import fakes

from kimi_proxy.core.caller import ANONYMOUS, LOCAL, Caller
from kimi_proxy.core.config import parse
from kimi_proxy.core.errors import CallRefused, UnknownServer, UpstreamTimeout, UpstreamUnreachable
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.core.lines import decode_text, encode_text
from kimi_proxy.core.markers import NO_PRUNE_BEGIN, MaskMarker, PruneMarker, read_mask
from kimi_proxy.services.events import Publish, no_op
from kimi_proxy.services.gateway import Gateway
from kimi_proxy.services.gateway.clients import McpClients
from kimi_proxy.services.metrics import Metrics
from kimi_proxy.services.pruner import Pruner
from kimi_proxy.services.store.protocols import Original
from kimi_proxy.services.workers.pool import Workers

ID = "msk_0123456789abcdef"
LONG = "".join(f"line {i}\n" for i in range(2000))
SETTINGS = """
[mcp.servers.files]
url = "http://127.0.0.1:1/rpc"
[mcp.servers.few]
url = "http://127.0.0.1:1/rpc"
tools = ["read"]
[mcp.servers.rooted]
url = "http://127.0.0.1:1/rpc"
root = "/usr"
[mcp.servers.bold]
url = "http://127.0.0.1:1/rpc"
allow_marker_writes = true
[mcp.servers.bare]
url = "http://127.0.0.1:1/rpc"
masking = { enabled = false }
[mcp.servers.pruned]
url = "http://127.0.0.1:1/rpc"
pruning = { enabled = true }
[mcp.servers.off]
url = "http://127.0.0.1:1/rpc"
enabled = false
"""


class World(McpClients):
    """The servers behind the gateway, replaced by a function, with a store in memory."""

    def __init__(
        self,
        answer: Callable[[JsonObject], JsonObject | None] = lambda message: {},
        error: Exception | None = None,
        can_keep: bool = True,
    ) -> None:
        super().__init__(parse(SETTINGS, {}, Path("/x")).mcp, {})
        self.reply = answer
        self.error = error
        self.sent: list[JsonObject] = []
        self.store = fakes.MemoryOriginals()
        self.store.fall_ill(not can_keep)

    def gateway(self, metrics: Metrics | None = None, publish: Publish = no_op) -> Gateway:
        config = parse(SETTINGS, {}, Path("/x"))
        pruner = Pruner(config.mcp_pruner, self.store, Workers(thread_max_chars=10**9))
        gateway = Gateway(config, self.store, pruner, metrics or Metrics(), {}, publish=publish)
        gateway.clients = self
        return gateway

    async def forward_jsonrpc(
        self, server_name: str, message: JsonObject, who: Caller = ANONYMOUS
    ) -> JsonObject | None:
        self.sent.append(message)
        if self.error:
            raise self.error
        answer = self.reply(message)
        return None if answer is None else {"jsonrpc": "2.0", "id": message.get("id"), **answer}

    @property
    def kept(self) -> dict[str, str]:
        return {original.id: decode_text(original.text) for original in self.store.kept.values()}

    async def keep(self, mask_id: str, text: str) -> None:
        await self.store.keep(Original(mask_id, "local", b"key", encode_text(text), b"{}"))


def says(result: JsonValue) -> Callable[[JsonObject], JsonObject]:
    return lambda message: {"result": result}


def call(name: str = "read", arguments: JsonObject | None = None, **more: JsonValue) -> JsonObject:
    return {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": name, "arguments": arguments or {}, **more},
    }


def ask(method: str, **params: JsonValue) -> JsonObject:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def text_of(response: JsonValue) -> str:
    return response["result"]["content"][0]["text"]  # type: ignore[index,call-overload,no-any-return]


def text(value: str) -> JsonObject:
    return {"content": [{"type": "text", "text": value}]}


class TestMasking:
    async def test_a_long_answer_is_kept_first_and_then_masked_everywhere_it_stands(self):
        world = World(says({**text(LONG), "structuredContent": {"content": LONG}, "extra": {"é": None}}))
        got = await world.gateway().handle_rpc(LOCAL, "files", call())
        ((mask_id, original),) = world.kept.items()
        shown = LONG[:2000] + str(MaskMarker(mask_id, len(LONG), 2000, 2000)) + LONG[-2000:]

        assert original == LONG
        assert json.dumps(got) == json.dumps(
            {
                "jsonrpc": "2.0",
                "id": 1,
                "result": {**text(shown), "structuredContent": {"content": shown}, "extra": {"é": None}},
            }
        )

    async def test_what_cannot_be_kept_goes_out_whole(self):
        got = await World(says(text(LONG)), can_keep=False).gateway().handle_rpc(LOCAL, "files", call())

        assert text_of(got) == LONG

    async def test_a_fault_of_ours_costs_no_answer_and_is_counted(self):
        world, metrics, seen = World(says(text(LONG))), Metrics(), list[object]()
        world.store.illness = ValueError("a bug of ours")
        gateway = world.gateway(metrics, lambda who, event, fields: seen.append(fields["outcome"]))
        got = await gateway.handle_rpc(LOCAL, "files", call())

        assert text_of(got) == LONG
        assert seen == ["ok", "uncut"]
        counted = metrics.text().decode()
        assert 'kimi_proxy_gateway_masked_total{outcome="internal_error",server="files"} 1.0' in counted

    async def test_a_short_answer_is_the_servers_own_object(self):
        result = text("short")
        got = await World(says(result)).gateway().handle_rpc(LOCAL, "files", call())

        assert got["result"] is result  # type: ignore[index,call-overload]

    async def test_the_data_of_an_error_is_masked_and_its_message_is_not(self):
        error: JsonValue = {"code": -32000, "message": "m" * 9000, "data": {"trace": LONG}}
        got = await World(lambda _: {"error": error}).gateway().handle_rpc(LOCAL, "files", ask("tools/list"))

        assert got["error"]["message"] == "m" * 9000  # type: ignore[index,call-overload]
        assert read_mask(got["error"]["data"]["trace"]) is not None  # type: ignore[index,call-overload,arg-type]

    @pytest.mark.parametrize(
        "method", ["initialize", "tools/list", "resources/list", "resources/read", "prompts/get", "prompts/list"]
    )
    async def test_answers_to_anything_but_a_call_pass_untouched(self, method: str):
        result: JsonValue = {"description": LONG, "items": [LONG], "capabilities": {"tools": {}}}
        got = await World(says(result)).gateway().handle_rpc(LOCAL, "files", ask(method))

        assert got["result"] == result  # type: ignore[index,call-overload]

    async def test_a_method_that_is_not_of_mcp_is_a_call_like_any_other(self):
        got = await World(says({"lines": LONG})).gateway().handle_rpc(LOCAL, "files", ask("read_file"))

        assert read_mask(got["result"]["lines"]) is not None  # type: ignore[index,call-overload,arg-type]

    @pytest.mark.parametrize("tool", ["recover_range", "prune_text"])
    async def test_what_our_own_tools_say_is_never_masked(self, tool: str):
        assert text_of(await World(says(text(LONG))).gateway().handle_rpc(LOCAL, "files", call(tool))) == LONG

    async def test_masking_can_be_switched_off(self):
        assert text_of(await World(says(text(LONG))).gateway().handle_rpc(LOCAL, "bare", call())) == LONG

    @pytest.mark.parametrize("result", [None, True, 3, 1.5, "short", [], {}])
    async def test_any_result_passes(self, result: JsonValue):
        assert await World(says(result)).gateway().handle_rpc(LOCAL, "files", call()) == {
            "jsonrpc": "2.0",
            "id": 1,
            "result": result,
        }

    async def test_a_payload_can_be_masked_on_its_own(self):
        world = World()
        masked = await world.gateway().apply_observation_masking(
            LOCAL, {"a": ["x" * 10_000, {"b": "y" * 10_000}], "c": "z"}
        )

        assert sorted(world.kept.values()) == ["x" * 10_000, "y" * 10_000]
        assert len(masked["a"][0]) <= 4000 + 200  # type: ignore[index,call-overload,arg-type]
        assert masked["c"] == "z"  # type: ignore[index,call-overload]


LOCKED = f"{NO_PRUNE_BEGIN}\n" + "one line " * 2000


async def test_a_text_that_cannot_be_pruned_is_masked():
    world = World(says(text(LOCKED)))

    assert read_mask(text_of(await world.gateway().handle_rpc(LOCAL, "pruned", call()))) is not None
    assert set(world.kept.values()) == {LOCKED}


class TestRecovery:
    async def test_the_recovery_tool_is_listed_beside_the_servers_own(self):
        tools: JsonValue = [{"name": "read", "inputSchema": {}, "x": 1}]
        got = await World(says({"tools": tools, "ttlMs": 5})).gateway().handle_rpc(LOCAL, "files", ask("tools/list"))
        listed = got["result"]["tools"]  # type: ignore[index,call-overload]

        assert listed[:-1] == tools  # type: ignore[index]
        assert listed[-1]["name"] == "recover_text"  # type: ignore[index,call-overload]
        assert listed[-1]["annotations"] == {"readOnlyHint": True}  # type: ignore[index,call-overload]
        assert got["result"]["ttlMs"] == 5  # type: ignore[index,call-overload]

    async def test_without_masking_there_is_nothing_to_recover(self):
        result: JsonValue = {"tools": [{"name": "read"}]}
        got = await World(says(result)).gateway().handle_rpc(LOCAL, "bare", ask("tools/list"))

        assert got["result"] == result  # type: ignore[index,call-overload]

    async def test_on_several_pages_it_stands_on_the_last(self):
        pages: dict[JsonValue, JsonValue] = {
            None: {"tools": [{"name": "recover_text"}], "nextCursor": "2"},
            "2": {"tools": [{"name": "b"}]},
        }
        world = World(lambda m: {"result": pages[m["params"].get("cursor")]})  # type: ignore[union-attr]
        gateway = world.gateway()
        first = await gateway.handle_rpc(LOCAL, "files", ask("tools/list"))
        second = await gateway.handle_rpc(LOCAL, "files", ask("tools/list", cursor="2"))

        assert [t["name"] for t in first["result"]["tools"]] == ["recover_text"]  # type: ignore[index,call-overload]
        assert [t["name"] for t in second["result"]["tools"]] == ["b", "kimi_proxy_recover_text"]  # type: ignore[index,call-overload]

    async def test_a_server_that_has_a_tool_of_that_name_keeps_it(self):
        tools: list[JsonValue] = [{"name": "recover_text"}]
        world = World(lambda m: {"result": {"tools": tools} if m["method"] == "tools/list" else text("the server's")})
        gateway = world.gateway()
        await gateway.handle_rpc(LOCAL, "files", ask("tools/list"))
        await world.keep(ID, "ours")

        assert text_of(await gateway.handle_rpc(LOCAL, "files", call("recover_text", {"id": ID}))) == "the server's"
        assert text_of(await gateway.handle_rpc(LOCAL, "files", call("kimi_proxy_recover_text", {"id": ID}))) == "ours"

    async def test_a_server_with_both_names_keeps_both_and_gets_no_third(self):
        tools: list[JsonValue] = [{"name": "recover_text"}, {"name": "kimi_proxy_recover_text"}]
        world = World(lambda m: {"result": {"tools": tools} if m["method"] == "tools/list" else text("the server's")})
        gateway = world.gateway()
        listed = await gateway.handle_rpc(LOCAL, "files", ask("tools/list"))
        await world.keep(ID, "ours")

        assert listed["result"] == {"tools": tools}  # type: ignore[index,call-overload]
        for name in ("recover_text", "kimi_proxy_recover_text"):
            assert text_of(await gateway.handle_rpc(LOCAL, "files", call(name, {"id": ID}))) == "the server's"

    async def test_a_list_that_changes_is_shown_as_it_is_now(self):
        tools: list[JsonValue] = [{"name": "recover_text"}]
        gateway = World(lambda m: {"result": {"tools": list(tools)}}).gateway()
        await gateway.handle_rpc(LOCAL, "files", ask("tools/list"))
        tools[0] = {"name": "new"}
        got = await gateway.handle_rpc(LOCAL, "files", ask("tools/list"))

        assert [t["name"] for t in got["result"]["tools"]] == ["new", "recover_text"]  # type: ignore[index,call-overload]

    async def test_a_masked_answer_is_recovered_whole_and_unmasked_without_asking_the_server(self):
        world = World(says(text(LONG)))
        gateway = world.gateway()
        marker = read_mask(text_of(await gateway.handle_rpc(LOCAL, "files", call())))
        assert marker is not None
        got = await gateway.handle_rpc(LOCAL, "files", call("recover_text", {"id": marker.mask_id}))

        assert got == {"jsonrpc": "2.0", "id": 1, "result": {**text(LONG), "isError": False}}
        assert len(world.sent) == 1

    async def test_the_hidden_part_is_what_the_marker_says(self):
        world = World(says(text(LONG)))
        gateway = world.gateway()
        shown = text_of(await gateway.handle_rpc(LOCAL, "files", call()))
        marker = read_mask(shown)
        assert marker is not None
        hidden = {"start_char": marker.head_chars, "end_char": marker.original_chars - marker.tail_chars}
        got = await gateway.handle_rpc(LOCAL, "files", call("recover_text", {"id": marker.mask_id, **hidden}))

        assert shown.replace(str(marker), text_of(got)) == LONG

    async def test_an_id_that_is_unknown_is_told_to_the_model(self):
        got = await World().gateway().handle_rpc(LOCAL, "files", call("recover_text", {"id": "msk_none"}))

        assert got["result"]["isError"] is True  # type: ignore[index,call-overload]
        assert "unknown id" in text_of(got)

    async def test_a_client_of_the_stateless_era_gets_a_result_of_its_era(self):
        meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
        world = World()
        await world.keep(ID, "x")
        got = await world.gateway().handle_rpc(LOCAL, "files", call("recover_text", {"id": ID}, _meta=meta))

        assert got["result"]["resultType"] == "complete"  # type: ignore[index,call-overload]

    async def test_a_server_without_tools_becomes_one_that_has_ours(self):
        result: JsonValue = {"protocolVersion": "2025-11-25", "capabilities": {"resources": {}}}
        got = await World(says(result)).gateway().handle_rpc(LOCAL, "files", ask("initialize"))

        assert got["result"]["capabilities"] == {"resources": {}, "tools": {}}  # type: ignore[index,call-overload]


class TestRefusals:
    async def refused(self, server: str, message: JsonObject) -> CallRefused:
        world = World()
        with pytest.raises(CallRefused) as caught:
            await world.gateway().answer(LOCAL, server, message)
        assert world.sent == []
        return caught.value

    @pytest.mark.parametrize(
        "marker",
        [
            MaskMarker("msk_0123456789abcdef", 23_000, 2000, 2000),
            PruneMarker("prn_0123456789abcdef", 1, 9, "hors sujet"),
        ],
    )
    @pytest.mark.parametrize("quote", [str, json.dumps])
    async def test_a_marker_is_never_written_back(self, marker: object, quote: Callable[[str], str]):
        content = quote(f"head\n{marker}\ntail")
        error = await self.refused("files", call("write", {"path": "a", "edits": [{"new": content}]}))

        assert error.reason == "marker"
        assert "recover_text with id" in str(error)
        assert ("msk_" if isinstance(marker, MaskMarker) else "prn_") + "0123456789abcdef" in str(error)

    async def test_a_marker_without_an_id_is_refused_too(self):
        marker = "[KIMI_PROXY_OBSERVATION_MASKED original_chars=9 head=1 tail=1]"

        assert "Read the source again" in str(await self.refused("files", call("write", {"text": marker})))

    async def test_markers_pass_where_they_are_allowed(self):
        world = World(says(text("ok")))
        await world.gateway().answer(
            LOCAL, "bold", call("write", {"text": str(MaskMarker("msk_0123456789abcdef", 9, 1, 1))})
        )

        assert len(world.sent) == 1

    async def test_a_tool_that_is_not_allowed_is_not_called_and_not_listed(self):
        assert (await self.refused("few", call("write"))).reason == "tool"
        got = (
            await World(says({"tools": [{"name": "read"}, {"name": "write"}]}))
            .gateway()
            .handle_rpc(LOCAL, "few", ask("tools/list"))
        )

        assert [t["name"] for t in got["result"]["tools"]] == ["read", "recover_text"]  # type: ignore[index,call-overload]

    async def test_a_path_out_of_the_root_is_refused_by_name(self):
        error = await self.refused("rooted", call("read", {"path": "/etc/passwd"}))

        assert error.reason == "path"
        assert "'path' is outside the workspace /usr: '/etc/passwd'" in str(error)

    async def test_a_path_in_the_root_passes(self):
        world = World(says(text("ok")))
        await world.gateway().answer(LOCAL, "rooted", call("read", {"path": "/usr/a"}))

        assert len(world.sent) == 1


class TestMessages:
    @pytest.mark.parametrize("name", ["nobody", "off", "", "../x"])
    async def test_an_unknown_server_is_an_error_that_names_the_known(self, name: str):
        with pytest.raises(UnknownServer, match=r"fast-filesystem.*files"):
            await World().gateway().answer(LOCAL, name, call())

    async def test_the_failures_of_a_server_become_json_rpc_errors(self):
        for error, code in ((UpstreamTimeout("too late"), -32002), (UpstreamUnreachable("gone"), -32002)):
            got = await World(error=error).gateway().handle_rpc(LOCAL, "files", call())

            assert got == {
                "jsonrpc": "2.0",
                "id": 1,
                "error": {"code": code, "message": str(error), "data": {"code": error.code}},
            }

    async def test_a_servers_own_error_passes_through(self):
        error: JsonValue = {"code": -32602, "message": "no such file", "data": [1]}
        got = await World(lambda _: {"error": error}).gateway().handle_rpc(LOCAL, "files", call())

        assert got == {"jsonrpc": "2.0", "id": 1, "error": error}

    async def test_a_notification_is_passed_on_and_gets_no_answer(self):
        world = World(lambda _: None)
        message: JsonObject = {"jsonrpc": "2.0", "method": "notifications/x"}

        assert await world.gateway().handle_rpc(LOCAL, "files", message) is None
        assert world.sent == [message]

    async def test_a_response_asks_for_nothing(self):
        world = World()

        assert await world.gateway().handle_rpc(LOCAL, "files", {"jsonrpc": "2.0", "id": 1, "result": {}}) is None
        assert world.sent == []

    @pytest.mark.parametrize("message", [None, 3, "x", {}, {"jsonrpc": "1.0"}, {"jsonrpc": "2.0", "method": 3}])
    async def test_what_is_no_request_is_refused(self, message: JsonValue):
        got = await World().gateway().handle_rpc(LOCAL, "files", message)

        assert got["error"]["code"] == -32600  # type: ignore[index,call-overload]

    async def test_a_batch_is_answered_item_by_item(self):
        world = World(lambda m: {"result": m["method"]} if "id" in m else None)
        batch: JsonValue = [
            {"jsonrpc": "2.0", "id": 1, "method": "a"},
            {"jsonrpc": "2.0", "method": "n"},
            {"jsonrpc": "2.0", "id": 1, "method": "b"},
            3,
        ]
        got = await world.gateway().handle_rpc(LOCAL, "files", batch)

        assert [r.get("result", "error") for r in got] == ["a", "b", "error"]  # type: ignore[union-attr]

    async def test_a_batch_of_notifications_gets_nothing(self):
        batch: JsonValue = [{"jsonrpc": "2.0", "method": "n"}]

        assert await World(lambda _: None).gateway().handle_rpc(LOCAL, "files", batch) is None

    @pytest.mark.parametrize("size", [0, 101])
    async def test_a_batch_has_its_limits(self, size: int):
        got = await World().gateway().handle_rpc(LOCAL, "files", [call()] * size)

        assert got["error"]["code"] == -32600  # type: ignore[index,call-overload]
