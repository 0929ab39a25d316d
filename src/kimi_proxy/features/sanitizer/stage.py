"""The sanitizer as a stage: show what was decided about each output, and offer the tool that brings back the rest."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import NamedTuple, TypedDict

from kimi_proxy.core import json, tokens
from kimi_proxy.core.chat import Request, edit, read
from kimi_proxy.core.chat.edit import Place
from kimi_proxy.core.errors import AnyReason
from kimi_proxy.core.json import JsonObject
from kimi_proxy.features import recovery
from kimi_proxy.features.chat.pipeline import Draft, Note
from kimi_proxy.features.sanitizer.plan import LongOutput
from kimi_proxy.features.sanitizer.recalls import ClientRecalls

EVENT = "sanitizer_event"


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision about an output: the text that is sent in its place, or why it is sent uncut."""

    why: AnyReason
    shown: str | None = None
    tokens_before: int = 0
    tokens_after: int = 0
    is_new: bool = False  # it was made for this request; others are repeated


@dataclass(frozen=True, slots=True)
class RequestDecisions:
    """The long outputs of a request, and a decision for the key of each."""

    outputs: tuple[LongOutput, ...]
    decisions: Mapping[bytes, Decision]
    offers_tool: bool  # our tool is in this conversation
    pending_results: Mapping[str, str] = field(default_factory=dict)  # to show beside results, by their unique call ids
    previous_response: str | None = None  # the one that is meant, where the client knows another name for it
    results: Mapping[str, str] = field(default_factory=dict)  # of calls of ours in it, by their ids
    rewritten_tokens: int = 0  # of the prompt cache, where cached results are cut now
    frees_window: bool = False  # in place of a compaction by the client
    reasons: tuple[AnyReason, ...] = ()  # why nothing new is cut, whatever comes


def sanitize(draft: Draft, decided: RequestDecisions) -> Draft:
    """Return the draft with outputs shown as was decided, and with our tool where the conversation has it."""
    if decided.previous_response is not None:
        draft = replace(draft, request=edit.with_previous_response(draft.request, decided.previous_response))
    if decided.results:
        results = draft.request.format.new_tool_results(decided.results.items())
        draft = replace(draft, request=edit.with_items(draft.request, results))
    made = [decided.decisions[output.key] for output in decided.outputs]
    reasons = tuple(sorted({*decided.reasons, *(decision.why for decision in made if decision.shown is None)}))
    draft = replace(draft, reasons=(*draft.reasons, *reasons)) if reasons else draft
    shown = {key: decision.shown for key, decision in decided.decisions.items() if decision.shown is not None}
    request = draft.request
    if shown:
        request = _replace_outputs(request, decided.outputs, shown, decided.pending_results)
        # What the provider has compacted away is sent as it was, and saves nothing any more.
        read_from = request.read_from
        counted = [decided.decisions[output.key] for output in decided.outputs if output.spot[0] >= read_from]
        draft = replace(draft, notes=(*draft.notes, Note(EVENT, _counts(counted, decided))))
    if decided.offers_tool:
        draft = replace(draft, own_tool=own_tool_name(request))
        request = with_recall_tool(request)
    return draft if request is draft.request else replace(draft, request=request)


def _replace_outputs(
    request: Request, outputs: Sequence[LongOutput], shown: Mapping[bytes, str], pending_results: Mapping[str, str]
) -> Request:
    """Return `request` with each output that was cut as it is shown, by its key; all others stay as they came."""
    by_spot: dict[Place, list[LongOutput]] = defaultdict(list)
    for output in outputs:
        if output.key in shown:
            by_spot[output.spot].append(output)
    texts: dict[Place, str] = {}
    for spot, found in by_spot.items():
        text = request.part(*spot).text
        at = 0
        pieces: list[str] = []
        for output in sorted(found, key=lambda output: output.start):
            pieces += (text[at : output.start], shown[output.key])
            at = output.end
        texts[spot] = "".join((*pieces, text[at:]))
    return with_pending_results(request, pending_results, texts)


def with_pending_results(
    request: Request, pending_results: Mapping[str, str], texts: Mapping[Place, str] | None = None
) -> Request:
    """Return `request` with other `texts`, and with recall results at the end of the last text of the call's result."""
    texts = dict(texts or {})
    last = {call: spot for spot, call in _results(request) if call in pending_results} if pending_results else {}
    for call, spot in last.items():
        texts[spot] = f"{texts.get(spot, request.part(*spot).text)}\n\n{pending_results[call]}"
    return edit.with_texts(request, texts) if texts else request


def result_call_ids(request: Request) -> list[str]:
    """Return the unique ids of the calls whose results stand in a request."""
    return [call for _, call in _results(request)]


def new_result_call_ids(request: Request) -> list[str]:
    """Return those of results that the model has not read yet."""
    answers = [at for at, message in enumerate(request.messages) if message.role == "assistant"]
    last = answers[-1] if answers else -1
    return [call for (at, _), call in _results(request) if at > last]


def unique_call_id(request: Request, call_id: str) -> str:
    """Return an id for a call in the answer to a request: some models reuse their call ids in every turn."""
    parts = (part for message in request.messages for part in message.parts)
    return _unique(call_id, sum(1 for part in parts if part.kind == "tool_call" and part.call_id == call_id))


