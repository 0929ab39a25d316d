"""What is fuzzed: each takes any bytes, raises only what it may, and keeps its promises."""

import asyncio
import atexit
import json as plain
import os
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from shutil import rmtree
from urllib.parse import unquote

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from tests.support.fakes import MemoryFacts, MemoryOriginals

from kimi_proxy.addons.hooks import events as hooks
from kimi_proxy.addons.translation.translations import TRANSLATIONS
from kimi_proxy.api.guard import Guard, Rules, cookie_in
from kimi_proxy.assembly.apps import proxy_app
from kimi_proxy.assembly.runtime import Runtime, running
from kimi_proxy.connect.client_files import put_block, remove_block
from kimi_proxy.core import json, jsonrpc
from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.chat import Wire, edit, parse
from kimi_proxy.core.chat.reply import EventSplitter, ReplyReader
from kimi_proxy.core.config import parse as parse_config
from kimi_proxy.core.config.servers import MaskingSettings
from kimi_proxy.core.errors import (
    FileRefused,
    InvalidRequest,
    KimiProxyError,
    ParseError,
    ToolFailed,
    UpstreamUnreadable,
)
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.core.markers import MaskMarker, PruneMarker, is_id, quoted_id, quoted_ids, read, read_mask, rewritten_id
from kimi_proxy.core.sse import SseEvent, SseParser
from kimi_proxy.features import gateway, masking
from kimi_proxy.features.chat.pipeline import Draft
from kimi_proxy.features.completions import ChatDialect
from kimi_proxy.features.editing import jsonc, toml
from kimi_proxy.lab.transcripts.places import read_lines
from kimi_proxy.proxy.files import Workspace, workspace
from kimi_proxy.services.chat.facts import ChatFacts
from kimi_proxy.services.chat.messages import Messages
from kimi_proxy.services.chat.notes import Notes
from kimi_proxy.services.chat.requests import LocalSessions
from kimi_proxy.services.recover import Recovery
from kimi_proxy.team.report import columns

LIMITS = MaskingSettings(max_chars=40, head_chars=12, tail_chars=9)
TOOLS = ("Bash", "Read", "Task", "mcp__s__t", "WebFetch", "x")  # whose responses hooks read
METHODS = ("GET", "POST", "DELETE", "PUT", "HEAD")
ADMIN_ROOTS = ("/api/team/", "/api/audit-log")
TEAM_ROOTS = (*ADMIN_ROOTS, "/api/me", "/api/report", "/api/login", "/api/logout")
VALUE: JsonValue = {"command": "kimi-proxy", "args": ["é", 1, None]}


def sse(data: bytes) -> None:
    """Events are the same however the bytes are cut, and no byte of a stream is lost on its way through."""
    whole, halved, parser = SseParser(), list[SseEvent](), SseParser()
    events = list(whole.feed(data))
    for at in range(0, len(data), 1 + len(data) % 7):
        halved += parser.feed(data[at : at + 1 + len(data) % 7])
    assert halved == events
    assert parser.waiting_bytes <= len(data)
    splitter = EventSplitter()
    pieces = [piece for at in range(0, len(data), 5) for piece in splitter.feed(data[at : at + 5])]
    assert b"".join((*pieces, splitter.rest())) == data
    for wire in Wire:
        reader = ReplyReader(wire, is_stream=True)
        reader.feed(data)
        reader.facts  # noqa: B018 - whatever came, it can be asked for


def json_rpc(data: bytes) -> None:
    """What is read of a message is what the standard library reads; views and edits keep every other byte."""
    try:
        value = json.decode_deep(data)
    except ParseError:
        value = None
    else:
        assert json.decode_deep(json.encode(value)) == value or b"e" in data.lower()  # a number may be infinite
        assert json.is_json(data.decode()) is True
    try:
        call = jsonrpc.read(value)
    except InvalidRequest:
        call = None
    if call is not None:
        list(gateway.paths_of(call))
        gateway.is_maskable(call)
        gateway.goal_of(call)
    try:
        for message in jsonrpc.messages(data, "s"):
            jsonrpc.answers(message, 1)
    except UpstreamUnreadable:
        pass
    for wire in Wire:
        try:
            request = parse(data, wire)
            request.messages, request.system, request.tool_names, request.is_kept  # noqa: B018
            [part.text for message in request.messages for part in message.parts]
        except KimiProxyError:
            continue
        renamed = edit.with_model(request, "another/model")
        assert parse(renamed.body, wire).model == "another/model"
        assert edit.with_model(renamed, request.model).body == _with_model(request.body, request.model, renamed.body)


