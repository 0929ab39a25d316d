"""The OpenAPI description and the JSON Schemas: complete, and true of what is really answered, sent and written."""

import asyncio
import json
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import requests
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from starlette.routing import Route
from starlette.types import ASGIApp
from tests.support import outputs
from tests.support.api.pruner_world import pruner
from tests.support.api.watching import MODEL, World, completion, models, watching, world
from tests.support.conversations import Assistant, Call, Item, Result, User, body
from tests.support.deep import IS_DEEP

from kimi_proxy.api.guard import Guard
from kimi_proxy.assembly.apps import proxy_app, pruner_app
from kimi_proxy.assembly.runtime import Runtime, running
from kimi_proxy.core.chat import Wire
from kimi_proxy.core.config import parse
from kimi_proxy.core.json import JsonObject

ROOT = Path(__file__).parents[2]
PAGES = {"/", "/dashboard/{path:path}"}  # files for a browser
LOG = outputs.pytest_log(300)
SETTINGS = f"""{models(100_000)}
[sanitizer]
budget_ms = 60000
[record]
enabled = true
[mcp.servers.away]
url = "http://127.0.0.1:9/mcp"
"""
OF_A_TEAM = {
    ("post", "/api/team/people"),
    *((method, f"/api/team/people/{{person}}{rest}") for method, rest in (("delete", ""), ("get", "/export"))),
    *(("post", f"/api/team/people/{{person}}/{name}") for name in ("rotate", "revoke", "erase")),
    *((method, "/api/me/tokens") for method in ("get", "post")),
    ("delete", "/api/me/tokens/{token_id}"),
    ("get", "/api/me/export"),
}
PREVIEW = {
    "text": LOG.text,
    "goal_hint": LOG.goal,
    "source_type": "logs",
    "explain": True,
    "options": {
        "max_prune_ratio": 0.6,
        "min_keep_lines": 5,
        "timeout_ms": 30000,
        "annotate_lines": False,
        "include_markers": True,
    },
}


def closed(value: object) -> object:
    """A schema that allows no field that it does not name, except in errors, which some have more of."""
    if isinstance(value, dict):
        is_named = value.get("type") == "object" and "properties" in value and value.get("title") != "ErrorDetail"
        return {
            **{key: closed(each) for key, each in value.items()},
            **({"additionalProperties": False} if is_named else {}),
        }
    return [closed(each) for each in value] if isinstance(value, list) else value


def schema_of(document: JsonObject, method: str, path: str, status: int, media_type: str = "application/json"):
    found = document["paths"][path][method.lower()]["responses"][str(status)]["content"][media_type]["schema"]
    return Draft202012Validator({**found, "components": document["components"]})


@pytest.mark.parametrize("app", [proxy_app, pruner_app])
async def test_every_route_is_described(app: Callable[[Runtime], ASGIApp], tmp_path: Path):
    async with running(parse("", {}, tmp_path)) as runtime:
        guard = app(runtime)
    assert isinstance(guard, Guard)
    served = {
        (method.lower(), route.path)
        for route in guard.app.routes
        if isinstance(route, Route) and route.path not in PAGES
        for method in route.methods - {"HEAD"}
    }
    assert served
    assert {(m, p) for m, p in served if not hasattr(next(r for r in guard.app.routes if r.path == p), "spec")} == set()


