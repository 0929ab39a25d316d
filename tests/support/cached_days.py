"""A day of work with an agent, as clients of several providers send it: requests, and the pauses before them."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, pairwise
from pathlib import Path

from tests.support import outputs
from tests.support.cached_providers import (
    Block,
    CachedProvider,
    Counts,
    anthropic,
    counted,
    deepseek,
    moonshot,
    openai,
    openai_breakpoints,
    picture,
    rendered,
    sealed,
)
from tests.support.conversations import Assistant, Call, Item, Result, User, body

from kimi_proxy.core.chat import Wire
from kimi_proxy.core.json import JsonObject
from kimi_proxy.features.recording import read

RECORDINGS = Path(__file__).parents[1] / "recordings"


@dataclass(frozen=True)
class Case:
    model: str
    wire: Wire
    cache: Callable[[CachedProvider, Sequence[Block]], Counts]
    prices: dict[str, float]
    life_s: float
    mark: JsonObject | None = None  # that the client sets at the end of its newest message
    thinks: bool = False  # its model thinks before each answer
    looks: bool = False  # some results come with an image or a document
    returns_thinking: bool = True  # the client sends it back, in the form of this API
    policy: str = "careful"

    @property
    def kind(self) -> str:
        return "anthropic" if self.wire is Wire.MESSAGES else "openai"


def prices(plain: float, read: float, write: float, hour: float = 0.0) -> dict[str, float]:
    return {"plain": plain, "read": read, "write": write, "hour": hour or write, "output": 5 * plain}


CLAUDE = Case("claude-opus-5", Wire.MESSAGES, anthropic, prices(5, 0.5, 6.25, 10), 300, {"type": "ephemeral"})
GPT = Case("gpt-5.6-terra", Wire.CHAT, openai_breakpoints, prices(2, 0.2, 2.5), 1800, returns_thinking=False)
CASES = {
    "anthropic, 5 minutes": CLAUDE,
    "anthropic, an hour": replace(CLAUDE, life_s=3600, mark={"type": "ephemeral", "ttl": "1h"}),
    "anthropic, a client without marks": replace(CLAUDE, mark=None),
    "openai before 5.6": Case("gpt-5", Wire.CHAT, openai, prices(1.25, 0.125, 1.25), 3600, returns_thinking=False),
    "openai from 5.6 on": GPT,
    "openai responses": replace(GPT, wire=Wire.RESPONSES, returns_thinking=True),
    "moonshot": Case("kimi-k3", Wire.CHAT, moonshot, prices(3, 0.3, 3), 300),
    "deepseek": Case("deepseek-v4-flash", Wire.CHAT, deepseek, prices(0.3, 0.006, 0.3), 7 * 86_400),
}


RECORDED = {
    "debugging": replace(CLAUDE, model="claude-sonnet-4-5", mark=None, policy="default"),
    "refactoring": replace(CASES["moonshot"], model="kimi-k2-0905-preview", policy="default"),
    "log-hunt": replace(CASES["openai before 5.6"], wire=Wire.RESPONSES, returns_thinking=True, policy="default"),
}


def toml(address: str, case: Case) -> str:
    names = {"plain": "input", "read": "cached", "write": "cache_write", "hour": "long_write", "output": "output"}
    priced = "".join(f"{names[name]}_usd_per_million = {usd}\n" for name, usd in case.prices.items())
    model = f'[models."{case.model}"]\nprovider = "{case.kind}-evil"\nmax_context_size = 1_000_000\n{priced}'
    return f'{address}{model}[sanitizer]\nbudget_ms = 60_000\npolicy = "{case.policy}"\n'


def asked(case: Case, items: Sequence[Item]) -> bytes:
    made = _as_client_sends(case, json.loads(body(case.wire, items, model=case.model)))
    if case.wire is Wire.CHAT:
        made["messages"][0]["content"] = INSTRUCTIONS
    else:
        made["instructions" if case.wire is Wire.RESPONSES else "system"] = INSTRUCTIONS
    if case.mark:
        last = made["messages"][-1]
        content = last["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        last["content"] = [*blocks[:-1], {**blocks[-1], "cache_control": case.mark}]
    return json.dumps(made).encode()


def recorded_day(case: Case, name: str) -> list[tuple[float, bytes]]:
    """Return the requests of a recorded conversation, and the pauses before them."""
    with (RECORDINGS / f"{name}.jsonl").open("rb") as lines:
        requests = read(lines).requests
    pauses = [0.0, *(later.at - earlier.at for earlier, later in pairwise(requests))]
    bodies = (json.dumps(_as_client_sends(case, json.loads(one.body))).encode() for one in requests)
    return list(zip(pauses, bodies, strict=True))


def _as_client_sends(case: Case, made: JsonObject) -> JsonObject:
    """Return a request with the thinking and the images that belong to the messages in it."""
    thinking = _with_thinking(case, _said(made))
    return made | {_member(made): [one for message in thinking for one in _with_pictures(case, message)]}


def _member(made: JsonObject) -> str:
    return "input" if "input" in made else "messages"


def _said(made: JsonObject) -> list[JsonObject]:
    return made[_member(made)]


INSTRUCTIONS = "You are a careful engineer. " * 300


def thought(case: Case, number: int) -> str:
    """Return what the model thinks before its answer to a request: up to some 700 tokens of prose."""
    if not case.thinks:
        return ""
    steps = (f"Module {number} has a lookup in row {row}, so its callers come next. " for row in range(number * 7 % 45))
    return "I should read this file before I change anything. " + "".join(steps)


def answers(case: Case, day: Sequence[tuple[float, bytes]]) -> list[tuple[int, int]]:
    """Return the provider's count of each answer, and of what its client does not send back of it."""
    said = [_said(json.loads(raw)) for _, raw in day]
    found = []
    for number, (now, later) in enumerate(pairwise(said)):
        answer = [message for message in later[len(now) :] if _is_answer(message) or message.get("type") == "reasoning"]
        sent_back = sum(counted(text) for text, _ in rendered({"messages": answer}))
        hidden = 0 if case.returns_thinking or not case.thinks else counted(thought(case, number))
        found.append((sent_back + hidden, hidden))
    return [*found, (50, 0)]


