"""Which results of a conversation are old, and which the model can still read."""

from collections.abc import Collection, Mapping, Sequence
from itertools import islice

from kimi_proxy.core.chat import Request
from kimi_proxy.features.sanitizer.light import Earlier
from kimi_proxy.features.sanitizer.plan import LongOutput
from kimi_proxy.features.sanitizer.policy import Aged, CachedCut, paying
from kimi_proxy.features.sanitizer.stage import BYTES_PER_TOKEN, Decision

MARKER_TOKENS = 60  # of what is left of an old result: its ends and the marker
MAX_EARLIER = 4  # results of the same file that a new one is compared with
READABLE = frozenset({"thinned", "repeated"})  # ways to shorten that leave everything to be read


def is_user_turn(request: Request) -> bool:
    """Return whether the user spoke last: no result of a tool stands after the model's last words."""
    last = request.messages[-1] if request.messages else None
    return last is not None and last.role == "user" and all(part.kind != "tool_result" for part in last.parts)


def aged_results(request: Request, outputs: Sequence[LongOutput], decisions: Mapping[bytes, Decision]) -> list[Aged]:
    """Return the results in their order, with what speaks for and against cutting each now."""
    newest = _newest_words(request)
    last_try = {_about(output): at for at, output in enumerate(outputs) if _about(output)}
    aged: list[Aged] = []
    for at, output in enumerate(outputs):
        decision, path = decisions.get(output.key), output.origin.path
        shown = output.text if decision is None or decision.shown is None else decision.shown
        aged.append(
            Aged(
                tokens=len(shown) // BYTES_PER_TOKEN,
                is_unread=output.is_unread,
                failed=output.origin.failed and last_try.get(_about(output), at) == at,
                is_referred=bool(path) and path.replace("\\", "/").rpartition("/")[2] in newest,
                is_recovered=output.whole_because == "recovered",
            )
        )
    return aged


def _about(output: LongOutput) -> str:
    return output.origin.command or output.origin.path


def _newest_words(request: Request) -> str:
    """Return what the user said last, and what the model said and called last."""
    said: list[str] = []
    for role in ("user", "assistant"):
        newest = next((message for message in reversed(request.messages) if message.role == role), None)
        parts = newest.parts if newest else ()
        said += [part.text for part in parts if part.kind in ("text", "tool_call")]
    return "\n".join(said)


def paying_results(request: Request, old: Sequence[LongOutput], within_requests: int) -> tuple[list[LongOutput], int]:
    """Return those of the old results whose cut pays within so many requests, and the tokens rewritten for that."""
    cuts = [CachedCut(request.messages[output.spot[0]].start // BYTES_PER_TOKEN, _saved(output)) for output in old]
    prompt = len(request.body) // BYTES_PER_TOKEN
    chosen = paying(cuts, prompt, within_requests)
    if not chosen:
        return [], 0
    rewritten = prompt - chosen[0].place - sum(cut.saved for cut in chosen)
    return list(old[len(old) - len(chosen) :]), max(0, rewritten)


def _saved(output: LongOutput) -> int:
    return max(0, len(output.text) // BYTES_PER_TOKEN - MARKER_TOKENS)


def readable_before(
    before: Sequence[LongOutput], decisions: Mapping[bytes, Decision], output: LongOutput, gone: Collection[bytes] = ()
) -> list[Earlier]:
    """Return the results before `output`, newest first, that the model can still read and that may hold the same."""
    alike = (
        one
        for one in reversed(before)
        if one.key not in gone
        and (one.text == output.text or (one.origin.path and one.origin.path == output.origin.path))
        and ((decision := decisions.get(one.key)) is None or decision.shown is None or decision.why in READABLE)
    )
    return [Earlier.of(one) for one in islice(alike, MAX_EARLIER)]
