"""What gives way keeps the last exchanges, the question at hand, and every call with its results."""

from collections.abc import Sequence

import pytest
from tests.support.conversations import Assistant, Call, Item, Result, User, request

from kimi_proxy.core.chat import Wire
from kimi_proxy.features.chat.compression import CompressionPlan, History, Preset, plan

TOKENS = 100  # of each message


def planned(
    items: Sequence[Item], keep: int = 5, window: int | None = None, is_full: bool = True
) -> CompressionPlan | None:
    history = History(request(Wire.CHAT, items))
    total = TOKENS * len(history.messages)
    preset = Preset("compression", 0 if is_full else 1000, keep, 1500, asks_provider=False)
    return plan(history, [TOKENS] * len(history.messages), total, total, preset, window or total)


def chat(exchanges: int) -> list[Item]:
    return [item for n in range(exchanges) for item in (User(f"ask {n}"), Assistant(f"answer {n}"))]


def loop(steps: int) -> list[Item]:
    return [User("go"), *(i for n in range(steps) for i in (Assistant("", (Call(f"c{n}"),)), Result(f"c{n}", "x")))]


def test_the_last_five_exchanges_stay_beside_the_one_that_is_open():
    found = planned([*chat(20), User("now")])

    assert found is not None
    assert (found.cut, found.kept, found.removed) == (30, (), tuple(range(30)))


def test_fewer_stay_if_five_would_leave_the_window_full():
    found = planned([*chat(7), User("now")], window=1500)

    assert found is not None
    assert found.cut > 4


def test_nothing_goes_if_all_that_is_old_is_too_short():
    assert planned(chat(5)[:4], window=100_000, is_full=False) is None
    assert planned([*chat(6), User("now")], window=100_000, is_full=False) is None


def test_below_the_threshold_no_more_goes_than_what_lies_before_the_last_five():
    found = planned([*chat(12), User("now")], window=100_000, is_full=False)

    assert found is not None and found.cut == 14


def test_in_a_long_loop_of_tools_old_steps_go_and_the_question_stays():
    found = planned(loop(30), window=6100)

    assert found is not None
    assert 0 in found.kept
    assert found.cut > 1 and 0 not in found.removed


def test_a_summary_is_shorter_than_what_it_replaces():
    found = planned([*chat(8), User("now")])

    assert found is not None
    assert found.summary_tokens <= found.removed_tokens // 4


@pytest.mark.parametrize("keep", [1, 2, 5, 50])
def test_more_exchanges_stay_where_more_are_wished(keep: int):
    found = planned([*chat(30), User("now")], keep=keep, window=100_000, is_full=False)

    assert (found.cut if found else None) == (60 - 2 * keep if keep < 30 else None)
