"""Which conversation a request belongs to."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b

from kimi_proxy.core.chat import Part, Request
from kimi_proxy.core.chat.page import object_of, string_of

MAX_ID_CHARS = 200

# Codex names its conversation in `session_id`; it begins each of them with the same words.
_HEADERS = (b"x-session-id", b"session_id", b"session-id", b"conversation_id")
_FAMILY = re.compile(r"[a-z]+")
# Claude Code begins its system prompt with a line that differs in every request.
_FICKLE = b'"x-anthropic-billing-header'


@dataclass(frozen=True, slots=True)
class Session:
    """A conversation, by the name that its client gives it or by what it began with."""

    id: str
    is_named: bool = False


def session_of(request: Request, headers: Mapping[bytes, bytes], provider: str) -> Session:
    """Two clients never share one because they talk at the same time, only because they say that they do."""
    named = _named(request, headers)
    return Session(named, True) if named else Session(_fingerprint(request, provider))


def family(model: str) -> str:
    """`moonshotai/kimi-k2.5` is a kimi: a conversation may go on with a larger sibling."""
    found = _FAMILY.match(model.rpartition("/")[2].lower())
    return found[0] if found else model


def _named(request: Request, headers: Mapping[bytes, bytes]) -> str:
    members = request.page.members
    metadata = object_of(members.get("metadata"))
    said = (headers.get(name, b"").decode("latin-1") for name in _HEADERS)
    told = (string_of(raw) for raw in (metadata.get("session_id"), members.get("external_session_id")))
    return next((name[:MAX_ID_CHARS] for name in (*said, *told) if name.strip()), "")


def _fingerprint(request: Request, provider: str) -> str:
    first = next((message.parts for message in request.messages if message.role == "user"), ())
    digest = blake2b(digest_size=12)
    for piece in (provider.encode(), family(request.model).encode(), *_words(request.system), *_words(first)):
        digest.update(len(piece).to_bytes(8, "big") + piece)
    return digest.hexdigest()


def _words(parts: Iterable[Part]) -> Iterable[bytes]:
    """Texts as they were written: marks around them, such as those for the cache, come and go."""
    texts = (part.body[part.start : part.end] for part in parts if part.kind == "text")
    return (text for text in texts if not text.startswith(_FICKLE))
