"""The headers that are passed on: from a client to its provider, and back."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

from kimi_proxy.core.caller import LOCAL, Caller
from kimi_proxy.core.chat import Wire
from kimi_proxy.core.config.providers import is_key_of

Header: TypeAlias = tuple[bytes, bytes]

TEAM_TOKEN = b"kpt_"  # how the token of a person begins

CREDENTIALS = frozenset({b"authorization", b"x-api-key", b"api-key", b"x-goog-api-key"})

# A client signs for our address and with its own keys: none of that is useful to a provider.
SIGNATURE = b"AWS4-HMAC-"
_SIGNED = frozenset({b"x-amz-date", b"x-amz-security-token", b"x-amz-content-sha256"})

# RFC 9110: they speak of one connection, and we have two.
_HOP_BY_HOP = frozenset(
    b"""
    connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding
    upgrade
    """.split()
)
# Set again for the provider, or private to the client.
_BETWEEN_US = frozenset(
    b"""
    host content-length content-encoding accept-encoding expect cookie origin referer forwarded via x-real-ip
    x-session-id
    """.split()
)
_BETWEEN_US_PREFIXES = (b"x-forwarded-", b"sec-", b"access-control-", b"x-kimi-proxy-")

# A provider's response headers. A browser would act on some of the others on our behalf.
_ANSWERED = frozenset(
    # Codex compares the `etag` of its model catalogue with what later answers name.
    (b"content-type", b"content-encoding", b"content-length", b"content-language", b"cf-ray", b"etag")
)
_ANSWERED_PREFIXES = (b"x-", b"retry-after", b"request-id", b"openai-", b"anthropic-", b"ratelimit")
_OURS = frozenset({b"x-content-type-options", b"x-accel-buffering", b"x-frame-options"})


def pass_any(credential: str) -> bool:
    """Return True: the client's key may be sent to any destination."""
    return True


def to_provider(
    headers: Iterable[Header], key: Header | None, token: str | None, may_pass: Callable[[str], bool] = pass_any
) -> Iterator[Header]:
    """Return the client's headers.

    Its credentials pass only where the provider has no key of ours, and may have them; our token never does.
    """
    headers = list(headers)
    named = _named_by_connection(headers)
    for name, value in headers:
        if name in _HOP_BY_HOP or name in named or name in _BETWEEN_US or name.startswith(_BETWEEN_US_PREFIXES):
            continue
        if name in _SIGNED or (name == b"authorization" and value.startswith(SIGNATURE)):
            continue
        if name in CREDENTIALS and (key is not None or _is_token(value, token) or not may_pass(_bare(value))):
            continue
        yield name, value
    if key is not None:
        yield key


def to_client(headers: Iterable[Header]) -> list[Header]:
    lower = [(name.lower(), value) for name, value in headers]
    named = _named_by_connection(lower) | _HOP_BY_HOP | _OURS
    return [(name, value) for name, value in lower if name not in named and _is_answer(name)]


def value_of(headers: Iterable[Header], name: bytes) -> bytes:
    return next((value for key, value in headers if key == name), b"")


def is_form(headers: Iterable[Header]) -> bool:
    """Return whether a body is a form, which may have files in it."""
    return value_of(headers, b"content-type").lower().startswith(b"multipart/form-data")


def retry_after_s(headers: Iterable[Header]) -> float | None:
    """Return how long a provider asks to wait; None if it does not say, or names a date."""
    named = dict(headers)
    for name, unit_s in ((b"retry-after-ms", 0.001), (b"retry-after", 1.0)):
        if name in named:
            with suppress(ValueError):
                return max(0.0, float(named[name]) * unit_s)
    return None


def credential(headers: Iterable[Header], token: str | None) -> str:
    """Return the client's own key for its provider; "" if it sent none, or only our token."""
    for name, value in headers:
        if value.startswith(SIGNATURE):
            continue
        if name in CREDENTIALS and value.strip() and not _is_token(value, token):
            return _bare(value)
    return ""


def _bare(value: bytes) -> str:
    """Return the key in a header, without its scheme."""
    scheme, _, rest = value.strip().partition(b" ")
    return (rest.strip() if scheme.lower() == b"bearer" else value.strip()).decode("latin-1")


def is_own_key(name: str, headers: Iterable[Header], token: str | None, on_demand: Collection[str]) -> bool:
    """Return whether a client's own key is sent to this provider instead of ours.

    For a provider that no file names, it is: a key in the environment must not switch a subscription to per-token
    billing.
    """
    return name in on_demand and is_key_of(name, credential(headers, token))


def _is_answer(name: bytes) -> bool:
    return name in _ANSWERED or (name.startswith(_ANSWERED_PREFIXES) and not name.startswith(b"x-kimi-proxy-"))


def _named_by_connection(headers: Collection[Header]) -> frozenset[bytes]:
    values = [value for name, value in headers if name == b"connection"]
    return frozenset([name.strip().lower() for value in values for name in value.split(b",")])


def _is_token(credentials: bytes, token: str | None) -> bool:
    whole = credentials.strip()
    bare = credentials.partition(b" ")[2].strip()
    if whole.startswith(TEAM_TOKEN) or bare.startswith(TEAM_TOKEN):
        return True
    return token is not None and token.encode() in (whole, bare)


# Returns the headers of a signature for a method, an address and a body.
Sign = Callable[[str, str, bytes], Awaitable[list[tuple[str, str]]]]


@dataclass(frozen=True, slots=True)
class UpstreamRequest:
    wire: Wire
    body: bytes
    headers: tuple[Header, ...] = ()  # the client's
    query: str = ""  # the client's too
    path: str = ""  # of ours, where it is not that of questions, such as /v1/messages/count_tokens
    method: str = "POST"
    caller: Caller = LOCAL  # the provider it is meant for
    cloud: str = ""  # the one whose API the client called: bedrock, vertex, or none
    sign: Sign | None = None  # of a provider that takes a signature where there is no key
    address: str = ""  # what follows the provider's `base_url`, where that names the model; else the path decides
