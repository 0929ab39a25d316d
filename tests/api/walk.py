"""Every call that a person can make with another's ids, generated from the routes and the tools that there are.

A new route, field, tool or argument that is not known here fails the walk: say whether it names anything of anyone's.
"""

import base64
import json
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from pydantic import BaseModel
from starlette.routing import BaseRoute
from tests.support.api.watching import MODEL

from kimi_proxy.addons.clouds.routes import CLOUD_ROUTES, COUNTING_ROUTES
from kimi_proxy.addons.code_assist.form import CODE_ASSIST_ROUTES
from kimi_proxy.api.forms import GEMINI_FORMS
from kimi_proxy.api.guard import Guard
from kimi_proxy.api.routing import Access, DescribedRoute, PageRoute, SocketRoute
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.features.tool import AnyTool

SECRET = "zebra-crossing"
LONG = "\n".join(f"INFO step {n} took {n} ms" for n in range(3000)) + f"\nERROR {SECRET} failed\n"
OPTIONS = {
    "max_prune_ratio": 0.9,
    "min_keep_lines": 1,
    "timeout_ms": 30_000,
    "annotate_lines": False,
    "include_markers": True,
}
CALL = {"id": "call_1", "type": "function", "function": {"name": "bash", "arguments": "{}"}}

KIND = re.compile(r"<(\w+)>")  # in a call it stands for an id


# What stands in a path.
PARAMETERS: Mapping[str, Sequence[str]] = {
    "session_id": ("<session>", "<name>"),
    "cut_id": ("<mask>", "<prune>"),
    "mask_id": ("<mask>", "<prune>"),
    "hash": ("<hash>", "<mask>"),
    "server_name": ("pruner",),
    "index": ("0",),
    "model": ("m",),
    "method": ("loadCodeAssist",),
    "project": ("p",),
    "location": ("us-east5",),
    "path": ("index.html",),
    "name": ("events",),
    "person": ("gus",),  # an admin may export and erase anyone: tests/team/test_team.py
    "token_id": ("tok_0123456789abcdef",),
}
OBJECTS: Mapping[str, Sequence[str]] = {
    "/v1/files/": ("<item>", "<item>/content"),
    "/v1/uploads/": ("<item>", "<item>/parts"),
    "/v1/batches/": ("<batch>", "<batch>/cancel"),
    "/v1/audio/": ("speech",),
    "/v1/images/": ("edits",),
    "/v1/messages/batches/": ("<batch>", "<batch>/results", "<batch>/cancel"),
    "/v1internal/operations/": ("<item>",),
    "/v1/responses/": ("<response>", "<response>/input_items", "<response>/cancel", "compact", "input_tokens"),
}
# Fields of queries, bodies and arguments: those that name something, those that must be there, and those that may.
IDS: Mapping[str, Sequence[JsonValue]] = {
    "session": ("<session>",),
    "after": ("<session>",),
    "ids": (["<session>"],),
    "external_session_id": ("<session>", "<name>"),
    "prune_id": ("<prune>", "<mask>"),
    "id": ("<prune>", "<mask>"),
}
WORDS: Mapping[str, JsonValue] = {"q": SECRET, "all": True}
VALUES: Mapping[str, JsonValue] = {
    "title": "mine",
    "name": "mine",
    "content": "mine",
    "enabled": True,
    "text": "a\nb",
    "goal_hint": "x",
    "source_type": "logs",
    "options": OPTIONS,
    "code": "a",
    "query": "x",
    "ranges": [{"start_line": 1, "end_line": 3001}],
    "root": {"reinjection.enabled": False},
    "file_path": "none.txt",
    "command": "true",
}
HARMLESS = frozenset(
    (
        *(
            "limit",
            "tools",
            "before",
            "since",
            "until",
            "timezone",
            "lines",
            "chars",
            "start",
            "end",
            "start_char",
            "end_char",
            "by",
            "days",
            "names",
            "explain",
            "threshold",
            "force",
        ),
        *("always_keep_first_frags", "chunk_overlap_tokens", "include_line_numbers"),
        # Of tools that an agent runs for itself, on its own files.
        *("context_focus_question", "max_tokens", "start_line", "end_line", "around_line", "radius"),
        *("timeout_ms", "cwd", "pattern", "patterns", "path", "glob", "context_lines", "max_matches"),
        *("role", "team", "label"),  # of a person whom an admin adds, of a token of one's own
        *("place", "code", "state", "error", "iss"),  # of a login, whose cookie decides
    )
)


