"""While the prompt cache is warm, a request begins with the bytes of the one before, unless a cut was announced."""

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from tests.support.conversations import Assistant, Call, Item, Result, User, request
from tests.support.services.chat.sanitizing import Clock, world

from kimi_proxy.core.chat import Wire
from kimi_proxy.core.config.sections import SanitizerSettings as Settings
from kimi_proxy.core.json import JsonValue
from kimi_proxy.features.chat.pipeline import Draft
from kimi_proxy.features.sanitizer.stage import EVENT

WARM_S, COLD_S = 200, 90_000
CACHED: dict[str, JsonValue] = {"cache_control": {"type": "ephemeral"}}
FILES = [[f"    value_{n}_{row} = lookup({row * n}, {row})  # of module {n}" for row in range(260)] for n in range(4)]


def file_read(dice: Random) -> tuple[str, dict[str, str], str]:
    """A window of a file with row numbers, as agents read it again and again, sometimes after an edit."""
    which, first = dice.randrange(len(FILES)), dice.choice((0, 0, 40))
    lines = FILES[which][first : first + dice.choice((60, 160, 260))]
    if dice.random() < 0.3:
        lines[len(lines) // 2] = f"    changed_{dice.randrange(9)} = True"
    text = "\n".join(f"{first + row:6}→{line}" for row, line in enumerate(lines, 1))
    return "Read", {"file_path": f"/src/module_{which}.py"}, text


def command_run(dice: Random) -> tuple[str, dict[str, str], str]:
    rows = [
        f"2026-01-01 12:00:{row % 60:02} INFO worker {row % 7} did job {row}" for row in range(dice.choice((9, 300)))
    ]
    if dice.random() < 0.4:
        rows.append("ERROR: job 17 failed: connection refused")
    return "Bash", {"command": dice.choice(("make test", "make build"))}, "\x1b[32m" + "\n".join(rows)


def records_found(dice: Random) -> tuple[str, dict[str, str], str]:
    found = [{"id": n, "name": f"record {n}", "size": n * n} for n in range(dice.choice((4, 90)))]
    return "query", {"table": "jobs"}, json.dumps(found)


def turns(dice: Random, count: int) -> Iterator[tuple[int, list[Item]]]:
    """Yield pauses, and what each request has more than the one before."""
    yield 0, [User("Mend the worker, please.")]
    for at in range(count):
        tool, arguments, text = dice.choice((file_read, file_read, command_run, records_found))(dice)
        more: list[Item] = [Assistant("", (Call(f"c{at}", tool, dict(arguments)),)), Result(f"c{at}", text)]
        if dice.random() < 0.25:
            more += [Assistant("Done."), User(f"Now number {at}, please.")]
        yield dice.choice((WARM_S,) * 6 + (COLD_S,)), more


def beginning(draft: Draft) -> bytes:
    """What a provider caches of a request: its tools, and its messages up to the end of the last."""
    body = draft.request.body
    messages = [body[message.start : message.end] for message in draft.request.messages]
    return bytes(draft.request.members["tools"]) + b"".join(messages)


def resent(draft: Draft) -> int:
    return sum(int(str(note.fields["prefix_tokens_resent"])) for note in draft.notes if note.event == EVENT)


@pytest.mark.parametrize("policy", ["careful", "default", "deep"])
@pytest.mark.parametrize("wire", list(Wire))
async def test_a_warm_prefix_never_changes_unless_a_cut_is_announced(tmp_path: Path, wire: Wire, policy: str):
    dice, clock, items = Random(f"{wire}{policy}"), Clock(), list[Item]()
    settings = Settings(budget_ms=60_000, policy=policy)  # type: ignore[arg-type]
    compared = 0
    before: Draft | None = None
    async with world(tmp_path, settings, clock=clock) as here:
        for pause_s, more in turns(dice, 14):
            clock.now += pause_s
            items += more
            now = await here.send(request(wire, items, **CACHED))
            if before is not None and pause_s == WARM_S and not resent(now):
                assert beginning(now).startswith(beginning(before))
                compared += 1
            before = now
    assert compared >= 5
