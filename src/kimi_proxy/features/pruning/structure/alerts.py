"""Words for trouble in logs, and when they mean none."""

import re

# The contract keeps every line with one of these.
ALWAYS = ("error", "exception", "traceback")
# Words that a line about trouble has; others have them too, so they weigh less.
TROUBLE = (
    "fatal", "panic", "fail", "critical", "segfault", "segmentation fault",
    "core dumped", "abort", "killed", "not ok ", "err!", "could not", "couldn't", "unable to", "cannot ",
    "undefined reference", "no such file", "permission denied", "timed out", "exit code", "exit status",
    "exited with", "out of memory", "assertion", "unhandled", "deadlock", "corrupt", "short test summary",
    "✗", "✕", "✖", "✘",
)  # fmt: skip

# Names that hold a word for trouble.
_NAMES = (
    "stderr", "-werror", "error_log", "error.log", "errorlog", "error_handler", "errorhandler", "error-handler",
    "error_page", "error_reporting", "error_level", "errorlevel", "onerror", "on_error", "on-error", "error-prone",
    "errorprone", "error_prone", "ignore_errors", "ignore-errors", "if error", "continue-on-error", "failsafe",
    "fail-safe", "fail-fast", "failfast", "failover", "fail2ban", "failure_domain", "--fail", "no-fail", "lasterror",
    "nothrow",
    "uncaughtexception handler", "set -e", "error rate", "error budget",
)  # fmt: skip
_NOTHING = re.compile(
    r"\b(?:0|no|zero|without|any)\s+(?:\w+\s+)?(?:errors?|failures?|failed|exceptions?|failing|fatal)\b"
    r"|\b(?:errors?|failures?|failed|exceptions?|failing|fatal)\s*[:=]\s*(?:0\b(?!\.)|\[\]|none\b|null\b|false\b)"
    r"|\bexit(?:ed)?\s(?:code|status|with)(?:\s(?:code|status))?\s?[:=]?\s?0\b"
)
_NOTHING_SIGNS = ("0", "no ", "zero", "without", "none", "null", "[]", "false", "any ")


def means_trouble(low: str) -> bool:
    """Whether a line in lower case with a word for trouble still has one once names and zeros are taken out."""
    if any(sign in low for sign in _NOTHING_SIGNS):
        low = _NOTHING.sub("", low)
    for name in _NAMES:
        if name in low:
            low = low.replace(name, "")
    return any(word in low for word in ALWAYS) or any(word in low for word in TROUBLE)