def unknown_like(ids: Mapping[str, str]) -> dict[str, str]:
    """Return ids of the same kinds that nobody has."""

    def unknown(id: str) -> str:
        prefix, _, random = id.rpartition("_")
        return f"{prefix}_{''.join(secrets.choice('0123456789abcdef') for _ in random)}".removeprefix("_")

    return {kind: unknown(id) for kind, id in ids.items()}


def conversation(model: str = MODEL, text: str = LONG) -> JsonObject:
    """One whose long tool result is cut."""
    messages = [
        {"role": "user", "content": f"why does the {SECRET} fail?"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": text},
    ]
    tools = [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}]
    return {"model": model, "messages": messages, "tools": tools}


SHORT: JsonObject = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
ANTHROPIC: JsonObject = {"model": "anthropic-evil/m", "max_tokens": 9, "messages": SHORT["messages"]}
GEMINI: JsonObject = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
_COUNTED = base64.b64encode(json.dumps({"max_tokens": 9, "messages": SHORT["messages"]}).encode()).decode()
RESPONSES: JsonObject = {"model": MODEL, "input": [{"role": "user", "content": "hi"}]}
_HOOK: JsonObject = {"hook_event_name": "PostToolUse", "tool_name": "Bash", "tool_input": {}, "tool_use_id": "t"}

# Bodies that no model describes, by the path of their route.
BODIES: Mapping[str, Sequence[JsonObject]] = {
    **{path: (SHORT, {**SHORT, "metadata": {"session_id": "<session>"}}) for path in ("/chat/completions",)},
    "/v1/chat/completions": (
        *(SHORT, {**SHORT, "metadata": {"session_id": "<session>"}}, {**SHORT, "external_session_id": "<name>"}),
        {**SHORT, "messages": [{"role": "user", "content": "hi [id=<mask>] ⟦PRUNÉ: prune_id=<prune> lignes 1-9⟧"}]},
    ),
    "/v1/messages": (ANTHROPIC, {**ANTHROPIC, "container": "<item>"}),
    "/v1/messages/count_tokens": (ANTHROPIC,),
    **{path: (ANTHROPIC, {**ANTHROPIC, "container": "<item>"}) for path in CLOUD_ROUTES},
    **dict.fromkeys(COUNTING_ROUTES, (ANTHROPIC,)),
    "/model/{model:path}/count-tokens": ({"input": {"invokeModel": {"body": _COUNTED}}},),
    **dict.fromkeys(GEMINI_FORMS, (GEMINI,)),
    **dict.fromkeys(CODE_ASSIST_ROUTES, ({"model": "m", "project": "p", "request": GEMINI},)),
    **dict.fromkeys(("/v1beta/models", "/v1internal:{method}", "/v1internal/operations/{rest:path}"), ({},)),
    "/api/chat": (SHORT,),
    "/api/show": ({"model": MODEL},),
    "/v1/responses": (
        *(RESPONSES, {**RESPONSES, "previous_response_id": "<response>"}, {**RESPONSES, "conversation": "<response>"}),
        {**RESPONSES, "input": [{"type": "item_reference", "id": "<item>"}]},
    ),
    "/v1/completions": ({"model": MODEL, "prompt": "x"},),
    "/v1/embeddings": ({"model": MODEL, "input": "x"},),
    "/v1/moderations": ({"model": MODEL, "input": "x"},),
    "/v1/messages/batches": ({"requests": []},),
    "/v1/messages/batches/{rest:path}": ({},),
    "/v1/responses/{rest:path}": ({**RESPONSES, "previous_response_id": "<response>"},),
    "/api/hooks/claude": ({**_HOOK, "session_id": "<session>", "tool_response": "short"},),
    "/v1/compress": ({"messages": SHORT["messages"], "session_id": "<session>"},),
}
SESSION_HEADERS = ("/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/responses/{rest:path}")
QUERIES: Mapping[str, Sequence[JsonObject]] = {
    "/v1/messages/batches": ({"after_id": "<batch>"}, {"before_id": "<batch>", "limit": 5}),
    "/ws": ({"since": 0},),
}


