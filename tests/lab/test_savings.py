"""What policies save in sessions that are small enough to count by hand."""

import pytest

from kimi_proxy.features.chat.compression import Preset
from kimi_proxy.features.sanitizer.policy import POLICIES, Policy
from kimi_proxy.features.sanitizer.stage import tool_tokens
from kimi_proxy.lab.audit import price_parts
from kimi_proxy.lab.measured import CHANGED, COMPACTED, LONG_PAUSE, PAUSE, SWITCHED, measure, price_of
from kimi_proxy.lab.savings import MARKER_TOKENS, PolicyFigures, SimulatedPolicy, baseline, simulate
from kimi_proxy.lab.transcripts.transcript import AgentCall, AgentRequest, CallOutput, ProviderUsage, Transcript

USD = price_of("claude-sonnet-4-5").usd
FIXED = 5000
LINE = "the one line in it that is used later on, word for word"
LONG = "\n".join([LINE, *(f"line {at} of an output that nobody needs any more" for at in range(200))])


def words(text: str) -> int:
    return len(text.split())


class Conversation:
    """A session as a provider with a prompt cache would count it, when each word is a token."""

    def __init__(self) -> None:
        self.transcript = Transcript("Claude Code", "s")
        self._prompt = FIXED
        self._at = 0.0

    def ask(self, user: str = "", output: str = "", pause_s: float = 10, said: str = "", hits: bool = True) -> None:
        before, grown = self._prompt, words(user) + words(output)
        requests = self.transcript.requests
        if requests:
            grown += words(requests[-1].said) + words("c")
        self._prompt += grown
        self._at += pause_s
        read = before if requests and hits and pause_s <= 300 else 0
        request = AgentRequest(
            at=1000 + self._at,
            model="claude-sonnet-4-5",
            user=[user] if user else [],
            outputs=[CallOutput(f"{len(requests) - 1}", output)] if output else [],
            said=said,
            calls=[AgentCall(f"{len(requests)}", "Read", "c")],
            usage=ProviderUsage(0, read, self._prompt - read, 0, words(said) + 1),
            is_user_turn=bool(user),
        )
        requests.append(request)

    def under(self, policy: SimulatedPolicy) -> tuple[float, PolicyFigures]:
        """Return what a policy saved, in input tokens, and its figures."""
        session = measure(self.transcript, count=words, scale=1.0)
        figures = simulate(session, policy)
        return (baseline(session) - figures.cost_usd) / USD, figures


def cold(keep: int) -> SimulatedPolicy:
    return SimulatedPolicy("cold", old=Policy(1000, spares_quoted=False, keep_newest=keep))


def turns(within: int, keep: int) -> SimulatedPolicy:
    policy = Policy(1000, spares_quoted=False, keep_newest=9, pays_within=within, keep_cached=keep)
    return SimulatedPolicy("turns", old=policy)


def entry(spares_quoted: bool) -> SimulatedPolicy:
    return SimulatedPolicy("entry", entry=Policy(1000, spares_quoted))


def aged_saving(talk: "Conversation") -> float:
    """Return what is saved when the first output shows its ends only."""
    form = measure(talk.transcript, count=words, scale=1.0).requests[1].outputs[0].forms.aged
    assert form is not None
    return form.saved


MASK_COLD = cold(0)


def test_as_it_was_a_session_costs_what_the_provider_counted():
    talk = Conversation()
    talk.ask("look at it")
    talk.ask(output=LONG, said="I see")
    talk.ask("and now", pause_s=900)
    session = measure(talk.transcript, count=words, scale=1.0)

    counted = [request.usage for request in talk.transcript.requests if request.usage]
    paid = sum(0.1 * usage.cache_read + 1.25 * usage.cache_write_5m + 5 * usage.output for usage in counted)
    assert baseline(session) / USD == pytest.approx(paid)


def test_where_the_money_went_adds_up():
    talk = Conversation()
    talk.ask("look at it")
    talk.ask(output=LONG, said="I see")
    talk.ask("and now", said="nothing more")
    session = measure(talk.transcript, count=words, scale=1.0)

    spent, tools = price_parts(session)

    assert sum(spent.values()) == pytest.approx(baseline(session))
    assert spent["fixed beginning"] / USD == pytest.approx(FIXED * (1.25 + 0.1 + 0.1))
    assert tools["Read"] / USD == pytest.approx(words(LONG) * (1.25 + 0.1))
    assert spent["other"] / USD == pytest.approx(0, abs=1)


