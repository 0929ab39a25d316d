"""The gateway's decisions about a call: is it safe, what is its goal, may it be sent now, may its answer be cut.

It also keeps track of each server's earlier calls.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from urllib.parse import unquote, urlsplit

from kimi_proxy.core import mcp
from kimi_proxy.core.addresses import secrets_in
from kimi_proxy.core.config.servers import McpServer
from kimi_proxy.core.errors import CallRefused
from kimi_proxy.core.json import JsonValue
from kimi_proxy.core.jsonrpc import RpcCall
from kimi_proxy.core.markers import rewritten_id
from kimi_proxy.features import recovery

MAX_PATH_CHARS = 4096
GOAL_MAX_CHARS = 280
SMOOTHING = 0.2  # the share of the newest answer in the average latency

# Methods of the protocol itself: their results are read by programs, or shown to the user on request.
_UNTOUCHED = frozenset(
    """
    initialize server/discover ping tools/list prompts/list prompts/get completion/complete resources/list
    resources/templates/list resources/read resources/subscribe resources/unsubscribe logging/setLevel
    """.split()
)
# What our own tools recovered or pruned is not cut again, whichever server offers them.
_OWN_TOOLS = frozenset({recovery.NAME, recovery.SPARE_NAME, "recover_range", "prune_text"})

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_PATH_WORDS = frozenset(
    """
    path paths file files filename filepath dir dirs directory directories folder folders root roots cwd uri uris
    source src destination dest dst target workspace repo repository location
    """.split()
)
_TEXT_WORDS = frozenset(
    """
    content contents text texts pattern patterns query regex search replace replacement old new message description
    prompt thought body code title goal note notes summary comment data value diff patch sql expression
    """.split()
)
_LOOKS_LIKE_PATH = re.compile(r"/(?!/+(?:\s|$))|~|\.\.?[/\\]|file:|[A-Za-z]:\\", re.I)
_WEB = frozenset({"http", "https"})
# They name no place on the disk, or only by a cursor that the server made itself.
_WITHOUT_PATHS = frozenset(
    """
    initialize server/discover ping tools/list prompts/list resources/list resources/templates/list logging/setLevel
    """.split()
)


# What names a secret in a variable, before an argument and in a header that is an argument.
_SECRET_NAME = re.compile(r"key|token|secret|passw|credential|auth", re.I)
_HEADER = re.compile(r"([\w-]+)\s*:\s*(?:(?:bearer|basic)\s+)?", re.I)


def secrets_of(arguments: Sequence[str], env: Mapping[str, str], passed: Sequence[str]) -> tuple[str, ...]:
    """Return the secrets that a program is given, so that they can be taken out of its output.

    The variables that are passed on to it hold nothing else; arguments and its own variables do if their name says so,
    or if they are addresses with a password or a query.
    """
    found = [*passed, *(value for name, value in env.items() if _SECRET_NAME.search(name))]
    before = ""
    for argument in arguments:
        name, sign, value = argument.partition("=")
        if sign and _is_secret_option(name):
            found.append(value)
        elif _is_secret_option(before):
            found.append(argument)
        header = _HEADER.match(argument)
        if header and _SECRET_NAME.search(header[1]):
            found.append(argument[header.end() :])
        before = "" if sign else argument
    for text in (*arguments, *env.values()):
        found += secrets_in(text)
    return tuple(found)


def _is_secret_option(name: str) -> bool:
    return name.startswith("-") and _SECRET_NAME.search(name) is not None


def tool_name(call: RpcCall) -> str:
    """Return the tool that a `tools/call` names, or an empty string."""
    name = call.params.get("name") if call.method == "tools/call" else None
    return name if isinstance(name, str) else ""


def check_call(server: McpServer, call: RpcCall) -> None:
    """Raise CallRefused if the tool is not allowed, or an argument holds a marker in place of its text."""
    name = tool_name(call)
    if server.tools and name not in server.tools:
        raise CallRefused("tool", f"the tool {name[:80]!r} is not allowed for this server")
    marked = None if server.allow_marker_writes else _marker_id(call.params.get("arguments"))
    if marked is None:
        return
    way = f" Call {recovery.NAME} with id {marked!r} to read the original text," if marked else ""
    raise CallRefused(
        "marker",
        "an argument contains a kimi-proxy marker instead of the text behind it: written to a file, "
        f"that text would be lost.{way or ' Read the source again,'} then send the real text.",
    )


def _marker_id(value: JsonValue) -> str | None:
    """Return the id in the first marker that any string of `value` holds, as we wrote it or nearly so."""
    rest: list[JsonValue] = [value]
    while rest:
        item = rest.pop()
        if isinstance(item, str):
            if (found := rewritten_id(item)) is not None:
                return found
        elif isinstance(item, Mapping):
            rest.extend((*item.keys(), *item.values()))
        elif isinstance(item, list):
            rest.extend(item)
    return None


@dataclass(frozen=True, slots=True)
class PathArgument:
    """A path, and the name of its argument."""

    name: str
    path: str


def paths_of(call: RpcCall) -> Iterator[PathArgument]:
    """Yield every path that a message names, whatever its method, also one that we do not know."""
    if call.method in _WITHOUT_PATHS or call.method.startswith("notifications/"):
        return
    named = {key: value for key, value in call.params.items() if key not in ("_meta", "name")}
    match named.get("argument"):
        case {"name": str(name), "value": value}:  # of a completion
            named["argument"] = {name: value}
    yield from path_arguments(named)


def path_arguments(arguments: JsonValue) -> Iterator[PathArgument]:
    """Yield every string that is a path by its argument's name, or looks like one and isn't a text by its name."""
    rest: list[tuple[str, JsonValue]] = [("", arguments)]
    while rest:
        name, value = rest.pop()
        if isinstance(value, str):
            for path in _paths_in(name, value):
                yield PathArgument(name, path)
        elif isinstance(value, Mapping):
            rest.extend((str(key), item) for key, item in value.items())
            rest.extend(("", str(key)) for key in value)  # the name of a member may be a path as well
        elif isinstance(value, list):
            rest.extend((name, item) for item in value)


def is_inside(path: str, root: str) -> bool:
    """Compare part by part: /a/root-evil is not in /a/root. Both are real paths already."""
    return PurePath(path).is_relative_to(root)


def _paths_in(name: str, value: str) -> Iterator[str]:
    """Yield the paths that a server may read in a string, which may cut off blanks, or a scheme that is its own."""
    for spelt in dict.fromkeys((value, value.strip())):
        if _is_path(name, spelt):
            yield _without_scheme(spelt)
    scheme, found, rest = value.strip().partition("://")
    if found and scheme.lower() not in _WEB and ".." in re.split(r"[/\\]", unquote(rest)):
        yield unquote(rest)


def _is_path(name: str, value: str) -> bool:
    word = next(reversed(_WORD.findall(name)), "").lower()
    if word in _PATH_WORDS:
        # An address on the net is no path.
        return "://" not in value or value.lower().startswith("file:")
    is_short = len(value) <= MAX_PATH_CHARS and "\n" not in value
    looks = _LOOKS_LIKE_PATH.match(value) is not None or "/../" in value or value.endswith("/..")
    return is_short and looks and word not in _TEXT_WORDS


def _without_scheme(value: str) -> str:
    if not value.lower().startswith("file:"):
        return value
    try:
        parts = urlsplit(value)
    except ValueError:
        return value
    return unquote(parts.path if parts.netloc in ("", "localhost") else f"//{parts.netloc}{parts.path}")


@dataclass(frozen=True, slots=True)
class CallGoal:
    """The goal of a call, and the file or tool that names its answer."""

    text: str
    source: str


def goal_of(call: RpcCall) -> CallGoal:
    """Return the goal in the call's `_meta`, otherwise the words of its arguments."""
    meta = mcp.meta_of({"params": call.params})
    arguments = call.params.get("arguments")
    given = arguments if isinstance(arguments, Mapping) else {}
    words = [value for value in given.values() if isinstance(value, str) and "\n" not in value]
    stated = next((meta[key] for key in ("goal", "kimi-proxy/goal") if isinstance(meta.get(key), str)), None)
    path = next((argument.path for argument in path_arguments(arguments)), None)
    return CallGoal(str(stated or " ".join(words))[:GOAL_MAX_CHARS], tool_name(call) if path is None else path)