def _with_model(body: bytes, model: str, renamed: bytes) -> bytes:
    """Return the body as it has to be once its model has its name back: only the spelling of the name may differ."""
    before, _, after = renamed.partition(b'"another/model"')
    assert body.startswith(before) and body.endswith(after)
    return before + json.encode(model) + after


def markers(data: bytes) -> None:
    """A marker is found as it was written, and nothing that is found is more than a marker can be."""
    text = data.decode("utf-8", "surrogatepass") if _is_text(data) else data.decode("latin-1")
    for line in text.split("\n"):
        marker = read(line)
        if marker is not None:
            assert marker.prune_id and marker.count == marker.end - marker.start + 1
            assert read(str(marker)) == PruneMarker(marker.prune_id, marker.start, marker.end, marker.reason)
    mask = read_mask(text)
    if mask is not None:
        assert read_mask(str(mask)) == mask or not mask.mask_id
    assert all(map(is_id, quoted_ids(text)))
    assert (quoted_id(text) is None) or rewritten_id(text) is not None
    ours = str(MaskMarker("msk_0123456789abcdef", 100, 10, 10))
    assert "msk_0123456789abcdef" in quoted_ids(f"{ours}{text}") or mask is not None


def masked_values(data: bytes) -> None:
    """Masking hides only inside of strings, never makes a value longer, and what it hides comes back."""
    try:
        value = json.decode_deep(data)
    except ParseError:
        value = data.decode("latin-1")
    plan = masking.plan(value, LIMITS)
    shown = {cut.text: cut.render(f"msk_{at:016d}") for at, cut in enumerate(plan.cuts)}
    hidden = masking.apply(plan, shown)
    assert masking.apply(plan, {}) is value
    assert sum(map(len, _strings(hidden))) <= sum(map(len, _strings(value)))
    assert _shape(hidden) == _shape(value)
    for text, short in shown.items():
        marker = read_mask(short)
        assert marker is not None and marker.original_chars == len(text) and len(short) < len(text)
    for before, after in zip(_strings(value), _strings(hidden), strict=True):
        assert after == before or len(after) < len(before)
        assert not json.is_json(before) or json.is_json(after) or before[:1] not in "{["


@cache
def _workspace() -> tuple[Workspace, Path]:
    base = Path(os.path.realpath(tempfile.mkdtemp(prefix="kimi-proxy-fuzz-")))
    root = base / "root"
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "file.py").write_text("inside\n")
    (base / "secret").write_text("outside\n")
    (root / "out").symlink_to(base)
    (root / ".env").write_text("denied\n")
    return workspace(root, [root], denied_names=[".env"]), base


def paths(data: bytes) -> None:
    """No path leads out of the root, whatever it is made of."""
    here, base = _workspace()
    path = data.decode("utf-8", "surrogateescape")
    try:
        real = here.real(path)
        assert real.is_relative_to(base / "root")
        with here.open_file(path) as fd:
            assert os.read(fd, 100) == b"inside\n"
    except ToolFailed:
        pass
    call = jsonrpc.RpcCall("tools/call", {"name": "read", "arguments": {"path": path}}, 1, False)
    assert any(argument.name == "path" for argument in gateway.paths_of(call)) or not path.strip() or "://" in path