def test_a_cold_cut_saves_the_writing_and_every_later_reading():
    talk = Conversation()
    talk.ask("look at it")
    talk.ask(output=LONG)
    talk.ask("hello again", pause_s=900)
    talk.ask("and again")

    saved, figures = talk.under(MASK_COLD)

    cut = aged_saving(talk)
    assert words(LONG) - 60 < cut < words(LONG)
    tool = tool_tokens() * (1.25 + 0.1 + 1.25 + 0.1)
    assert saved == pytest.approx(cut * (1.25 + 0.1) - tool)
    assert (figures.cut, figures.extra_turns, figures.harmed) == (1, 0, 0)


def test_while_the_cache_is_warm_nothing_old_is_cut():
    talk = Conversation()
    talk.ask("look at it")
    talk.ask(output=LONG)
    talk.ask("hello again", pause_s=200)

    assert talk.under(MASK_COLD)[1].cut == 0


def test_the_newest_outputs_stay():
    talk = Conversation()
    talk.ask("look at it")
    talk.ask(output=LONG)
    talk.ask(output=LONG.upper())
    talk.ask("hello again", pause_s=900)

    assert talk.under(cold(1))[1].cut == 1
    assert talk.under(cold(2))[1].cut == 0


def test_a_used_line_that_was_cut_costs_an_extra_turn():
    talk = Conversation()
    talk.ask("look at it")
    talk.ask(output=LONG)
    talk.ask("hello again", pause_s=900, said=LINE)

    saved, figures = talk.under(MASK_COLD)
    without = talk.under(cold(9))[0]

    assert (figures.extra_turns, figures.recoveries, figures.harmed) == (1, 1, 1)
    assert [(lost.request, lost.tool, lost.line) for lost in figures.lost] == [(2, "Read", LINE)]
    assert figures.recovery_usd > 0
    assert saved < without + 1.25 * aged_saving(talk)


def test_a_cut_at_a_new_turn_is_made_only_if_it_pays():
    talk = Conversation()
    talk.ask("look at it")
    talk.ask(output=LONG)
    talk.ask(output="short")
    talk.ask("next task")

    assert talk.under(turns(20, keep=0))[1].cut == 1
    assert talk.under(turns(20, keep=9))[1].cut == 0

    late = Conversation()
    late.ask("look at it")
    late.ask(output=LONG)
    late.ask(output="\n".join(f"much that came later, {at}" for at in range(5000)))
    late.ask("next task")

    assert late.under(turns(2, keep=1))[1].cut == 0


def test_after_a_compaction_nothing_is_saved_on_what_was_before():
    talk = Conversation()
    talk.ask("look at it")
    talk.ask(output=LONG)
    talk.ask("short again")
    last = talk.transcript.requests[-1]
    last.is_compacted, last.usage = True, ProviderUsage(0, 0, FIXED + 100, 0, 1)

    saved, _ = talk.under(SimulatedPolicy("oracle", oracle_over=100))

    assert saved == pytest.approx((words(LONG) - MARKER_TOKENS) * 1.25, abs=2)


def test_an_oracle_keeps_the_used_lines_and_harms_nothing():
    talk = Conversation()
    talk.ask("look at it")
    talk.ask(output=LONG)
    talk.ask("go on", said=LINE)

    saved, figures = talk.under(SimulatedPolicy("oracle", oracle_over=100))

    assert saved == pytest.approx((words(LONG) - words(LINE) - MARKER_TOKENS) * (1.25 + 0.1))
    assert figures.harmed == 0


def test_without_counts_of_the_provider_the_cache_is_modelled_by_the_clock():
    requests = [
        AgentRequest(at=1000 + at, model="claude-sonnet-4-5", user=["a few words"], said="ok") for at in (0, 10, 2000)
    ]
    session = measure(Transcript("Kimi CLI", "s", requests=requests, instructions="word " * 3000), count=words)

    first, second, third = session.requests
    assert (first.read, second.read, third.read) == (0, first.prompt, 0)
    assert (second.is_cold, third.is_cold) == (False, True)
    assert session.fixed == pytest.approx(1.15 * 3000)


