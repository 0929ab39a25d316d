"""The session that a request belongs to, its title and the folder it works in."""

import hmac
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import islice, takewhile

from kimi_proxy.core.caller import LOCAL_SCOPE
from kimi_proxy.core.chat import Content, Message, Part, Request, read
from kimi_proxy.core.markers import new_id
from kimi_proxy.features.chat.conversations import without_reminders
from kimi_proxy.features.chat.safety_checks import TITLE as CHECKS_TITLE
from kimi_proxy.features.chat.safety_checks import is_safety_check

MAX_NAME_CHARS = 200
MAX_HEAD_CHARS = 16_384
NEWEST_ANSWERS = 8  # by which a conversation is known whose client has dropped its first answers

# Codex begins all of its conversations with the same words, but names each: a thread, of which a session may have many.
_HEADERS = (b"x-session-id", b"thread-id", b"session-id", b"session_id", b"conversation_id")
_THREAD, _THREADS = b"thread-id", b"session-id"
_CLAUDE_CODE, _AGENT, _PARENT_AGENT = (
    b"x-claude-code-session-id",
    b"x-claude-code-agent-id",
    b"x-claude-code-parent-agent-id",
)
SIDE, CHECKS = "side", "checks"
# A `prompt_cache_key` that says itself that it is a conversation's; others may be an application's, or a user's.
_CONVERSATION = re.compile(r"(?:ses|sess|session|thread|conv|conversation|chat|task)[_-][\w-]{16,}", re.ASCII)
_ID = re.compile(r"ses_[0-9a-hjkmnp-tv-z]{16}", re.ASCII)
_FAMILY = re.compile(r"[a-z]+")
# Claude Code begins its system prompt with a line that differs in every request.
_VOLATILE = "x-anthropic-billing-header"

# How aider's own messages begin: the end of its examples, its files, its map of the repository.
_AIDER_CONTEXT = (
    b"I switched to a new code base. Please don't consider the above files",
    b"I have *added these files to the chat*",
    b"I am not sharing ",
    b"Here are some READ ONLY files, provided for your reference.",
    b"Here are summaries of some files present in my git repository.",
    b"I am working with you on code in a git repository.",
    b"Don't try and edit any existing code without asking me to add the files to the chat!",
)


@dataclass(frozen=True, slots=True)
class Session:
    """A conversation, identified by the client's name for it or by its beginning.

    The id is a hash of that, so that every process finds the same one. If several conversations begin alike, the
    further ones are identified by their answers.
    """

    id: str
    name: str = ""  # what its client calls it
    parent: str = ""  # the id of the session that it helps, as a sub-agent or with requests on the side
    beginning: str = ""  # where nothing names it, the id of what it began with: another one may begin in the same words


@dataclass(frozen=True, slots=True)
class SessionIds:
    """Makes the ids of one person's sessions.

    Two members of a team with the same text or name have two sessions. With a secret, no one can predict another
    person's id; without one, everyone can.
    """

    scope: str = LOCAL_SCOPE
    person: str = ""
    secret: bytes = b""

    def make(self, *pieces: bytes) -> str:
        own = () if self.scope == LOCAL_SCOPE else (self.scope.encode(),)
        if self.secret:
            framed = b"".join(_frame(piece) for piece in (*own, self.person.encode(), *pieces))
            digest = hmac.digest(self.secret, framed, "sha256")
        else:
            hashed = blake2b()
            for piece in (*own, *pieces):
                hashed.update(_frame(piece))
            digest = hashed.digest()
        return new_id("ses", lambda size: digest[:size])

    def session_named(self, name: str) -> Session:
        """Return the session that a client calls `name`; without a secret, one of our own ids is that session."""
        name = name.encode("utf-8", "replace").decode()  # half of a surrogate pair can neither be hashed nor stored
        if not is_session_id(name):
            return Session(self.make(b"named", name.encode()), name)
        return Session(self.make(b"named", name.encode()) if self.secret else name)


LOCAL_IDS = SessionIds()


def _frame(piece: bytes) -> bytes:
    return len(piece).to_bytes(8, "big") + piece


def session_of(
    request: Request, headers: Mapping[bytes, bytes], provider: str, ids: SessionIds, with_reminders: bool = False
) -> Session:
    """Return the session of a request; two clients share one only if both name it or begin in the same words.

    `with_reminders` returns the one that older versions gave it, whose beginning had the client's reminders in it.
    """
    if name := _name(request, headers):
        parent = _header(headers, _THREADS) if _header(headers, _THREAD) == name else ""
        return _helping(ids, ids.session_named(name), parent)
    if name := _agent_name(request, headers):
        return _agent_session(request, headers, name, ids)
    if request.is_continued:
        return Session(ids.make(b"continued", provider.encode(), _kept_by_provider(request)))
    key = read.string(request.members.get("prompt_cache_key"))
    if _CONVERSATION.fullmatch(key):
        return _with_side(ids.session_named(key[:MAX_NAME_CHARS]), request, ids)
    beginning = _beginning(request, provider, with_reminders)
    began = ids.make(b"began", *beginning, *([key.encode("utf-8", "replace")] if key else []))
    return Session(began, beginning=began)