@dataclass
class LivedIn:
    """A proxy with a session in which a tool result was cut, and what is really answered there."""

    world: World
    document: JsonObject = field(default_factory=dict)
    ids: dict[str, object] = field(default_factory=dict)
    called: set[tuple[str, str]] = field(default_factory=set)

    async def ask(self, turns: int) -> None:
        items: list[Item] = [User(LOG.goal), Assistant("", (Call("call_a1"),)), Result("call_a1", LOG.text)]
        for turn in range(turns):
            items += [Assistant(f"step {turn}: " + "it is done " * 100), User("and then? " * 100)]
        sent = body(Wire.CHAT, items).replace(b'"kimi-k2"', json.dumps(MODEL).encode())
        headers = {"content-type": "application/json", "x-session-id": "mine"}
        answer = await self.world.proxy.http.post("/v1/chat/completions", content=sent, headers=headers)
        assert answer.status_code == 200, answer.text

    async def call(self, method: str, path: str, send: object = None, status: int = 200, query: str = "") -> JsonObject:
        """Call a route with real ids, and compare its answer with the description."""
        url = path.format(**self.ids) + query
        answer = await self.world.proxy.http.request(method, url, **({} if send is None else {"json": send}))
        assert answer.status_code == status, (url, answer.text)
        media_type = answer.headers["content-type"].partition(";")[0]
        found = answer.json() if media_type == "application/json" else {"text": answer.text}
        if media_type == "application/json":
            schema_of(self.document, method, path, status).validate(found)
        self.called.add((method.lower(), path))
        return found


@asynccontextmanager
async def lived_in(home: Path) -> AsyncIterator[LivedIn]:
    async with world(home, SETTINGS, completion()) as w:
        lived = LivedIn(w)
        await lived.ask(0)
        await lived.ask(12)
        (session,) = await w.sessions(2)
        (mask,) = (await w.get("/api/mask"))["masks"]
        document = closed(await w.get("/api/openapi.json"))
        assert isinstance(document, dict)
        lived.document = document
        lived.ids = {"session_id": session["id"], "mask_id": mask["id"], "cut_id": mask["id"], "server_name": "away"}
        yield lived


async def test_what_is_really_answered_is_as_described(tmp_path: Path):
    async with lived_in(tmp_path) as w:
        one = "/api/compress/{session_id}"
        await w.call("POST", one, status=400)
        await w.call("POST", f"{one}/simulate")
        await w.call("POST", one, query="?force=true")
        await w.ask(13)
        context = await w.call("GET", "/api/sessions/{session_id}/context")
        w.ids["index"] = 0
        await w.call("GET", "/api/sessions/{session_id}/context/{index}")
        w.ids["index"] = context["summarized"][0]["index"]
        await w.call("GET", "/api/sessions/{session_id}/context/summarized/{index}")
        await w.call("GET", f"{one}/stats")
        await w.call("POST", f"{one}/undo")
        one = "/api/compaction/{session_id}"
        await w.call("POST", f"{one}/simulate")
        await w.call("POST", one, {"force": True})
        await w.call("GET", f"{one}/stats")
        await w.call("POST", f"{one}/undo")

        await w.call("POST", "/api/playground/prune", PREVIEW)
        await w.call("POST", "/api/show", {"model": MODEL})
        await w.call("POST", "/api/sessions", {"title": "new"}, 201)
        await w.call("PATCH", "/api/sessions/{session_id}", {"title": "renamed"})
        await w.call("PATCH", "/api/settings", {"memory.inject": True})
        await w.call("POST", "/api/memory/save", {"content": "we use tabs"})
        await w.call("POST", "/api/hooks/claude", {"hook_event_name": "PostToolUse"})
        handed = {"role": "tool", "tool_call_id": "call_b", "content": LOG.text}
        done = await w.call("POST", "/v1/compress", {"messages": [{"role": "user", "content": LOG.goal}, handed]})
        w.ids["hash"] = done["ccr_hashes"][0]
        await w.call("POST", "/api/sanitizer/toggle", {})
        for name in ("up", "down", "restart"):
            await w.call("POST", f"/api/mcp/servers/{name}", {"names": []})
        await w.call("POST", "/api/mcp-gateway/{server_name}/rpc", {"jsonrpc": "2.0", "id": 1, "method": "x"}, 502)
        await w.call("POST", "/api/mcp-gateway/{server_name}/mcp", {"jsonrpc": "2.0", "id": 1, "method": "x"}, 502)
        await w.call("POST", "/api/mcp-gateway/rpc", {"jsonrpc": "2.0", "id": 1, "method": "ping"})
        await w.call("POST", "/api/mcp-gateway/mcp", {"jsonrpc": "2.0", "id": 1, "method": "ping"})
        await w.call("GET", "/api/mcp/servers/{server_name}/logs", status=400)
        await w.call("GET", "/api/cuts/search", query="?q=error")
        await w.call("GET", "/api/models", query="?all=true")
        await w.call("GET", "/api/login/start", status=303)
        await w.call("GET", "/api/login/callback", status=303)
        w.ids["name"] = "events"
        await w.call("DELETE", "/api/sessions", {"ids": ["nothing"]})

        is_ours = {
            (method, path)
            for path, methods in w.document["paths"].items()
            for method, described in methods.items()
            if "default" not in described["responses"]
        }
        w.ids |= {"person": "ada", "token_id": "tok_1"}
        for method, path in sorted(OF_A_TEAM):  # there is none here
            sends = {"name": "ada"} if path == "/api/team/people" else {}
            await w.call(method.upper(), path, sends if method == "post" else None, 400)
        deletions = [("delete", f"/api/{what}") for what in ("mask/{mask_id}", "sessions/{session_id}")]
        for method, path in (*sorted(is_ours - w.called - set(deletions)), *deletions):
            await w.call(method.upper(), path)

        assert w.called == is_ours