def test_a_session_of_one_empty_request_costs_nothing():
    session = measure(Transcript("any", "s", requests=[AgentRequest()]))

    assert baseline(session) == 0
    assert price_parts(session)[1] == {}


@pytest.mark.parametrize(
    ("tool", "edit", "is_cut"),
    [("Read", "old_string", False), ("Read", "patch", True), ("Bash", "old_string", True), ("Task", "patch", False)],
)
def test_what_is_likely_to_be_quoted_can_be_spared_at_entry(tool: str, edit: str, is_cut: bool):
    code = "\n".join(f"def handler_{at}(request): return answer_{at}(request.path, {at})" for at in range(1500))
    talk = Conversation()
    talk.transcript.agent = "opencode"
    talk.ask("look at it")
    talk.ask(output=code)
    first, second = talk.transcript.requests
    first.calls = [AgentCall("0", tool, "c")]
    second.calls = [AgentCall("1", "Edit", f'{{"{edit}": "x"}}')]

    assert talk.under(entry(spares_quoted=True))[1].cut == is_cut


def test_an_output_that_failed_or_whose_file_is_named_stays_when_old_ones_are_cut():
    talk = Conversation()
    talk.ask("look at it")
    talk.ask(output=LONG)
    talk.ask("hello again", pause_s=900)
    first, second, third = talk.transcript.requests
    assert talk.under(MASK_COLD)[1].cut == 1

    second.outputs[0].failed = True
    assert talk.under(MASK_COLD)[1].cut == 0

    second.outputs[0].failed = False
    first.calls = [AgentCall("0", "Read", '{"file_path": "/src/app.py"}')]
    third.user = ["what does app.py do?"]
    assert talk.under(MASK_COLD)[1].cut == 0


def test_a_file_that_is_read_again_becomes_a_pointer_until_its_target_is_cut():
    text = "\n".join(f"    value_{n} = compute({n}, {n * n})  # a line of some length" for n in range(400))
    talk = Conversation()
    talk.ask("look at it")
    talk.ask(output=text)
    talk.ask(output=text)
    talk.ask("hello again", pause_s=900)
    for request in talk.transcript.requests[:2]:
        request.calls = [AgentCall(request.calls[0].id, "Read", '{"file_path": "/src/app.py"}')]
    lossless = SimulatedPolicy("lossless", lossless=True)
    both = SimulatedPolicy("both", lossless=True, old=Policy(1000, spares_quoted=False, keep_newest=1))

    first, second = (
        request.outputs[0] for request in measure(talk.transcript, count=words, scale=1.0).requests if request.outputs
    )
    assert first.forms.pointers == ()
    assert [form.points_to for form in second.forms.pointers] == [first.index]
    assert talk.under(lossless)[1].cut == 1
    assert talk.under(both)[1].cut == 2  # the second shows again what the first no longer does


@pytest.mark.parametrize("name", ["careful", "default", "deep"])
def test_no_policy_lets_a_huge_output_enter_whole(name: str):
    talk = Conversation()
    talk.ask("look at it")
    talk.ask(output="\n".join(f"row {at} of a table in which every row is wanted" for at in range(12_000)))
    policy = next(policy for key, policy in POLICIES.items() if key == name)

    assert talk.under(SimulatedPolicy(name, lossless=True, entry=policy, old=policy))[1].cut == 1


def cause_of(talk: Conversation) -> list[tuple[int, str, float]]:
    session = measure(talk.transcript, count=words, scale=1.0)
    misses = [request.miss for request in session.requests if request.miss]
    return [(miss.request, miss.cause, miss.pause_s) for miss in misses]


def test_a_pause_that_is_longer_than_the_cache_lives_is_a_miss_with_its_cost():
    talk = Conversation()
    talk.ask("look at it")
    talk.ask(output=LONG)
    talk.ask("hello again", pause_s=900)
    talk.ask("and again")

    (miss,) = [one.miss for one in measure(talk.transcript, count=words, scale=1.0).requests if one.miss]

    lost = talk.transcript.requests[1].usage
    assert lost is not None
    assert (miss.request, miss.cause, miss.pause_s, miss.tokens) == (2, PAUSE, 900, lost.prompt)
    assert miss.usd / USD == pytest.approx(lost.prompt * (1.25 - 0.1))