def another(scope: str, beginning: Session, mark: bytes) -> Session:
    """Return a further session that begins in the same words; the same one for the same mark."""
    # Only its person knows the id of the beginning: what follows from it needs no key of its own.
    return Session(SessionIds(scope).make(b"again", beginning.id.encode(), mark), beginning=beginning.id)


def answers_in(request: Request, with_results: bool = False) -> tuple[bytes, ...]:
    """Return hashes of the model's answers: the first one, which two conversations rarely share, and the newest.

    Thinking is excluded, because clients do not send all of it back. Including the results of its calls distinguishes
    two answers with the same words and ids.
    """
    messages = _conversation(request)
    places = [at for at, message in enumerate(messages) if message.role == "assistant"]
    ends = [*places[1:], len(messages)] if with_results else [at + 1 for at in places]

    def hashes(order: Iterable[int]) -> Iterator[bytes]:
        for each in order:
            at = places[each]
            said = [part for part in messages[at].parts if part.kind in ("text", "tool_call")]
            following = (part for message in messages[at + 1 : ends[each]] for part in message.parts)
            said += (part for part in following if part.kind == "tool_result")
            if hashed := _hash_answer(said):
                yield hashed

    first = islice(hashes(range(len(places))), 1)
    newest = islice(hashes(reversed(range(len(places)))), NEWEST_ANSWERS)
    return tuple(dict.fromkeys((*first, *newest)))


def is_session_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def family(model: str) -> str:
    """`moonshotai/kimi-k2.5` is a kimi: a conversation may go on with a larger sibling."""
    found = _FAMILY.match(model.rpartition("/")[2].lower())
    return found[0] if found else model


def _kept_by_provider(request: Request) -> bytes:
    """Return what distinguishes a conversation of which only the end is here from all others."""
    kept = request.members.get(request.format.stored_conversation)
    return bytes(kept) if kept is not None else request.previous_response_id.encode("utf-8", "replace")


def _agent_name(request: Request, headers: Mapping[bytes, bytes]) -> str:
    """Return what Claude Code calls its session, in a header or in the JSON that it sends as the user's id."""
    if name := _header(headers, _CLAUDE_CODE):
        return name
    user = read.string(read.members(request.members.get("metadata")).get("user_id"))
    members = read.json_object(user.encode("utf-8", "replace")) if user.startswith("{") else None
    return read.string((members or {}).get("session_id"))[:MAX_NAME_CHARS].strip()


def _agent_session(request: Request, headers: Mapping[bytes, bytes], name: str, ids: SessionIds) -> Session:
    """Return the session of Claude Code itself, or that of the sub-agent which sends the request."""
    agent = _header(headers, _AGENT)
    parent = _header(headers, _PARENT_AGENT)
    if not agent:
        return _with_side(ids.session_named(name), request, ids)
    if is_safety_check(request):
        return _beside(ids, f"{name}/{agent}", CHECKS)
    return _helping(ids, ids.session_named(f"{name}/{agent}"), f"{name}/{parent}" if parent else name)


def _with_side(session: Session, request: Request, ids: SessionIds) -> Session:
    """Return a session beside that of an agent for what it asks without its tools: a title, a commit message."""
    if request.tool_names or request.is_continued:
        return session
    return _beside(ids, session.name, CHECKS if is_safety_check(request) else SIDE)


def _beside(ids: SessionIds, name: str, what: str) -> Session:
    return _helping(ids, ids.session_named(f"{name}/{what}"), name)


def _helping(ids: SessionIds, session: Session, parent: str) -> Session:
    return replace(session, parent=ids.session_named(parent).id) if parent and parent != session.name else session


def _header(headers: Mapping[bytes, bytes], name: bytes) -> str:
    given = headers.get(name)
    return given.decode("latin-1")[:MAX_NAME_CHARS].strip() if given else ""


def _name(request: Request, headers: Mapping[bytes, bytes]) -> str:
    for header in _HEADERS:
        if (given := headers.get(header)) and (name := given.decode("latin-1")).strip():
            return name[:MAX_NAME_CHARS]
    members = request.members
    in_metadata = read.members(members.get("metadata")).get("session_id")
    names = (read.string(raw) for raw in (in_metadata, members.get("external_session_id")) if raw is not None)
    return next((name[:MAX_NAME_CHARS] for name in names if name.strip()), "")


