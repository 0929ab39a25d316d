"""What becomes of tool results is decided from the request, the policy and the facts alone."""

from collections.abc import Sequence
from dataclasses import replace

from tests.support.conversations import Assistant, Call, Item, Result, User, request

from kimi_proxy.core import tokens
from kimi_proxy.core.chat import Wire
from kimi_proxy.features.chat.prompt_cache import CacheMoment
from kimi_proxy.features.models.known import cache_rules
from kimi_proxy.features.sanitizer.decide import (
    EntryLimits,
    Facts,
    RequestResults,
    choose_entry,
    decide,
    enter,
    entry_task,
    leave_uncut,
    task_of,
)
from kimi_proxy.features.sanitizer.plan import LongOutput, plan
from kimi_proxy.features.sanitizer.policy import POLICIES, Aged, CutMoment, EntryCut, OldCuts, choose_old
from kimi_proxy.features.sanitizer.shorten import HUGE_TOKENS, MARKERS_TOKENS, ShortenedText, shorten

DEFAULT = POLICIES["default"]
WARM = CacheMoment(b"c", cache_rules("anthropic", "claude-sonnet-4-5", None), cold_from=None)
COLD = replace(WARM, cold_from=0)
FREE = CutMoment(
    is_free=True,
    is_user_turn=False,
    has_tools=True,
    edits_by_quoting=True,
    prompt_tokens=50_000,
    read=0.1,
    write=1.25,
)


def log(worker: str, lines: int = 400) -> str:
    return "\n".join(f"10:00:{n % 60:02} INFO {worker} {n} polled the queue and found nothing" for n in range(lines))


def seed(output: LongOutput) -> bytes:
    return output.key


def turn(id: str, text: str) -> list[Item]:
    return [Assistant(calls=(Call(id, arguments={"command": f"./run {id}"}),)), Result(id, text)]


def conversation(items: Sequence[Item]) -> RequestResults:
    sent = request(Wire.MESSAGES, items)
    return RequestResults(sent, plan(sent, DEFAULT.old_tokens), "why does it stop?")


def scores(one: RequestResults) -> dict[bytes, ShortenedText]:
    """What the engine leaves of the results that the model has not read."""
    scored: dict[bytes, ShortenedText] = {}
    for output in one.outputs:
        if output.is_unread:
            task = entry_task(output, one, DEFAULT, EntryLimits(preview_chars=200), seed(output))
            scored[output.key] = shorten(task) if task else leave_uncut(output, "below_threshold")
    return scored


def test_the_same_facts_decide_the_same():
    asked = conversation([User("why?"), *turn("a", log("alpha"))])
    facts = Facts(WARM, seed, scored=scores(asked))

    assert decide(asked, DEFAULT, facts) == decide(asked, DEFAULT, facts)
    assert [one.shortened.why for one in decide(asked, DEFAULT, facts).new] == ["pruned"]


def test_old_results_are_decided_anew_only_where_nothing_is_cached():
    items = [item for n in range(6) for item in turn(f"call_{n}", log(f"worker-{n}"))]
    asked = conversation([User("why?"), *items, Assistant("It stops."), User("And now?")])

    warm = decide(asked, replace(DEFAULT, pays_within=0, patchers_pay_within=0), Facts(WARM, seed))
    cold = decide(asked, DEFAULT, Facts(COLD, seed))

    assert (warm.new, warm.old) == ((), ())
    assert [one.output.call_id for one in cold.old] == ["call_0", "call_1", "call_2", "call_3"]
    assert all(one.replaces for one in cold.old)


def test_a_new_result_that_points_to_an_old_one_is_shown_again_when_that_goes():
    again = log("alpha")
    items = [*turn("a", again), *(item for n in range(5) for item in turn(f"c{n}", log(f"w{n}"))), *turn("b", again)]
    asked = conversation([User("why?"), *items])
    scored = {output.key: leave_uncut(output, "asked_again") for output in asked.outputs if output.is_unread}

    pointed = decide(asked, DEFAULT, Facts(WARM, seed, scored=scored))
    renewed = decide(asked, DEFAULT, Facts(COLD, seed, scored=scored))

    assert [one.shortened.why for one in pointed.new] == ["repeated"]
    assert renewed.new == ()
    [shown] = [one for one in renewed.old if one.output.call_id == "b"]
    assert (shown.shortened.shown, shown.replaces) == (again, False)


