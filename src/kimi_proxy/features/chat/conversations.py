"""The conversation that a request belongs to: its name, and what shows that it continues another one."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from kimi_proxy.core.chat import Part, Request
from kimi_proxy.core.lines import encode_text
from kimi_proxy.features.sanitizer.plan import before_reminders

LEAST_SHARED = 2  # results with the same call id and text; one alone may be an empty answer to the first call

# What clients put among the user's first words, and change when a conversation is resumed: their instructions, the
# date, the files of the project. Claude Code, Qwen Code, Kimi Code; Gemini CLI; Codex; Cline and Kilo.
_REMINDER = re.compile(
    r"<(system-reminder|session_context|user_instructions|environment_context|environment_details"
    r"|permissions instructions)>"
)
_HEADING = "# AGENTS.md instructions"


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation, known by its session and by its first words.

    The session alone is not enough: older sub-agents share that of their parent, and some clients use one for all.
    """

    session: str
    place: bytes  # of what is remembered of it: our tool, its prompt cache
    name: bytes  # that the keys of its tool results begin with
    parent: "Conversation | None" = None  # it has been given a copy of what is remembered of this one, just now
    is_unknown: bool = False  # it has been answered before, and nothing is remembered of it


def name_conversation(session: str, request: Request) -> Conversation:
    """Return the conversation of a request."""
    words = first_words(request)
    return conversation_with(session, words, is_kept=request.is_kept)


def conversation_with(session: str, words: bytes, *, is_kept: bool) -> Conversation:
    """Return the conversation of a session that began with these words, by their hash."""
    name = _in_session(session, words)
    # Of a conversation that the provider keeps only the end passes here: its place has no words.
    return Conversation(session, _in_session(session, b"") if is_kept else name, name)


def former_name(session: str, request: Request) -> Conversation:
    """Return the conversation as versions named it whose hash of the first words had the client's reminders in it."""
    first = next((message.parts for message in request.messages if message.role == "user"), ())
    raw = b"".join(part.body[part.start : part.end] for part in first if part.kind == "text")
    words = sha256(raw).digest()
    return Conversation(session, _in_session(session, b"" if request.is_kept else words), words)


def _in_session(session: str, words: bytes) -> bytes:
    return sha256(encode_text(session) + b"\0" + words).digest()


def first_words(request: Request) -> bytes:
    """Return a hash of the user's first message, without the client's reminders.

    A message of reminders alone is passed over: Codex sends its instructions in one before the user's.
    """
    is_asked = False
    for message in request.messages:
        if message.role == "assistant" and is_asked:
            break
        is_asked = is_asked or message.role == "user"
        words = own_words(message.parts) if message.role == "user" else []
        if words:
            return sha256(encode_text("\n".join(words))).digest()
    return sha256().digest()


def own_words(parts: Iterable[Part]) -> list[str]:
    """Return the texts of the user in a message, without those that the client has put beside them."""
    texts = (without_reminders(part.text).strip() for part in parts if part.kind == "text")
    return [text for text in texts if text]


def without_reminders(text: str) -> str:
    """Return a text without the elements that clients change, in linear time."""
    if text.startswith(_HEADING):
        return ""
    pieces: list[str] = []
    unclosed: set[str] = set()
    begin = at = 0
    while opening := _REMINDER.search(text, at):
        at = opening.end()
        closing = f"</{opening[1]}>"
        end = -1 if opening[1] in unclosed else text.find(closing, at)
        if end < 0:
            if not text[: opening.start()].strip():
                return ""
            unclosed.add(opening[1])
            continue
        pieces.append(text[begin : opening.start()])
        begin = at = end + len(closing)
    return "".join((*pieces, text[begin:])) if pieces else text


def is_answered(request: Request) -> bool:
    return any(message.role == "assistant" for message in request.messages)


def tool_results(request: Request) -> tuple[list[Part], int]:
    """Return the results of tools that name their calls, and how many of them the model has read."""
    found: list[Part] = []
    read = 0
    for message in request.messages:
        if message.role == "assistant":
            read = len(found)
        found += (part for part in message.parts if part.kind == "tool_result" and part.call_id)
    return found, read


def result_marks(results: Iterable[Part]) -> list[bytes]:
    """Return a hash of each tool result with the id of its call."""
    return [_mark(part.call_id, part.text) for part in results]


def _mark(call_id: str, text: str) -> bytes:
    hashed = sha256(encode_text(text[: before_reminders(text)])).digest()
    return sha256(encode_text(call_id) + b"\0" + hashed).digest()


# Whose a tool result is: the sessions that have it, with the first words of each conversation.
Owner = tuple[str, bytes]


def closest(marks: Sequence[bytes], owners: Mapping[bytes, Sequence[Owner]], session: str) -> Owner | None:
    """Return the conversation that shares most results with a request, in the same session if there is one.

    None if none shares enough. Of several that share as many, the oldest: the others began as copies of it.
    """
    shared: dict[Owner, int] = {}
    for mark in dict.fromkeys(marks):
        for owner in owners.get(mark, ()):
            shared[owner] = shared.get(owner, 0) + 1
    enough = [owner for owner, count in shared.items() if count >= LEAST_SHARED]
    return max(enough, key=lambda owner: (owner[0] == session, shared[owner]), default=None)
