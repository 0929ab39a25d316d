"""What agents and our server have to agree on for hooks: names of events and of tools, the address, the time."""

AFTER_TOOL = "PostToolUse"
AFTER_PROMPT = "UserPromptSubmit"
BEFORE_TOOL = "PreToolUse"
# Claude Code is about to ask its user for a permission, or has denied it.
WITHOUT_PERMISSION = ("PermissionRequest", "PermissionDenied")
PATH = "/api/hooks/claude"
MATCHER = "Bash|PowerShell|BashOutput|TaskOutput|Grep|WebFetch|Task|Agent|mcp__.*"
MATCHER_WITH_READ = f"Read|{MATCHER}"
TIMEOUT_S = 0.75  # how long a client waits: a server that hangs delays a call by no more
# The tools by which Claude Code's model reads cut text back: of `init`, of `run`, and of our plugin, which cannot write
# a permission: there the hook before the call grants it.
PLUGIN_RECALL = "mcp__plugin_kimi-proxy_pruner__recover_text"
RECALLS = ("mcp__pruner__recover_text", "mcp__kimi-proxy__recover_text", PLUGIN_RECALL)
RECALL_TIMEOUT_S = 5  # without an answer the call is refused
