"""A day of work with an agent, as clients of several providers send it: requests, and the pauses before them."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from tests.support import outputs
from tests.support.cached_providers import (
    Block,
    CachedProvider,
    Counts,
    anthropic,
    deepseek,
    moonshot,
    openai,
    openai_breakpoints,
)
from tests.support.conversations import Assistant, Call, Item, Result, User, body

from kimi_proxy.core.chat import Wire
from kimi_proxy.core.json import JsonObject


@dataclass(frozen=True)
class Case:
    model: str
    wire: Wire
    cache: Callable[[CachedProvider, Sequence[Block]], Counts]
    prices: dict[str, float]
    life_s: float
    mark: JsonObject | None = None  # that the client sets at the end of its newest message


def prices(plain: float, read: float, write: float, hour: float = 0.0) -> dict[str, float]:
    return {"plain": plain, "read": read, "write": write, "hour": hour or write, "output": 5 * plain}


CLAUDE = Case("claude-opus-5", Wire.MESSAGES, anthropic, prices(5, 0.5, 6.25, 10), 300, {"type": "ephemeral"})
CASES = {
    "anthropic, 5 minutes": CLAUDE,
    "anthropic, an hour": replace(CLAUDE, life_s=3600, mark={"type": "ephemeral", "ttl": "1h"}),
    "anthropic, a client without marks": replace(CLAUDE, mark=None),
    "openai before 5.6": Case("gpt-5", Wire.CHAT, openai, prices(1.25, 0.125, 1.25), 3600),
    "openai from 5.6 on": Case("gpt-5.6-terra", Wire.CHAT, openai_breakpoints, prices(2, 0.2, 2.5), 1800),
    "moonshot": Case("kimi-k3", Wire.CHAT, moonshot, prices(3, 0.3, 3), 300),
    "deepseek": Case("deepseek-v4-flash", Wire.CHAT, deepseek, prices(0.3, 0.006, 0.3), 7 * 86_400),
}


def toml(address: str, case: Case) -> str:
    kind = "anthropic" if case.wire is Wire.MESSAGES else "openai"
    names = {"plain": "input", "read": "cached", "write": "cache_write", "hour": "long_write", "output": "output"}
    priced = "".join(f"{names[name]}_usd_per_million = {usd}\n" for name, usd in case.prices.items())
    model = f'[models."{case.model}"]\nprovider = "{kind}-evil"\nmax_context_size = 1_000_000\n{priced}'
    return f'{address}{model}[sanitizer]\nbudget_ms = 60_000\npolicy = "careful"\n'


def asked(case: Case, items: Sequence[Item]) -> bytes:
    made = json.loads(body(case.wire, items, model=case.model))
    if case.wire is Wire.MESSAGES:
        made["system"] = INSTRUCTIONS
        if case.mark:
            last = made["messages"][-1]
            content = last["content"]
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            last["content"] = [*blocks[:-1], {**blocks[-1], "cache_control": case.mark}]
    else:
        made["messages"][0]["content"] = INSTRUCTIONS
    return json.dumps(made).encode()


INSTRUCTIONS = "You are a careful engineer. " * 300


def a_day(case: Case) -> list[tuple[float, bytes]]:
    """Return requests with the pauses before them: two outlive the cache, and once the client changes its beginning."""
    items: list[Item] = [User("Tidy up the importer.")]
    requests: list[tuple[float, bytes]] = [(0.0, asked(case, items))]
    for number in range(40):
        log = outputs.pytest_log(60, number).text if number % 9 == 4 else ""
        text = log or "\n".join(f"value_{number}_{row} = lookup({row * number})" for row in range(10 + number % 40))
        call = Call(f"c{number}", "read_file", {"path": f"src/m{number}.py"})
        items += [Assistant("", (call,)), Result(call.id, text)]
        if number == 25:
            items[0] = User("Tidy up the importer, please.")
        requests.append((case.life_s + 40.0 if number in (12, 33) else 20.0, asked(case, items)))
    return requests


# Old results wait for the pauses; the client's own change of its first message is no fault of ours.
FREE = frozenset({13, 26, 34})


def changed_prefixes(prompts: Sequence[Sequence[str]]) -> set[int]:
    """Return the requests that do not begin as the one before them."""
    return {at for at, (before, now) in enumerate(pairwise(prompts), 1) if now[: len(before)] != before}
