"""What a session is called and where it works, by the first words of its conversation."""

import re
from collections.abc import Iterator

from kimi_proxy.core.chat import Request

MAX_TITLE_CHARS = 60
MAX_DIRECTORY_CHARS = 300
SCANNED_CHARS = 200_000  # of a system prompt: agents name the directory near its end
MASK = "•••"

# What agents wrap around the words of a person: reminders, the environment, instructions of a project.
_OPENING = re.compile(r"<([a-zA-Z][\w.-]{0,60})(?:\s[^<>]{0,300})?>")
MAX_UNCLOSED = 20  # tags that nothing closes, each looked for to the end of the text; then the rest is taken as it is
_HEADING = re.compile(r"^(?:# AGENTS\.md|#+ (?:Context|Environment|Instructions)\b)", re.IGNORECASE)
_SPACE = re.compile(r"\s+")

_SECRET = re.compile(
    r"\b(?:sk|pk|rk|ghp|gho|ghs|github_pat|glpat|xox[abp]|nvapi|gsk|xai|hf|npm|AKIA|ASIA|AIza)[-_]?[\w-]{12,}"
    r"|\beyJ[\w-]{10,}\.[\w-]+\.?[\w-]*"  # JSON Web Tokens
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*"
    r"|(?<=://)[^\s/:@]+:[^\s/@]+(?=@)"  # user and password of an address
    r"|(?i:(?<=bearer ))\S{8,}"
    r"|(?i:\b(?:pass(?:word|wd)?|secret|token|api[-_ ]?key|pwd)\b\s*(?:is\b|[:=])\s*)\S+"
    r"|(?<![\w+/-])(?=[\w+/-]*\d)(?=[\w+/-]*[A-Za-z])[A-Za-z0-9+/_-]{32,}={0,2}",  # long and random enough
    re.ASCII,
)

_DIRECTORY = re.compile(
    r"<cwd>\s*+(?P<tag>[^<\n]++)\s*+</cwd>"  # Codex
    r"|(?i:working directory)(?:\s++is)?\s*+(?:[:(]\s*+)?[`\"'(]?(?P<line>(?:/|~|[A-Za-z]:\\)[^\n`\"'<>)]*)"
)


def title_of(request: Request) -> str:
    """Return the first words of the person, at most 60 characters, secrets masked; "" if there are none."""
    for message in request.messages:
        if message.role != "user":
            continue
        for part in message.parts:
            words = _words(part.text[:SCANNED_CHARS]) if part.kind == "text" else ""
            if words:
                return _cut(_SECRET.sub(MASK, words))
    return ""


def directory_of(request: Request) -> str:
    """Return the folder in which the agent says it works; "" if it says nothing."""
    for text in _beginnings(request):
        if found := _DIRECTORY.search(text):
            return (found["tag"] or found["line"]).strip()[:MAX_DIRECTORY_CHARS]
    return ""


def _beginnings(request: Request) -> Iterator[str]:
    for part in request.system:
        if part.kind == "text":
            yield part.text[-SCANNED_CHARS:]
    for message in request.messages[:3]:
        for part in message.parts:
            if part.kind == "text":
                yield part.text[:SCANNED_CHARS]


def _words(text: str) -> str:
    """Return a text without what agents wrap around it, on one line; "" if nothing else is there."""
    said = _SPACE.sub(" ", _unwrapped(text)).strip()
    return "" if _HEADING.match(said) else "".join(each for each in said[:2000] if each.isprintable())


def _unwrapped(text: str) -> str:
    """Return a text without its elements such as <system-reminder>…</system-reminder>, in linear time."""
    pieces: list[str] = []
    unclosed: set[str] = set()
    at = 0
    while len(unclosed) <= MAX_UNCLOSED and (opening := _OPENING.search(text, at)):
        tag = opening[1]
        end = -1 if tag in unclosed else text.find(f"</{tag}>", opening.end())
        if end < 0:
            unclosed.add(tag)
            pieces.append(text[at : opening.end()])
            at = opening.end()
        else:
            pieces += (text[at : opening.start()], " ")
            at = end + len(tag) + 3
    return "".join((*pieces, text[at:]))


def _cut(words: str) -> str:
    if len(words) <= MAX_TITLE_CHARS:
        return words
    at = words.rfind(" ", 0, MAX_TITLE_CHARS)
    return f"{words[: at if at > MAX_TITLE_CHARS // 2 else MAX_TITLE_CHARS - 1]}…"