def is_maskable(call: RpcCall) -> bool:
    """Return whether the result of `call` may be shortened."""
    return call.method not in _UNTOUCHED and tool_name(call) not in _OWN_TOOLS


def with_tools_capability(result: JsonValue) -> JsonValue:
    """Return a server's introduction, with tools: our recovery tool is one even where the server has none."""
    capabilities = result.get("capabilities") if isinstance(result, dict) else None
    if not isinstance(result, dict) or not isinstance(capabilities, dict) or "tools" in capabilities:
        return result
    return {**result, "capabilities": {**capabilities, "tools": {}}}


FAILURES_TO_OPEN = 5
FAILURE_HALF_LIFE_S = 30.0
FIRST_PAUSE_S = 5.0
LONGEST_PAUSE_S = 60.0


@dataclass(frozen=True, slots=True)
class CircuitBreaker:
    """Failures that fade with time. Five in quick succession open the circuit; a success closes it."""

    failures: float = 0.0
    counted_at: float = 0.0
    pauses: int = 0
    closed_at: float = 0.0

    def blocked_for(self, now: float) -> float:
        """Return the seconds until the next call may leave; 0 if one may now."""
        return max(0.0, self.closed_at - now)

    def on_try(self, now: float) -> "CircuitBreaker":
        """Return the state while a call is in flight. After a pause, one call goes first and the others wait for it."""
        return self if self.pauses == 0 else replace(self, closed_at=now + FIRST_PAUSE_S)

    def on_failure(self, now: float) -> "CircuitBreaker":
        failures = 1 + self.failures * 0.5 ** (max(0.0, now - self.counted_at) / FAILURE_HALF_LIFE_S)
        # Five failures within a second or two have faded to a little less than five.
        if failures < FAILURES_TO_OPEN - 0.5 and self.pauses == 0:
            return CircuitBreaker(failures, now)
        pause_s = min(FIRST_PAUSE_S * 2.0**self.pauses, LONGEST_PAUSE_S)
        return CircuitBreaker(failures, now, self.pauses + 1, now + pause_s)


CLOSED = CircuitBreaker()


@dataclass(slots=True)
class CallStats:
    """Facts about a server, learned from its traffic."""

    calls: int = 0
    failures: int = 0
    latency_ms: float | None = None
    last_error: str = ""
    last_error_code: str = ""
    last_error_at: float = 0.0
    tools: int | None = None
    masked_texts: int = 0
    masked_chars: int = 0

    def took(self, seconds: float) -> None:
        newest = seconds * 1000
        before = newest if self.latency_ms is None else self.latency_ms
        self.latency_ms = before + SMOOTHING * (newest - before)

    def on_failure(self, code: str, problem: str, at: float) -> None:
        self.last_error_code = code
        self.last_error = problem
        self.last_error_at = at

    def count_masked(self, texts: Iterable[str]) -> None:
        for text in texts:
            self.masked_texts += 1
            self.masked_chars += len(text)
