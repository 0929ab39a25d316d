"""Requests in which Claude Code's auto mode asks a model whether an action is safe."""

from kimi_proxy.core.chat import Request
from kimi_proxy.core.errors import Reason

SAFETY_CHECK: Reason = "safety_check"
TITLE = "Safety checks of auto mode"
CHECK_TOKENS = 35_000  # about, of one check: its rules alone have 141,000 characters in 2.1.328

# How its instructions begin, in 2.1.278 as in 2.1.328.
_OPENING = "You are a security monitor for autonomous AI coding agents."


def is_safety_check(request: Request) -> bool:
    if request.tool_names or _OPENING.encode() not in request.body:
        return False
    return any(part.text.startswith(_OPENING) for part in request.system if part.kind == "text")