def transcripts(data: bytes) -> None:
    """Whatever a session file holds, it is read as far as it goes."""
    for session in read_lines(data.splitlines(keepends=True), "a/session.jsonl"):
        assert session.requests is not None
    for line in data.split(b"\n")[:20]:
        for start in (b'{"type":"user","sessionId":"s","uuid":"u","message":', b'{"type":"x","payload":', b'{"role":'):
            list(read_lines([start + line + b"}"], "a/session.jsonl"))
        for first, start in (
            (b'{"type":"session","cwd":"/"}', b'{"type":"message","message":'),
            (b'{"projectHash":"h","sessionId":"s"}', b'{"id":"g","type":"gemini","toolCalls":'),
        ):
            list(read_lines([first, start + line + b"}"], "a/session.jsonl"))


def config_files(data: bytes) -> None:
    """What we add to a file of settings can be taken out again, and all else means what it meant."""
    text = data.decode("utf-8", "replace")
    _edit_jsonc(text)
    _edit_toml(text)
    assert remove_block(put_block(text, "ours: 1\n")).strip() == text.strip()


def _edit_jsonc(text: str) -> None:
    path = ("mcpServers", "kimi-proxy")
    try:
        before = jsonc.load(text)
        added = jsonc.put(text, path, VALUE)
    except FileRefused:
        return
    assert jsonc.get(added, path) == VALUE
    assert _without(jsonc.load(added), path) == _without(before, path)
    assert _without(jsonc.load(jsonc.remove(added, path)), path) == _without(before, path)


def _edit_toml(text: str) -> None:
    path = ("mcp_servers", "kimi-proxy")
    try:
        before = toml.load(text)
        added = toml.merge(text, path, {"command": "kimi-proxy", "args": ["é"]})
        after = tomllib.loads(added)
    except FileRefused:
        return
    assert _at(after, path) == {**_table(_at(before, path)), "command": "kimi-proxy", "args": ["é"]}
    assert _without(after, path) == _without(before, path)


def translation(data: bytes) -> None:
    """A request is translated in the same bytes again or refused by name; any answer leads to JSON and to events."""
    given = _object(data)
    for translate in TRANSLATIONS.values():
        try:
            made = translate(given, ChatDialect())
        except KimiProxyError:
            continue
        assert json.encode(translate(given, ChatDialect()).request) == json.encode(made.request)
        with suppress(KimiProxyError):
            json.decode_deep(json.encode(made.answer(given)))
        json.decode_deep(json.encode(made.error(400, data)))
        events = made.events()
        with suppress(KimiProxyError):
            for at in range(0, len(data), 11):
                events.feed(data[at : at + 11])
            events.end()


def hook_events(data: bytes) -> None:
    """Whatever an agent gives to a hook is read; the texts that may be cut are in its tool's response."""
    given = _object(data)
    for event in (given, *({**given, "hook_event_name": "PostToolUse", "tool_name": tool} for tool in TOOLS)):
        for steps, text in hooks.parse(event).texts:
            place: object = event.get("tool_response")
            for step in steps:
                assert isinstance(place, dict | list)
                place = place[step]  # type: ignore[call-overload]
            assert place == text


def compressed_messages(data: bytes) -> None:
    """Messages of another gateway come back as many as they were, and as they were where nothing is cut."""

    async def keep_whole(draft: Draft) -> Draft:
        return draft

    given = _object(data)
    stage = Messages(
        (keep_whole,),
        LocalSessions().find,
        Recovery(MemoryOriginals()),
        ChatFacts(Notes(MemoryFacts())),
        lambda stage, error: None,
    )
    model, session = (value if isinstance(value := given.get(key), str) else "" for key in ("model", "session_id"))
    with suppress(KimiProxyError):
        done = asyncio.run(stage.shorten(LOCAL, given.get("messages"), model, session))
        assert done.messages == given.get("messages")
        assert done.tokens_before == done.tokens_after
    with suppress(KimiProxyError):
        asyncio.run(stage.original(LOCAL, data.decode("latin-1")))