def test_every_miss_has_the_cause_that_the_transcript_tells():
    talk = Conversation()
    talk.ask("look at it")
    talk.ask("tomorrow", pause_s=50_000)
    talk.ask("at once", hits=False)
    talk.ask("with another model", hits=False)
    talk.transcript.requests[-1].model = "claude-opus-4-6"
    talk.ask("and so on")
    talk.transcript.requests[-1].model = "claude-opus-4-6"
    talk.ask("in short", hits=False)
    talk.transcript.requests[-1].model = "claude-opus-4-6"
    talk.transcript.requests[-1].is_compacted = True

    assert cause_of(talk) == [
        (1, LONG_PAUSE, 50_000),
        (2, CHANGED, 10),
        (3, SWITCHED, 10),
        (5, COMPACTED, 10),
    ]


def test_where_the_client_changed_its_own_prompt_old_outputs_behind_the_change_are_cut():
    talk = Conversation()
    talk.ask("look at it")
    talk.ask(output=LONG)
    talk.ask("hello again", hits=False)
    last = talk.transcript.requests[-1].usage
    assert last is not None
    assert talk.under(MASK_COLD)[1].cut == 1

    last.cache_read, last.cache_write_5m = last.prompt - 100, 100  # the change came after the output
    assert talk.under(MASK_COLD)[1].cut == 0


def test_a_pause_of_a_few_seconds_over_the_life_is_not_cold_yet():
    talk = Conversation()
    talk.ask("look at it")
    talk.ask("hello again", pause_s=299)
    talk.transcript.requests[-1].at += 20

    assert not measure(talk.transcript, count=words, scale=1.0).requests[1].is_cold


def test_a_cache_for_an_hour_costs_more_to_write_unless_a_pause_needs_it():
    talk = Conversation()
    talk.ask("look at it")
    talk.ask(output=LONG)
    for request in talk.transcript.requests:
        assert request.usage is not None
        request.usage.cache_write_1h, request.usage.cache_write_5m = request.usage.cache_write_5m, 0
    written = sum(request.usage.cache_write_1h for request in talk.transcript.requests if request.usage)
    session = measure(talk.transcript, count=words, scale=1.0)
    assert session.requests[0].price.write == 2
    assert session.hour_premium_usd / USD == pytest.approx(written * (2 - 1.25))

    talk.transcript.requests[1].at += 900

    needed = FIXED + words("look at it")
    premium = measure(talk.transcript, count=words, scale=1.0).hour_premium_usd
    assert premium / USD == pytest.approx(written * (2 - 1.25) - needed * (1.25 - 0.1))


@pytest.mark.parametrize(
    ("model", "usd", "read"),
    [
        ("claude-opus-5", 5.0, 0.1),
        ("claude-fable-5", 10.0, 0.1),
        ("claude-opus-5-5", 4.0, 0.05),
        ("nobody-knows", 3.0, 0.1),
    ],
)
def test_prices_are_those_of_the_list_of_models(model: str, usd: float, read: float):
    price = price_of(model)

    assert (price.usd * 1e6, price.read) == (pytest.approx(usd), pytest.approx(read))
    session = measure(Transcript("any", "s", requests=[AgentRequest(model=model)]))
    assert session.unpriced == ({model} if model == "nobody-knows" else set())


def test_a_summary_takes_the_place_of_old_exchanges_when_the_window_is_nearly_full():
    preset = Preset("compression", 80, keep_exchanges=1, summary_tokens=100, asks_provider=True)
    talk = Conversation()
    for at in range(6):
        talk.ask(f"task {at}")
        talk.ask(output=LONG.replace("line", f"line{at}"), said="done")
    session = measure(talk.transcript, count=words, scale=1.0)
    window = round(session.requests[-1].prompt)

    off = simulate(session, SimulatedPolicy("off"), window)
    done = simulate(session, SimulatedPolicy("compressed", compression=preset), window)

    assert (off.compressions, done.compressions) == (0, 1)
    assert done.largest < off.largest <= window
    assert done.input < off.input
    assert simulate(session, SimulatedPolicy("compressed", compression=preset), None) == simulate(
        session, SimulatedPolicy("off")
    )


