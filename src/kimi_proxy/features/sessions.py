"""Which conversation a request belongs to."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b

from kimi_proxy.core.chat import Part, Request, read
from kimi_proxy.core.markers import new_id

MAX_NAME_CHARS = 200
MAX_HEAD_CHARS = 16_384

# Codex begins all of its conversations with the same words, but names each: a thread, of which a session may have many.
_HEADERS = (b"x-session-id", b"thread-id", b"session-id", b"session_id", b"conversation_id")
_ID = re.compile(r"ses_[0-9a-hjkmnp-tv-z]{16}", re.ASCII)
_FAMILY = re.compile(r"[a-z]+")
# Claude Code begins its system prompt with a line that differs in every request.
_FICKLE = "x-anthropic-billing-header"


@dataclass(frozen=True, slots=True)
class Session:
    """A conversation, known by the name that its client gives it or by what it began with.

    The id is made of that alone, so that every process finds the same one, with a store or without.
    """

    id: str
    name: str = ""  # what its client calls it


def session_of(request: Request, headers: Mapping[bytes, bytes], provider: str) -> Session:
    """Two clients never share one because they talk at the same time, only because they say that they do."""
    name = _name(request, headers)
    return named(name) if name else Session(_id(b"began", *_beginning(request, provider)))


def named(name: str) -> Session:
    """The session that a client calls so; one of our own ids is that session."""
    name = name.encode("utf-8", "replace").decode()  # half of a surrogate pair can neither be hashed nor stored
    return Session(name) if is_session_id(name) else Session(_id(b"named", name.encode()), name)


def is_session_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def family(model: str) -> str:
    """`moonshotai/kimi-k2.5` is a kimi: a conversation may go on with a larger sibling."""
    found = _FAMILY.match(model.rpartition("/")[2].lower())
    return found[0] if found else model


def _name(request: Request, headers: Mapping[bytes, bytes]) -> str:
    members = request.members
    metadata = read.members(members.get("metadata"))
    said = (headers.get(name, b"").decode("latin-1") for name in _HEADERS)
    told = (read.string(raw) for raw in (metadata.get("session_id"), members.get("external_session_id")))
    return next((name[:MAX_NAME_CHARS] for name in (*said, *told) if name.strip()), "")


def _beginning(request: Request, provider: str) -> Iterable[bytes]:
    """What stays as it is while the conversation goes on; a client may add to the system's words later."""
    messages = request.messages
    first = next((at for at, message in enumerate(messages) if message.role == "user"), len(messages))
    said = messages[first].parts if first < len(messages) else ()
    later = {part.start for message in messages[first:] for part in message.parts}
    system = (part for part in request.system if part.start not in later)
    return provider.encode(), family(request.model).encode(), *_words(system), *_words(said)


def _words(parts: Iterable[Part]) -> Iterable[bytes]:
    """Texts alone: marks around them, such as those for the cache, come and go, and clients spell JSON as they like."""
    texts = (part.text for part in parts if part.kind == "text")
    return (_head(text) for text in texts if not text.startswith(_FICKLE))


def _head(text: str) -> bytes:
    """Its beginning and its length tell a text from others well enough, and a long one in no time."""
    return f"{len(text)} {text[:MAX_HEAD_CHARS]}".encode("utf-8", "surrogatepass")


def _id(*pieces: bytes) -> str:
    digest = blake2b()
    for piece in pieces:
        digest.update(len(piece).to_bytes(8, "big") + piece)
    return new_id("ses", lambda size: digest.digest()[:size])