def read_recordings(home: Path) -> list[str]:
    return [line for file in (home / "recordings").glob("*.jsonl") for line in file.read_text().splitlines()]


async def wait_for_recordings(home: Path, lines: int) -> None:
    async with asyncio.timeout(60):
        while len(read_recordings(home)) < lines:  # noqa: ASYNC110 - a thread writes them
            await asyncio.sleep(0.01)


async def test_events_exports_and_recordings_are_as_their_schemas_say(tmp_path: Path):
    async with lived_in(tmp_path) as w, watching(w.world.proxy.port) as watcher:
        schemas = {name: await w.world.get(f"/api/schemas/{name}") for name in ("events", "export", "recording")}
        await w.ask(13)
        await w.call("POST", "/api/compress/{session_id}", {"force": True})
        await w.call("POST", "/api/compress/{session_id}/undo")
        await w.call("PATCH", "/api/sessions/{session_id}", {"title": "renamed"})
        await w.call("PATCH", "/api/settings", {"memory.inject": True})
        await w.call("POST", "/api/playground/prune", PREVIEW)
        await w.call("POST", "/api/mcp-gateway/{server_name}/rpc", {"jsonrpc": "2.0", "id": 1, "method": "x"}, 502)
        exported = (await w.world.proxy.http.get("/api/export/json")).json()
        await watcher.until("metric_updated")
        await wait_for_recordings(tmp_path, 4)
        recorded = read_recordings(tmp_path)
        await w.call("DELETE", "/api/sessions/{session_id}")
        await watcher.until("session_deleted")
    checks = {name: Draft202012Validator(closed(schema)) for name, schema in schemas.items()}

    for event in watcher.events:
        checks["events"].validate(event)
    checks["export"].validate(exported)
    for line in recorded:
        checks["recording"].validate(json.loads(line))

    assert {"init", "metric", "metric_updated", "memory_metrics_update", "sanitizer_event"} <= set(watcher.types)
    assert {"compression_event", "session_renamed", "session_deleted", "settings_event"} <= set(watcher.types)
    assert len(exported["metrics"]) >= 3
    assert len(recorded) >= 4


async def test_an_event_with_a_field_that_is_not_described_is_found(tmp_path: Path):
    async with world(tmp_path) as w:
        schema = Draft202012Validator(closed(await w.get("/api/schemas/events")))

    gap = {"type": "gap", "seq": 1, "missed": 2}
    assert schema.is_valid(gap)
    assert not schema.is_valid({**gap, "more": 3})
    assert not schema.is_valid({"type": "gap", "seq": 1})