@dataclass(frozen=True)
class Call:
    """A request, in which `<kind>` stands for ids."""

    route: str
    access: Access
    method: str
    path: str
    query: JsonObject = field(default_factory=dict)
    body: JsonValue = None
    headers: Mapping[str, str] = field(default_factory=dict)
    is_pruner: bool = False

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset(KIND.findall(json.dumps([self.path, self.query, self.body, dict(self.headers)])))

    def about(self, ids: Mapping[str, str]) -> "Call":
        """Return the call with these ids."""
        path, query, body, headers = (
            filled(each, ids) for each in (self.path, self.query, self.body, dict(self.headers))
        )
        return replace(self, path=path, query=query, body=body, headers=headers)  # type: ignore[arg-type]


def calls_of(app: Guard, tools: Mapping[str, AnyTool], is_pruner: bool = False) -> Iterator[Call]:
    """Return the calls of every route of an application; raise if there is something that the walk does not know."""
    routes: Sequence[BaseRoute] = app.app.routes  # type: ignore[attr-defined]
    for route in routes:
        if isinstance(route, SocketRoute):
            continue  # the walk watches them
        assert isinstance(route, DescribedRoute | PageRoute), route
        for method, path in product(sorted((route.methods or set()) - {"HEAD"}), _paths(route.path)):
            call = Call(route.path, route.access, method, path, is_pruner=is_pruner)
            yield from _calls(call, route, tools)


def _calls(call: Call, route: DescribedRoute | PageRoute, tools: Mapping[str, AnyTool]) -> Iterator[Call]:
    spec = route.spec if isinstance(route, DescribedRoute) else None
    queries = [*QUERIES.get(call.route, ({},)), *(_filled(spec.query) if spec and spec.query else ())]
    bodies: Sequence[JsonValue] = [None]
    if call.method in ("POST", "PATCH", "DELETE"):
        bodies = [*_bodies(call, route, tools)] or [None]
    for query, body in product(queries, bodies):
        yield replace(call, query=query, body=body)
    if call.route in SESSION_HEADERS and call.method == "POST":
        for body, id in product(BODIES[call.route][:1], ("<session>", "<name>")):
            yield replace(call, body=body, headers={"x-session-id": id})


def _paths(pattern: str) -> Iterator[str]:
    names = re.findall(r"\{(\w+)(?::\w+)?\}", pattern)
    choices = [OBJECTS[pattern.partition("{")[0]] if name == "rest" else PARAMETERS[name] for name in names]
    for values in product(*choices):
        path = pattern
        for value in values:
            path = re.sub(r"\{\w+(?::\w+)?\}", value, path, count=1)
        yield path


def _bodies(call: Call, route: DescribedRoute | PageRoute, tools: Mapping[str, AnyTool]) -> Iterator[JsonValue]:
    model = route.spec.body if isinstance(route, DescribedRoute) else None
    if call.route.endswith(("/rpc", "/mcp")):
        for name, arguments in tool_calls(tools):
            params: JsonObject = {"name": name, "arguments": arguments}
            yield {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    elif isinstance(model, type) and issubclass(model, BaseModel):
        yield from _filled(model)
    elif model is not None or call.method == "POST":
        known = BODIES.get(call.route)
        assert known is not None or model is None, f"the walk does not know a body for {call.route}: see BODIES"
        yield from known or ()


def tool_calls(tools: Mapping[str, AnyTool]) -> Iterator[tuple[str, JsonObject]]:
    """Return each tool with arguments; raise if it takes one that the walk does not know."""
    for name, tool in tools.items():
        for arguments in _filled(tool.arguments):  # type: ignore[attr-defined]
            yield name, arguments


def filled(value: JsonValue, ids: Mapping[str, str]) -> JsonValue:
    """Return a value with these ids in place of their kinds."""
    text = KIND.sub(lambda found: ids[found[1]], json.dumps(value, ensure_ascii=False))
    known: JsonValue = json.loads(text)
    return known


def _filled(model: type[BaseModel]) -> Iterator[JsonObject]:
    """Return what is required alone, and with each field that names something."""
    names = set(model.model_fields)
    unknown = names - set(IDS) - set(WORDS) - set(VALUES) - HARMLESS
    assert not unknown, f"{model.__name__}: does {unknown} name something of anyone's? Say so in tests/api/walk.py"
    if "root" in names:
        root = VALUES["root"]
        assert isinstance(root, dict)
        yield root
        return
    known = {**WORDS, **VALUES}
    needed = {name: known[name] for name, one in model.model_fields.items() if one.is_required() and name not in IDS}
    if not any(name in IDS and one.is_required() for name, one in model.model_fields.items()):
        yield needed
    for name in sorted(names & (set(IDS) | set(WORDS))):
        for value in IDS.get(name) or (WORDS[name],):
            yield {**needed, name: value}