def _beginning(request: Request, provider: str, with_reminders: bool = False) -> Iterable[bytes]:
    """Return what stays the same while a conversation goes on; a client may add to the system prompt later."""
    messages = _conversation(request)
    first = next((at for at, message in enumerate(messages) if message.role == "user"), len(messages))
    asked = takewhile(lambda message: message.role != "assistant", messages[first:])
    said = (message.parts for message in asked if message.role == "user")
    words = _words(next(said, ())) if with_reminders else next(filter(None, map(_own_words, said)), ())
    later = {message.start for message in messages[first:]}
    earlier = (message for message in request.instructions if message.start not in later)
    system = (*request.apart, *(part for message in earlier for part in message.parts))
    return provider.encode(), family(request.model).encode(), *_words(system), *words


def _conversation(request: Request) -> Sequence[Message]:
    """Return the messages without those that a client without tools writes itself, as aider does.

    Its examples are the same in all of its sessions, and the files that it shows move about in the conversation.
    """
    messages = request.messages
    if request.tool_names:
        return messages
    found = [at for at, message in enumerate(messages) if message.content.derive(_starts_with, _AIDER_CONTEXT)]
    if not found:
        return messages
    examples = [at for at in found if messages[at].content.derive(_starts_with, _AIDER_CONTEXT[:1])]
    start = examples[0] if examples else 0
    answered = {at + 1 for at in found if at + 1 < len(messages) and messages[at + 1].role == "assistant"}
    return [message for at, message in enumerate(messages) if at >= start and at not in {*found, *answered}]


def _starts_with(content: Content, openings: tuple[bytes, ...]) -> bool:
    asked = (part for part in content.parts[:1] if content.role == "user" and part.is_string)
    return any(part.body.startswith(openings, part.start + 1) for part in asked)


def _words(parts: Iterable[Part]) -> Iterable[bytes]:
    """Return texts alone: what stands around them, such as marks for the prompt cache, comes and goes."""
    return _words_of(part.text for part in parts if part.kind == "text")


def _words_of(texts: Iterable[str]) -> Iterable[bytes]:
    return (_head(text) for text in texts if not text.startswith(_VOLATILE))


def _own_words(parts: Iterable[Part]) -> Sequence[bytes]:
    """Return the texts of the user, without those that the client has put beside them and changes later."""
    texts = ((part.text, without_reminders(part.text)) for part in parts if part.kind == "text")
    return tuple(_words_of(text if own == text else own.strip() for text, own in texts if own == text or own.strip()))


def _hash_answer(parts: Iterable[Part]) -> bytes:
    """Return a hash of an answer's words and calls; empty if it has none."""
    said = [(part.call_id, part.name, part.text) for part in parts]
    if not any(call_id or text for call_id, _, text in said):
        return b""
    digest = blake2b(digest_size=16)
    for words in said:
        for word in words:
            digest.update(_head(word))
    return digest.digest()


def _head(text: str) -> bytes:
    """Return the beginning and the length of a text: enough to know it from others, and fast for long ones."""
    return f"{len(text)} {text[:MAX_HEAD_CHARS]}".encode("utf-8", "surrogatepass")


# What a session is called and where it works, by the first words of its conversation.

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
    if is_safety_check(request):
        return CHECKS_TITLE
    for message in _conversation(request):
        if message.role != "user":
            continue
        for part in message.parts:
            words = _plain_words(part.text[:SCANNED_CHARS]) if part.kind == "text" else ""
            if words:
                return _cut(_SECRET.sub(MASK, words))
    return ""


def directory_of(request: Request) -> str:
    """Return the folder in which the agent says it works; "" if it says nothing."""
    for text in _first_texts(request):
        if found := _DIRECTORY.search(text):
            return (found["tag"] or found["line"]).strip()[:MAX_DIRECTORY_CHARS]
    return ""


def _first_texts(request: Request) -> Iterator[str]:
    for part in request.system:
        if part.kind == "text":
            yield part.text[-SCANNED_CHARS:]
    for message in request.messages[:3]:
        for part in message.parts:
            if part.kind == "text":
                yield part.text[:SCANNED_CHARS]


def _plain_words(text: str) -> str:
    """Return a text without what agents wrap around it, on one line; "" if nothing else is there."""
    said = _SPACE.sub(" ", _strip_elements(text)).strip()
    if _HEADING.match(said):
        return ""
    words = said[:2000]
    return words if words.isprintable() else "".join(filter(str.isprintable, words))


def _strip_elements(text: str) -> str:
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