def parts(**more: object) -> SimulatedPolicy:
    return SimulatedPolicy("parts", **more)  # type: ignore[arg-type]


def long_talk(*pauses_s: float) -> Conversation:
    """A conversation of more than 20,000 tokens."""
    talk = Conversation()
    talk.ask("word " * 20_000)
    for pause_s in pauses_s:
        talk.ask("and now", pause_s=pause_s, said="done")
    return talk


def test_pings_pay_in_a_pause_that_they_bridge_and_are_lost_after_the_last_request():
    talk = long_talk(500)
    prompt = FIXED + 20_000
    saved, figures = talk.under(parts(pings=2))

    bridged = prompt * (1.25 - 0.1)
    one_ping = prompt * 0.1 + 5
    assert figures.pings == 3  # one in the pause; two when the user did not come back
    assert saved == pytest.approx(bridged - 3 * one_ping, rel=0.001)


def test_a_pause_that_is_longer_than_the_pings_is_paid_for_twice():
    saved, figures = long_talk(5000).under(parts(pings=2))

    assert figures.pings == 4
    assert saved == pytest.approx(-4 * 0.1 * (FIXED + 20_000), rel=0.01)


def test_short_conversations_and_sub_agents_are_not_kept_warm():
    short = Conversation()
    short.ask("look at it")
    short.ask("and now", pause_s=500)
    helper = long_talk(500)
    helper.transcript.is_sidechain = True

    assert short.under(parts(pings=2))[1].pings == 0
    assert helper.under(parts(pings=2))[1].pings == 0


def test_old_thinking_that_is_sent_back_goes_when_the_cache_is_cold():
    talk = Conversation()
    talk.ask("look at it", said="first")
    talk.transcript.requests[-1].usage = ProviderUsage(0, 0, FIXED + 3, 0, 1_002)
    talk._prompt += 1_000  # the thinking of the first answer, which later prompts carry
    talk.ask("go on", said="second")
    talk.transcript.requests[-1].usage = ProviderUsage(0, FIXED + 3, 1_005, 0, 502)
    talk._prompt += 500  # of the second, which is the newest and stays
    talk.ask("and now", pause_s=900)
    talk.ask("and then")

    saved, _ = talk.under(parts(clears_thinking=True))

    assert saved == pytest.approx(1_000 * (1.25 + 0.1), rel=0.02)


def test_old_thinking_goes_too_when_the_client_changed_the_beginning_of_its_prompt():
    talk = Conversation()
    for number in range(3):
        talk.ask(f"question {number}", said="answer")
        used = talk.transcript.requests[-1].usage
        assert used is not None
        used.output += 1_000
        talk._prompt += 1_000
    talk.ask("and now", hits=False)
    talk.ask("and then")

    saved, _ = talk.under(parts(clears_thinking=True))
    # The provider still reads the beginning from its cache where the client's change stands behind all thinking.
    last = talk.transcript.requests[3].usage
    assert last is not None
    last.cache_read, last.cache_write_5m = 7_500, last.cache_write_5m - 7_500
    behind, _ = talk.under(parts(clears_thinking=True))

    assert saved == pytest.approx(2_000 * (1.25 + 0.1), rel=0.02)
    assert behind == 0


def test_long_arguments_of_old_calls_go_when_the_cache_is_cold():
    talk = Conversation()
    for number in range(4):
        talk.ask(f"write file {number}")
        talk.transcript.requests[-1].calls = [AgentCall(f"w{number}", "Write", '{"content": "' + "word " * 500 + '"}')]
        talk._prompt += 500
    talk.ask("and now", pause_s=900)

    saved, _ = talk.under(parts(cuts_arguments=True))

    assert saved == pytest.approx((501 - MARKER_TOKENS) * 1.25, rel=0.02)  # of the oldest: the newest three stay


def test_cuts_behind_a_client_s_own_change_can_be_left_out():
    talk = Conversation()
    talk.ask("look at it")
    talk.ask(output=LONG)
    talk.ask("changed", hits=False)

    assert talk.under(cold(0))[1].cut == 1
    assert talk.under(parts(old=Policy(1000, spares_quoted=False, keep_newest=0), after_change=False))[1].cut == 0
