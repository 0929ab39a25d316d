"""Claude Code's hook input, and the answer that replaces a tool's output before the model reads it.

Tested with 2.1.197 and 2.1.325: Claude Code accepts an answer with the shape of `tool_response`, and ignores any other
(a plain string, except for MCP tools). Failures have a separate event, whose answer replaces nothing.

OpenCode and Cline have plugins that can change a tool result: ours call the server with the shapes of Claude Code's
tools. Files are not cut, because the agent may edit them next.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kimi_proxy.core import json
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.core.prune import Origin
from kimi_proxy.features.agent_hooks import AFTER_PROMPT, AFTER_TOOL, BEFORE_TOOL, PLUGIN_RECALL, WITHOUT_PERMISSION
from kimi_proxy.features.sanitizer.plan import MAX_CHARS, READERS, origin_of

Steps = tuple[str | int, ...]  # to a string in a JSON value

# Where the text is that the model reads. What other tools answer is not shown to it, or is short.
_TEXTS: Mapping[str, tuple[Steps, ...]] = {
    "Bash": (("stdout",), ("stderr",)),
    "PowerShell": (("stdout",), ("stderr",)),
    "Grep": (("content",),),
    "WebFetch": (("result",),),
    "TaskOutput": (("task", "output"),),
    "BashOutput": (("stdout",), ("stderr",)),
    "Read": (("file", "content"),),
}
_REPORTS = ("Task", "Agent")  # a list of content blocks below `content`
MCP_PREFIX = "mcp__"


@dataclass(frozen=True, slots=True)
class HookEvent:
    """One call of a hook; `texts` are those that may be cut, by their place in `response`."""

    name: str
    session: str
    prompt: str = ""
    call_id: str = ""
    origin: Origin = field(default_factory=Origin)
    response: JsonValue = None
    texts: tuple[tuple[Steps, str], ...] = ()

    @property
    def is_read(self) -> bool:
        """Return whether a file was read: its rows are numbered after the hook, so only its end may be cut."""
        return self.origin.tool.lower() in READERS


def parse(given: JsonObject) -> HookEvent:
    """Return the event. Missing or mistyped fields are empty: there is then nothing to cut."""
    match given:
        case {"hook_event_name": "UserPromptSubmit", "prompt": str(prompt)}:
            return HookEvent(AFTER_PROMPT, _session(given), prompt[: 4 * MAX_CHARS])
        case {"hook_event_name": "PostToolUse", "tool_name": str(tool)}:
            arguments = given.get("tool_input")
            response = given.get("tool_response")
            return HookEvent(
                AFTER_TOOL,
                _session(given),
                call_id=str(given.get("tool_use_id", "")),
                origin=origin_of(tool, json.encode(arguments).decode()),
                response=response,
                texts=tuple(_texts(tool, response)),
            )
        case {"hook_event_name": str(name), "tool_name": str(tool)} if name in (BEFORE_TOOL, *WITHOUT_PERMISSION):
            return HookEvent(name, _session(given), origin=Origin(tool))
    return HookEvent("", _session(given))


def _session(given: JsonObject) -> str:
    session = given.get("session_id")
    return session if isinstance(session, str) else ""


def _texts(tool: str, response: JsonValue) -> Iterator[tuple[Steps, str]]:
    for steps in _places(tool, response):
        text = _at(response, steps)
        if isinstance(text, str) and text:
            yield steps, text


def _places(tool: str, response: JsonValue) -> Iterator[Steps]:
    if tool.startswith(MCP_PREFIX) and isinstance(response, str):
        yield ()
    elif tool.startswith(MCP_PREFIX) and isinstance(response, list):
        yield from _blocks(response, ())
    elif tool in _REPORTS and isinstance(response, Mapping):
        yield from _blocks(response.get("content"), ("content",))
    else:
        yield from _TEXTS.get(tool, ())


def _blocks(blocks: JsonValue, before: Steps) -> Iterator[Steps]:
    for at, block in enumerate(blocks if isinstance(blocks, list) else ()):
        if isinstance(block, Mapping) and block.get("type") == "text":
            yield (*before, at, "text")


def _at(value: JsonValue, steps: Steps) -> JsonValue:
    for step in steps:
        if isinstance(value, Mapping):
            value = value.get(str(step))
        elif isinstance(value, list) and isinstance(step, int):
            value = value[step]
        else:
            return None
    return value


def replace_texts(response: JsonValue, texts: Sequence[tuple[Steps, str]]) -> JsonValue:
    """Return `response` with these texts replaced, and everything else unchanged."""
    for steps, text in texts:
        response = _with(response, steps, text)
    return response


def _with(value: JsonValue, steps: Steps, text: str) -> JsonValue:
    if not steps:
        return text
    step, *deeper = steps
    if isinstance(value, Mapping):
        return {key: _with(one, tuple(deeper), text) if key == step else one for key, one in value.items()}
    if isinstance(value, list):
        return [_with(one, tuple(deeper), text) if at == step else one for at, one in enumerate(value)]
    return value


def answer(response: JsonValue) -> JsonObject:
    """Return the hook's answer that puts `response` in place of the tool's."""
    return {"hookSpecificOutput": {"hookEventName": AFTER_TOOL, "updatedToolOutput": response}}


def permission(event: HookEvent) -> JsonObject:
    """Return the hook's answer before a call: our plugin's recall tool is granted, and no other."""
    if event.origin.tool != PLUGIN_RECALL:
        return {}
    return {"hookSpecificOutput": {"hookEventName": BEFORE_TOOL, "permissionDecision": "allow"}}
