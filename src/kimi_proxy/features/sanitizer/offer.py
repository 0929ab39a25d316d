"""The tool by which the model reads what was left out: who offers it, and how it joins a client's own tools."""

from collections.abc import Iterator
from functools import cache

from kimi_proxy.core import jsontext, tokens
from kimi_proxy.core.chat import Request, edit
from kimi_proxy.core.chat.page import array_of, object_of
from kimi_proxy.core.types import JsonObject
from kimi_proxy.features import redeem

DESCRIPTION = """\
Read what was left out of a tool's output in this conversation, exactly as it was. Where lines were left out to save \
room, a marker stands for them: ⟦PRUNÉ: prune_id=prn_… lignes 12-90 (79) …⟧ names their numbers, \
[KIMI_PROXY_OBSERVATION_MASKED original_chars=… head=… tail=… id=msk_…] their characters (from head to original_chars \
minus tail). Files and commands are not affected: a marker is never part of a file, and never belongs into one. Ask by \
id with start_line and end_line (counted from 1, both included) or start_char and end_char (counted from 0, end_char \
not included), and for no more than you need; without a range all of it comes back."""

# As plain as can be: some providers refuse schemas with words that they do not know.
SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "description": "The id in the marker: prn_… or msk_…"},
        **{name: {"type": "integer"} for name in ("start_line", "end_line", "start_char", "end_char")},
    },
    "required": ["id"],
}

# Of the schemas of our tools, here and behind MCP, words that hardly any other has.
_OUR_WORDS = (b'"prune_id"', b'"start_char"')


def names(request: Request) -> Iterator[tuple[str, bool]]:
    """The client's tools that are called like ours, and whether they are ours."""
    for raw in array_of(request.page.members.get("tools")):
        name = request.dialect.tool_name(object_of(raw))
        if redeem.NAME in name:
            yield name, any(word in bytes(raw) for word in _OUR_WORDS)


def is_offered(request: Request) -> bool:
    """Whether the client itself offers a tool of ours, by way of MCP."""
    return any(is_ours for _, is_ours in names(request))


def may_join(request: Request) -> bool:
    """A client without tools may have a model, or a user, that cannot do with any.

    Nor can several answers to one question be gone on from as one, or one that is noted before we have gone on from it.
    """
    answers = request.page.members.get("n")
    is_one = answers is None or bytes(answers) in (b"1", b"null")
    return bool(request.tool_names) and is_one and not request.is_noted and not is_offered(request)


def own_name(request: Request) -> str:
    """What our tool is called where it joins."""
    taken = {name for name, _ in names(request)}
    return redeem.SPARE_NAME if redeem.NAME in taken else redeem.NAME


@cache
def tool_tokens() -> int:
    """What a request pays for the tool."""
    return tokens.count(DESCRIPTION + jsontext.encode(SCHEMA).decode())


def joined(request: Request) -> Request:
    return edit.with_tool(request, own_name(request), DESCRIPTION, SCHEMA)
