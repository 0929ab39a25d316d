"""The numbers of an id count what its answer counted: lines, or the parts of a very long line."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest
from tests.support.fakes import MemoryOriginals
from tests.support.texts import a_question

from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.config import PrunerSettings
from kimi_proxy.core.prune import rows_of
from kimi_proxy.features.recovery import Selection
from kimi_proxy.services.pruner import PruneAnswer, Pruner
from kimi_proxy.services.recover import ReadBack, Recovery
from kimi_proxy.services.workers.pool import Workers

ORDERS = json.dumps([{"id": n, "state": "ok" if n != 300 else "failed: card declined"} for n in range(600)])


@dataclass
class World:
    originals: MemoryOriginals
    pruner: Pruner

    async def prune(self, text: str, goal: str = "which order failed?", ratio: float = 0.9) -> PruneAnswer:
        return await self.pruner.prune(LOCAL, a_question(text, goal, "code", max_prune_ratio=ratio))

    async def read(self, answer: PruneAnswer, *ranges: tuple[int, int]) -> ReadBack:
        assert answer.prune_id
        return await Recovery(self.originals).read(LOCAL, answer.prune_id, Selection(ranges))

    def change_note(self, answer: PruneAnswer, **changes: object) -> None:
        place = LOCAL.scope, str(answer.prune_id)
        note = {**json.loads(self.originals.kept[place].about), **changes}
        about = json.dumps({name: value for name, value in note.items() if value is not None}).encode()
        self.originals.kept[place] = replace(self.originals.kept[place], about=about)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    originals, workers = MemoryOriginals(), Workers(thread_max_chars=10**9)
    yield World(originals, Pruner(PrunerSettings(), originals, workers))
    await workers.close()


@pytest.mark.parametrize("text", [ORDERS, f"{ORDERS}\n"], ids=["without a newline", "with a newline"])
async def test_where_nothing_is_cut_lines_are_counted(world: World, text: str) -> None:
    answer = await world.prune(text, ratio=0.0)
    lines = text.split("\n")
    found = await world.read(answer, (1, 2))

    assert answer.pruned.annotations == ()
    assert (answer.stats()["numbering"], answer.stats()["original_lines"]) == ("lines", len(lines))
    assert (found.text, found.numbering, found.last) == (text, "lines", len(lines))


@pytest.mark.parametrize("text", [ORDERS, f"{ORDERS}\n"], ids=["without a newline", "with a newline"])
async def test_where_a_long_line_is_cut_parts_are_counted(world: World, text: str) -> None:
    answer = await world.prune(text)
    stats, pruned = answer.stats(), answer.pruned
    everything = await world.read(answer, (1, stats["original_lines"]))
    rebuilt = pruned.text
    for annotation in pruned.annotations:
        cut = annotation.cut
        hidden = (await world.read(answer, (cut.start, cut.end))).text
        assert hidden in text
        rebuilt = rebuilt.replace(f'"{annotation.marker}",', hidden.removesuffix(" "))

    assert stats["numbering"] == "parts"
    assert stats["pruned_lines"] <= 0.9 * stats["original_lines"]
    assert (everything.text, everything.numbering) == (text, "parts")
    assert json.loads(rebuilt) == json.loads(text)


HEADERS = "HTTP/1.1 200 OK\ndate: Mon, 05 Jan 2026 10:00:00 GMT\ncontent-type: application/json\nserver: shop\n"
ROWS = "".join(f"<row id='{n}'><state>{'ok' if n != 300 else 'failed'}</state></row>" for n in range(600))
SCRIPT = "".join(f"function order{n}(a){{return a+{n}}};" for n in range(300))
WORDS = "the order was shipped and nothing else was said about it, " * 200


@pytest.mark.parametrize("before", ["\n", "200\n", "HTTP/1.1 200 OK\n", f"{HEADERS}\n"], ids=range(4))
@pytest.mark.parametrize("after", ["", "\n", "\n\nreal 0m0.120s\n"], ids=range(3))
@pytest.mark.parametrize(
    "body",
    [ORDERS, f'{{"rows":{ORDERS},"page":1}}', f"<rows>{ROWS}</rows>", SCRIPT, WORDS],
    ids=["array", "object", "xml", "script", "words"],
)
async def test_a_long_line_is_cut_among_short_ones_too(world: World, before: str, body: str, after: str) -> None:
    text = before + body + after
    answer = await world.prune(text)
    stats, pruned = answer.stats(), answer.pruned
    numbers = [(one.cut.start, one.cut.end) for one in pruned.annotations]
    hidden = [(await world.read(answer, each)).text for each in numbers]
    everything = await world.read(answer, (1, stats["original_lines"]))

    assert stats["numbering"] == "parts"
    assert 0 < stats["pruned_lines"] <= 0.9 * stats["original_lines"]
    assert pruned.tokens_after < 0.9 * pruned.tokens_before
    assert everything.text == text
    assert all(len(one) > 100 and one in body for one in hidden)
    assert pruned.text.startswith(before) and pruned.text.endswith(after)
    assert sum(map(len, hidden)) > 0.1 * len(text)
    if body.startswith(("[", "{")):
        json.loads(pruned.text.removeprefix(before).removesuffix(after))


async def test_numbers_keep_their_meaning_if_a_later_version_divides_texts_elsewhere(world: World) -> None:
    answer = await world.prune(ORDERS)
    world.change_note(answer, part_chars=[10, 20, 30])

    assert (await world.read(answer, (2, 3))).text == ORDERS[10:60]
    assert (await world.read(answer, (4, 4))).text == ORDERS[60:]


async def test_an_id_of_an_earlier_version_counts_as_it_did_then(world: World) -> None:
    answer = await world.prune(ORDERS)
    world.change_note(answer, part_chars=None)
    rows = rows_of(ORDERS, answer.pruned.part_starts)

    assert (await world.read(answer, (5, 9))).text == "".join(rows[4:9])


async def test_an_explanation_counts_as_its_answer_did(world: World) -> None:
    cut, whole = await world.prune(ORDERS), await world.prune(f"{ORDERS}\n", ratio=0.0)
    assert cut.prune_id and whole.prune_id
    by_parts = await world.pruner.explain(LOCAL, cut.prune_id)
    by_lines = await world.pruner.explain(LOCAL, whole.prune_id)

    assert "".join(by_parts.texts) == ORDERS
    assert [why.line for why in by_parts.lines] == list(range(1, len(by_parts.texts) + 1))
    assert {why.line for why in by_parts.lines if not why.kept} == {
        n for one in cut.pruned.annotations for n in range(one.cut.start, one.cut.end + 1)
    }
    assert [why.line for why in by_lines.lines] == [1, 2]