def access(data: bytes) -> None:
    """No head lets anyone in who has no token, and none is an error of ours."""
    head, _, body = data.partition(b"\n\n")
    pairs = (line.partition(b":") for line in head.split(b"\n"))
    headers = [(name.strip().lower(), value.strip()) for name, _, value in pairs]
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError("it came in without a token")

    scope = {"type": "http", "method": "POST", "path": "/api/report", "server": ("127.0.0.1", 8000), "headers": headers}
    with suppress(ValueError):  # httptools refuses a length that is no number before we see it
        for name, value in headers:
            if name == b"content-length":
                int(value)
        asyncio.run(Guard(app, Rules(token="x" * 32))(scope, receive, send))
        assert sent[0]["status"] in (400, 401, 403, 408, 413, 415, 421)
    cookie_in(headers, "kimi")
    with suppress(KimiProxyError):
        assert columns(data.decode("latin-1"))


@dataclass(frozen=True)
class _Team:
    """A server with a team of one member, and what runs it."""

    app: ASGIApp
    runtime: Runtime
    token: bytes  # the member's
    runner: asyncio.Runner
    alive: AsyncExitStack  # the server ends with it


@cache
def _team() -> _Team:
    home, runner = tempfile.mkdtemp(), asyncio.Runner()
    atexit.register(rmtree, home, ignore_errors=True)
    # It runs until the process ends: what it waits for then is no fault.
    runner.get_loop().set_exception_handler(lambda loop, context: None)
    config = parse_config("[team]\nenabled = true\n", {"KIMI_PROXY_TOKEN": "x" * 32}, Path(home))

    async def begin() -> _Team:
        alive = AsyncExitStack()
        runtime = await alive.enter_async_context(running(config))
        assert runtime.team is not None
        added = await runtime.team.people.add(LOCAL, "ada")
        return _Team(proxy_app(runtime), runtime, added.token.encode(), runner, alive)

    return runner.run(begin())


def team_routes(data: bytes) -> None:
    """Whatever a member sends, the team stays as it is, admin routes refuse it, and nothing is an error of ours."""
    line, _, body = data.partition(b"\n")
    method, _, target = line.decode("latin-1").partition(" ")
    path, _, query = target.partition("?")
    if method not in METHODS or not path.startswith(TEAM_ROOTS):
        return
    world = _team()
    headers = [(b"host", b"127.0.0.1:8000"), (b"authorization", b"Bearer " + world.token)]
    headers += [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))] if body else []
    scope = {"type": "http", "method": method, "path": unquote(path), "query_string": query.encode("latin-1")}
    heard: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
    sent: list[Message] = []

    async def receive() -> Message:
        return heard.pop() if heard else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    async def ask() -> list[tuple[str, str]]:
        await world.app({**scope, "headers": headers, "server": ("127.0.0.1", 8000)}, receive, send)
        assert world.runtime.team is not None
        return [(one.name, one.role) for one in await world.runtime.team.people.list()]

    assert world.runner.run(ask()) == [("ada", "member")]
    assert sent[0]["status"] < 500
    assert not unquote(path).startswith(ADMIN_ROOTS) or sent[0]["status"] >= 400


def _object(data: bytes) -> JsonObject:
    try:
        value = json.decode(data)
    except ParseError:
        value = None
    return value if isinstance(value, dict) else {}


def _table(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _at(value: object, path: tuple[str, ...]) -> object:
    for key in path:
        value = _table(value).get(key)
    return value


def _without(value: object, path: tuple[str, ...]) -> object:
    """Return a value without what is at a path, and without the objects around it that are empty then."""
    if not isinstance(value, Mapping):
        return value
    key, *rest = path
    inner = _without(value.get(key), tuple(rest)) if rest else None
    others = {name: item for name, item in value.items() if name != key}
    return others if not inner else {**others, key: inner}


def _is_text(data: bytes) -> bool:
    try:
        data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True


def _shape(value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        return {key: _shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_shape(item) for item in value]
    return "text" if isinstance(value, str) else plain.dumps(value)


def _strings(value: JsonValue) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for item in items:
        yield from _strings(item)


TARGETS = {
    "sse": sse,
    "json_rpc": json_rpc,
    "markers": markers,
    "masking": masked_values,
    "paths": paths,
    "transcripts": transcripts,
    "config_files": config_files,
    "translation": translation,
    "hooks": hook_events,
    "compress": compressed_messages,
    "access": access,
    "team_routes": team_routes,
}