def _answer(number: int) -> Assistant:
    return Assistant("", (Call(f"c{number}", "read_file", {"path": f"src/m{number}.py"}),))


def _with_thinking(case: Case, messages: Sequence[JsonObject]) -> Iterator[JsonObject]:
    """Yield a conversation with the thinking that its client sends back."""
    numbers = count()
    for message in messages:
        if not case.thinks or not case.returns_thinking or not _is_answer(message):
            yield message
            continue
        words = thought(case, next(numbers))
        match case.wire:
            case Wire.MESSAGES:
                hidden = {"type": "thinking", "thinking": "", "signature": sealed(words)}
                yield {**message, "content": [hidden, *message["content"]]}
            case Wire.RESPONSES:
                yield {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": sealed(words)}
                yield message
            case _:
                yield {**message, "reasoning_content": words}


def _is_answer(message: JsonObject) -> bool:
    return message.get("role") == "assistant" or message.get("type") == "function_call"


LOOKS = {"c7": ("image", 1334), "c15": ("document", 2875), "c21": ("image", 1590)}  # tokens of each, for the provider


def _with_pictures(case: Case, message: JsonObject) -> list[JsonObject]:
    """Return a message, and the image or document that its client shows with it."""
    content = message.get("content")
    block = content[-1] if isinstance(content, list) and content else {}
    id = message.get("tool_call_id") or message.get("call_id") or block.get("tool_use_id")
    if not case.looks or id not in LOOKS or _is_answer(message):
        return [message]
    kind, tokens = LOOKS[id]
    data = picture(tokens, int(id[1:]))
    match case.wire:
        case Wire.MESSAGES:
            media = "image/png" if kind == "image" else "application/pdf"
            source = {"type": "base64", "media_type": media, "data": data}
            return [{**message, "content": [*content, {"type": kind, "source": source}]}]
        case Wire.RESPONSES:
            shown: JsonObject = {"type": "input_image", "image_url": f"data:image/png;base64,{data}"}
            if kind == "document":
                shown = {"type": "input_file", "file_data": data}
        case _:
            shown = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
            if kind == "document":
                shown = {"type": "file", "file": {"file_data": data}}
    return [message, {"role": "user", "content": [shown]}]


def a_day(case: Case) -> list[tuple[float, bytes]]:
    """Return requests with the pauses before them: two outlive the cache, and once the client changes its beginning."""
    items: list[Item] = [User("Tidy up the importer.")]
    requests: list[tuple[float, bytes]] = [(0.0, asked(case, items))]
    for number in range(40):
        log = outputs.pytest_log(60, number).text if number % 9 == 4 else ""
        text = log or "\n".join(f"value_{number}_{row} = lookup({row * number})" for row in range(10 + number % 40))
        items += [_answer(number), Result(f"c{number}", text)]
        if number == 25:
            items[0] = User("Tidy up the importer, please.")
        requests.append((case.life_s + 40.0 if number in (12, 33) else 20.0, asked(case, items)))
    return requests


# Old results wait for the pauses; the client's own change of its first message is no fault of ours.
FREE = frozenset({13, 26, 34})


def changed_prefixes(prompts: Sequence[Sequence[str]]) -> set[int]:
    """Return the requests that do not begin as the one before them."""
    return {at for at, (before, now) in enumerate(pairwise(prompts), 1) if now[: len(before)] != before}