def test_nothing_old_is_cut_where_the_facts_forbid_it():
    items = [item for n in range(6) for item in turn(f"call_{n}", log(f"worker-{n}"))]
    asked = conversation([User("why?"), *items, Assistant("It stops."), User("And now?")])

    assert decide(asked, DEFAULT, Facts(COLD, seed, may_cut_old=False)).old == ()


def test_of_forms_that_are_equally_short_the_one_that_loses_nothing_enters():
    def choose(engine: int | None, lossless: int | None, of: int, bounded: int | None = None) -> int | None:
        return choose_entry(engine, lossless, lambda: bounded, float, lambda: float(of))

    engine, lossless = 500, int("500")
    assert choose(engine, lossless, 900) is lossless
    assert choose(400, 500, 900) == 400
    assert choose(None, None, 900) is None
    assert choose(None, None, HUGE_TOKENS + 1, bounded=7_900) == 7_900
    assert choose(9_000, 12_000, 20_000, bounded=None) == 9_000


def test_a_result_is_bounded_only_above_the_tokens_that_its_task_lets_in():
    code = "\n".join(f"def part_{at}(request): return answer_{at}(request.path, {at})" for at in range(700))
    [output] = conversation([User("why?"), *turn("a", code)]).outputs

    def entered(most: int) -> ShortenedText:
        cut = EntryCut(over_tokens=most, keep_tokens=most - MARKERS_TOKENS, most_tokens=most)
        task = task_of(output, cut, "why?", EntryLimits(), b"seed")
        assert task is not None
        return enter(output, shorten(task), None, "why?", seed)

    assert tokens.count(code) > HUGE_TOKENS
    assert entered(24_000).hidden == ()
    assert entered(HUGE_TOKENS).tokens_after <= HUGE_TOKENS


def test_a_free_moment_leaves_alone_what_is_still_cached():
    old = Aged(tokens=1_000, is_unread=False)
    results = [old, replace(old, is_cached=False), old, old, old]

    assert choose_old(results, DEFAULT, FREE) == OldCuts([1])
    assert choose_old(results, DEFAULT, replace(FREE, is_free=False)) == OldCuts()


def test_a_file_is_cut_at_a_free_moment_only_where_a_newer_result_shows_the_same_path():
    file = Aged(tokens=6_000, is_unread=False, is_cached=False, shows_file=True)
    results = [replace(file, is_superseded=True), file, replace(file, shows_file=False), file, file]

    assert choose_old(results, DEFAULT, FREE) == OldCuts([0, 2])
    assert choose_old(results, POLICIES["deep"], FREE) == OldCuts([0, 1])


def test_in_place_of_a_compaction_only_enough_old_results_are_cut():
    full = replace(FREE, is_free=False, filled_window=50_000)
    results = [Aged(tokens=1_000, is_unread=False)] * 8
    file = Aged(tokens=9_000, is_unread=False, shows_file=True)

    cuts = choose_old(results, DEFAULT, full)
    assert (cuts.positions, cuts.frees_window) == ([0, 1, 2, 3, 4, 5], True)
    assert cuts.rewritten_tokens == 50_000 - 6 * 940
    assert choose_old(results, DEFAULT, replace(full, filled_window=60_000)) == OldCuts()
    assert choose_old([file] * 8, DEFAULT, full) == OldCuts()
    assert choose_old(results, POLICIES["careful"], full) == OldCuts()


def test_only_a_result_that_shows_a_file_supersedes_an_earlier_one_of_its_path():
    shown = "\n".join(f"def part_{at}(): return {at}" for at in range(200))

    def asked(second: str) -> RequestResults:
        calls = [Call("a", "Read", {"file_path": "src/a.py"}), Call("b", second, {"file_path": "src/a.py"})]
        read = [item for call in calls for item in (Assistant(calls=(call,)), Result(call.id, f"{call.id}\n{shown}"))]
        later = [item for n in range(3) for item in turn(f"c{n}", log(f"w{n}"))]
        return conversation([User("why?"), *read, *later, Assistant("It stops."), User("And now?")])

    def cut(one: RequestResults) -> list[str]:
        return [each.output.call_id for each in decide(one, DEFAULT, Facts(COLD, seed)).old]

    assert cut(asked("Read")) == ["a", "c0"]
    assert cut(asked("Edit")) == ["b", "c0"]
