"""Lines of a log that speak of trouble, and those that only seem to."""

import re

# The contract keeps every line with one of these.
ALWAYS = ("error", "exception", "traceback")
TROUBLE = (
    "fatal", "panic", "failed", "failure", "failing", "critical", "segfault", "segmentation fault", "core dumped",
    "abort", "killed", "not ok ", "npm err!", "cannot ", "could not ", "unable to ", "undefined reference",
    "no such file", "not found", "denied", "refused", "timed out", "timeout", "unreachable", "assert",
    "exit code", "exit status", "exited with", "out of memory", "oomkill", "deadlock", "corrupt", "✗", "✕", "✖",
)  # fmt: skip

_BENIGN = re.compile(
    r"""
    \b(?:0|no|zero|without)\s+(?:\w+\s+)?(?:errors?|failures?|failed|exceptions?|failing)\b
    | \b(?:errors?|failures?|failed|exceptions?)\s*[:=]\s*(?:0\b(?!\.)|\[\s*\]|none\b|null\b|false\b|no\b)
    | \bexit(?:ed)?\s+(?:code|status|with)(?:\s+(?:code|status))?\s*[:=]?\s*0\b
    | \b(?:error|failure|exception|assert)s?[_-](?:log|page|handler|handling|codes?|level|messages?|reporting|rate|budget)\w*
    | \bstderr\b | -Werror | --[\w-]*(?:error|fail|timeout)[\w-]* | \bfail-?safe | \bfail-?fast
    | \bon[_-]?error\b | \bignore[_-]?errors?\b | \berror-prone\b | \bif\s+.{0,40}fail
    | \b(?:retry|retries|timeout)\s*[:=]\s*\d
    """,
    re.VERBOSE | re.IGNORECASE,
)
_STRONG = re.compile(
    r"""
    \b(?:error|fatal|panic|exception|traceback|failed|failure|fail|critical|severe|err!)\b
    | \w(?:Error|Exception)\b | \bnot\s+ok\b | core\ dumped | segmentation\ fault | \bkilled\b
    | exit(?:ed)?\s+(?:code|status|with)(?:\s+(?:code|status))?\s*[:=]?\s*[1-9-]
    """,
    re.VERBOSE | re.IGNORECASE,
)


def is_alert(line: str) -> bool:
    """Whether `line` reports trouble, beyond holding a word for it."""
    rest = _BENIGN.sub(" ", line) if _BENIGN.search(line) else line
    return _STRONG.search(rest) is not None
