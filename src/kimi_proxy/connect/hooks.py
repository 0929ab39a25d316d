"""What `init` writes for hooks: entries of Claude Code's settings, and plugins for OpenCode and Cline."""

from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.features.agent_hooks import (
    AFTER_PROMPT,
    AFTER_TOOL,
    BEFORE_TOOL,
    MATCHER,
    MATCHER_WITH_READ,
    PATH,
    PLUGIN_RECALL,
    RECALL_TIMEOUT_S,
    RECALLS,
    TIMEOUT_S,
    WITHOUT_PERMISSION,
)


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