def _results(request: Request) -> Iterator[tuple[Place, str]]:
    """Yield where texts of results stand, and the unique ids of their calls."""
    calls: Counter[str] = Counter()
    for at, message in enumerate(request.messages):
        for index, part in enumerate(message.parts):
            if part.kind == "tool_call":
                calls[part.call_id] += 1
            elif part.kind == "tool_result" and part.call_id and part.is_string:
                yield (at, index), _unique(part.call_id, calls[part.call_id] - 1)


def _unique(call_id: str, before: int) -> str:
    return f"{call_id}\0{before}" if before > 0 else call_id


class SanitizerFields(TypedDict):
    """The fields of a `sanitizer_event`."""

    outputs: int
    cut: int
    cut_now: int
    tokens_before: int
    tokens_after: int
    tokens_saved: int
    why: dict[str, int]
    tool_tokens: int
    prefix_tokens_resent: int
    window_cuts: int


def _counts(made: Sequence[Decision], decided: RequestDecisions) -> SanitizerFields:
    cut = [decision for decision in made if decision.shown is not None]
    before = sum(d.tokens_before for d in cut)
    after = sum(d.tokens_after for d in cut)
    return {
        "outputs": len(made),
        "cut": len(cut),
        "cut_now": sum(1 for decision in cut if decision.is_new),
        "tokens_before": before,
        "tokens_after": after,
        "tokens_saved": before - after,
        "why": dict(Counter(decision.why for decision in made)),
        "tool_tokens": tool_tokens() * decided.offers_tool,
        "prefix_tokens_resent": decided.rewritten_tokens,
        "window_cuts": int(decided.frees_window),
    }


BYTES_PER_TOKEN = 4  # about

# In every request of a conversation: under 60 tokens with its schema, or sessions in which little is cut would lose.
DESCRIPTION = "Read what a marker (prn_: lines, msk_: characters) stands for. Markers are in no file."

# As plain as can be: some providers refuse schemas with words that they do not know.
SCHEMA: JsonObject = {
    "type": "object",
    "properties": {"id": {"type": "string"}, "start": {"type": "integer"}, "end": {"type": "integer"}},
    "required": ["id"],
}

# Of the schemas of our tools, here and behind MCP, words that hardly any other has.
_OUR_WORDS = (b'"prune_id"', b'"start_char"')


def hint(address: str) -> str:
    """Return how a model without our tool gets at what was cut, `{id}` in it."""
    return (
        "[kimi-proxy left out what the markers name; files are whole. To read it: MCP tool recover_text, or "
        f"GET {address}/api/mask/{{id}}?lines=START-END]"
    )


@cache
def tool_tokens() -> int:
    """Return what a request pays for the tool."""
    return tokens.count(DESCRIPTION + json.encode(SCHEMA).decode())


def with_recall_tool(request: Request) -> Request:
    return edit.with_tool(request, own_tool_name(request), DESCRIPTION, SCHEMA)


def own_tool_name(request: Request) -> str:
    """Return what our tool is called where it joins."""
    is_taken = any(tool.name == recovery.NAME for tool in _recall_tools(request))
    return recovery.SPARE_NAME if is_taken else recovery.NAME


def may_offer_tool(request: Request) -> bool:
    """Return whether our tool may join the client's.

    A client without tools may have a model, or a user, that cannot do with any. Several answers to one question cannot
    be continued as one, nor one that the provider stores before we have continued it. A client that forces a tool is
    waiting for a call of its own.
    """
    answers = request.members.get("n")
    is_one = answers is None or bytes(answers) in (b"1", b"null")
    return bool(request.tool_names) and is_one and not request.is_stored and not request.forces_tool


def may_follow_hint(request: Request) -> bool:
    """Return whether an agent can read an address that its results name: a sandbox around its tools may be closed."""
    return not request.tool_names


def calls_without_asking(request: Request) -> bool:
    """Return whether the client offers a tool of ours that it calls without asking.

    Codex does: it calls read-only tools at once. It alone puts the tools of MCP servers into namespaces.
    """
    return any(tool.is_ours and tool.is_in_namespace and not tool.is_deferred for tool in _recall_tools(request))


def reads_back(request: Request, recalls: ClientRecalls) -> bool:
    """Return whether the client itself reads cut text back: its tool was answered before, or is called without asking.

    That it offers the tool proves nothing: most agents ask before they call a tool of MCP, or refuse it.
    """
    return (recalls.answered and any(tool.is_ours for tool in _recall_tools(request))) or calls_without_asking(request)


class _RecallTool(NamedTuple):
    """A tool of the client's that is called like ours."""

    name: str
    is_ours: bool
    is_deferred: bool  # the model has to search for it
    is_in_namespace: bool


def _recall_tools(request: Request) -> Iterator[_RecallTool]:
    # Nearly every conversation has none, and its tools may be a hundred kilobytes: their names are read once.
    if not any(recovery.NAME in name for name in request.tool_names):
        return
    for name, raw in request.format.tools(request.json):
        if recovery.NAME in name:
            is_ours = any(word in bytes(raw) for word in _OUR_WORDS)
            own_name = read.string(read.members(raw).get("name"))
            yield _RecallTool(name, is_ours, read.is_deferred(raw), own_name not in ("", name))
