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
from kimi_proxy.features.sanitizer.plan import MAX_CHARS, READERS, origin_of

AFTER_TOOL = "PostToolUse"
AFTER_PROMPT = "UserPromptSubmit"
BEFORE_TOOL = "PreToolUse"
# Claude Code is about to ask its user for a permission, or has denied it.
WITHOUT_PERMISSION = ("PermissionRequest", "PermissionDenied")

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
PATH = "/api/hooks/claude"
MATCHER = "Bash|PowerShell|BashOutput|TaskOutput|Grep|WebFetch|Task|Agent|mcp__.*"
MATCHER_WITH_READ = f"Read|{MATCHER}"
TIMEOUT_S = 0.75  # how long a client waits: a server that hangs delays a call by no more
# The tools by which Claude Code's model reads cut text back: of `init`, of `run`, and of our plugin, which cannot write
# a permission: there the hook before the call grants it.
PLUGIN_RECALL = "mcp__plugin_kimi-proxy_pruner__recover_text"
RECALLS = ("mcp__pruner__recover_text", "mcp__kimi-proxy__recover_text", PLUGIN_RECALL)
RECALL_TIMEOUT_S = 5  # without an answer the call is refused


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
            arguments, response = given.get("tool_input"), given.get("tool_response")
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


def claude_items(url: str, with_reads: bool, token_variable: str = "") -> dict[tuple[str, ...], JsonValue]:
    """Return the entries of `hooks` in Claude Code's settings that call the server at `url`."""
    hook: JsonObject = {"type": "http", "url": f"{url}{PATH}", "timeout": TIMEOUT_S}
    if token_variable:
        hook |= {
            "headers": {"Authorization": f"Bearer ${token_variable}"},
            "allowedEnvVars": [token_variable],
        }
    matcher = MATCHER_WITH_READ if with_reads else MATCHER
    recalls: JsonObject = {"matcher": "|".join(RECALLS), "hooks": [{**hook, "timeout": RECALL_TIMEOUT_S}]}
    return {
        ("hooks", AFTER_TOOL): {"matcher": matcher, "hooks": [hook]},
        ("hooks", AFTER_PROMPT): {"hooks": [hook]},
        **{("hooks", name): recalls for name in WITHOUT_PERMISSION},
    }


def plugin_items(url: str) -> dict[tuple[str, ...], JsonValue]:
    """Return the entries of our plugin, whose hook grants its own recall tool."""
    hook: JsonObject = {"type": "http", "url": f"{url}{PATH}", "timeout": RECALL_TIMEOUT_S}
    granting: JsonObject = {"matcher": PLUGIN_RECALL, "hooks": [hook]}
    return {**claude_items(url, with_reads=False), ("hooks", BEFORE_TOOL): granting}


_ASK = """\
// Written by `kimi-proxy init {client} --hooks`; `--undo` removes it.
// What these tools print is cut before the model reads it.
const ADDRESS = "{url}";
const TOOLS = {
{tools}
};

async function ask(event) {
  const token = process.env.KIMI_PROXY_TOKEN;
  const headers = { "Content-Type": "application/json", ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  try {
    const signal = AbortSignal.timeout({timeout_ms});
    const answer = await fetch(ADDRESS, { method: "POST", headers, body: JSON.stringify(event), signal });
    return answer.ok ? await answer.json() : {};
  } catch {
    return {}; // without the server the output stays whole
  }
}

async function cut(tool, session, id, input, text) {
  const answer = await ask({
    hook_event_name: "PostToolUse",
    session_id: session,
    tool_name: tool.name,
    tool_use_id: id,
    tool_input: input ?? {},
    tool_response: tool.wrap(text),
  });
  const updated = answer.hookSpecificOutput?.updatedToolOutput;
  const shorter = updated && tool.unwrap(updated);
  return typeof shorter === "string" ? shorter : text;
}

"""

_TOOL = (
    ("Bash", '({ stdout: text, stderr: "" })', "stdout"),
    ("Grep", '({ mode: "content", content: text })', "content"),
    ("WebFetch", "({ result: text })", "result"),
)

_OPENCODE = """\
export const KimiProxy = async () => ({
  "chat.message": async (input, output) => {
    const texts = (output.parts ?? []).filter((part) => part.type === "text").map((part) => part.text);
    const prompt = texts.join("\\n");
    await ask({ hook_event_name: "UserPromptSubmit", session_id: input.sessionID, prompt });
  },
  "tool.execute.after": async (input, output) => {
    const tool = TOOLS[input.tool];
    if (!tool || typeof output.output !== "string") return;
    output.output = await cut(tool, input.sessionID, input.callID, input.args, output.output);
  },
});
"""

# One of Cline's tools makes several calls at once, each with its own result.
_CLINE = """\
const sessionOf = (snapshot) => snapshot.conversationId ?? snapshot.runId ?? snapshot.agentId;

export default {
  name: "kimi-proxy",
  manifest: { capabilities: ["hooks"] },
  hooks: {
    beforeRun: async ({ snapshot }) => {
      const said = (snapshot.messages ?? []).filter((message) => message.role === "user").at(-1);
      const parts = Array.isArray(said?.content) ? said.content : [{ text: said?.content }];
      const prompt = parts.map((part) => part.text ?? "").join("\\n");
      await ask({ hook_event_name: "UserPromptSubmit", session_id: sessionOf(snapshot), prompt });
    },
    afterTool: async ({ snapshot, toolCall, input, result }) => {
      const tool = TOOLS[toolCall.toolName];
      if (!tool || !Array.isArray(result.output)) return;
      const session = sessionOf(snapshot);
      const shorten = async (one, at) =>
        typeof one?.result === "string"
          ? { ...one, result: await cut(tool, session, `${toolCall.toolCallId}/${at}`, input, one.result) }
          : one;
      return { result: { ...result, output: await Promise.all(result.output.map(shorten)) } };
    },
  },
};
"""


def opencode_plugin(url: str) -> str:
    """Return the text of OpenCode's plugin that calls the server at `url`."""
    return _plugin("opencode", url, ("bash", "grep", "webfetch"), _OPENCODE)


def cline_plugin(url: str) -> str:
    """Return the text of Cline's plugin that calls the server at `url`."""
    return _plugin("cline", url, ("run_commands", "search_codebase", "fetch_web_content"), _CLINE)


def _plugin(client: str, url: str, names: tuple[str, str, str], rest: str) -> str:
    tools = "\n".join(
        f'  {own}: {{ name: "{name}", wrap: (text) => {wrap}, unwrap: (response) => response.{key} }},'
        for own, (name, wrap, key) in zip(names, _TOOL, strict=True)
    )
    text = _ASK.replace("{client}", client).replace("{url}", f"{url}{PATH}").replace("{tools}", tools)
    return text.replace("{timeout_ms}", f"{TIMEOUT_S * 1000:.0f}") + rest