async def test_every_event_of_the_docs_has_a_schema(tmp_path: Path):
    table = (ROOT / "docs" / "http-api.md").read_text().partition("## /ws")[2].partition("\n## ")[0]
    documented = set(re.findall(r"^\| `(\w+)` \|", table, re.M))
    async with world(tmp_path) as w:
        defined = (await w.get("/api/schemas/events"))["$defs"]
    kinds = {
        name for each in defined.values() if "type" in each["properties"] for name in each["properties"]["type"]["enum"]
    }

    assert documented
    assert documented == kinds


@contextmanager
def in_a_thread(home: Path) -> Iterator[tuple[str, JsonObject, dict[str, object]]]:
    """The same proxy in a thread of its own: its address, its description, and ids that exist."""
    ready, ends = threading.Event(), list[Callable[[], object]]()
    found: list[tuple[str, JsonObject, dict[str, object]]] = []

    async def main() -> None:
        stop = asyncio.Event()
        ends.append(lambda: loop.call_soon_threadsafe(stop.set))
        loop = asyncio.get_running_loop()
        async with lived_in(home) as w:
            found.append((f"http://127.0.0.1:{w.world.proxy.port}", w.document, w.ids))
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    try:
        assert ready.wait(60)
        yield found[0]
    finally:
        for end in ends:
            end()
        thread.join(60)
        assert not thread.is_alive()


def without_tuples(value: object) -> object:
    """A schema in which an array of certain types, one after another, is one of any of them.

    schemathesis rewrites `prefixItems` of answers for an older draft, and then refuses what it wrote.
    """
    if isinstance(value, dict):
        others = {key: without_tuples(each) for key, each in value.items() if key not in ("prefixItems", "items")}
        items = {"anyOf": value["prefixItems"]} if "prefixItems" in value else without_tuples(value.get("items"))
        return {**others, **({"items": items} if "items" in value else {})}
    return [without_tuples(each) for each in value] if isinstance(value, list) else value


@contextmanager
def pruner_in_a_thread(home: Path) -> Iterator[tuple[str, JsonObject, dict[str, object]]]:
    """The same of the pruner."""
    with pruner(home) as port:
        address = f"http://127.0.0.1:{port}"
        document = without_tuples(closed(requests.get(f"{address}/api/openapi.json", timeout=60).json()))
        assert isinstance(document, dict)
        yield address, document, {"name": "recording"}


@pytest.mark.parametrize(
    ("server", "examples"), [(in_a_thread, 150), (pruner_in_a_thread, 15)], ids=["proxy", "pruner"]
)
def test_no_request_that_can_be_written_gets_a_server_error_or_an_answer_that_is_not_described(
    server: Callable[[Path], AbstractContextManager[tuple[str, JsonObject, dict[str, object]]]],
    examples: int,
    tmp_path: Path,
):
    # Here, because it takes seconds to load.
    import schemathesis
    from schemathesis import GenerationMode
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks as openapi

    conformance = (
        openapi.status_code_conformance,
        openapi.content_type_conformance,
        openapi.response_schema_conformance,
    )
    checks = [not_a_server_error, *conformance]
    with server(tmp_path) as (address, document, ids), requests.Session() as session:
        schema = schemathesis.openapi.from_dict(document)
        count = 0
        for result in schema.get_all_operations():
            operation = result.ok()
            if "default" in document["paths"][operation.path][operation.method]["responses"]:
                continue  # another server's answer
            real = {name: ids[name] for name in re.findall(r"\{(\w+)\}", operation.path) if name in ids}
            cases = [operation.as_strategy(mode) for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)]
            cases += [operation.as_strategy(path_parameters=real)] if real else []

            @settings(max_examples=300 if IS_DEEP else 4, suppress_health_check=list(HealthCheck))
            @given(st.one_of(cases))
            def conforms(case: schemathesis.Case) -> None:
                nonlocal count
                count += 1
                case.call_and_validate(base_url=address, checks=checks, session=session)

            conforms()
    assert count > examples
