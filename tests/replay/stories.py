"""Conversations that are replayed whole: what a client sends, with the pauses between, and what the model answers."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tests.support import outputs
from tests.support.conversations import Assistant, Call, Item, Result, User, body
from tests.support.model import Call as ModelCall
from tests.support.model import Says

from kimi_proxy.core.chat import Wire
from kimi_proxy.core.json import JsonObject, JsonValue

WARM_S, COLD_S = 20.0, 200_000.0
MODEL = "replayed"
RESTART, COMPRESS, UNDO, OBSERVE, ACT, REMEMBER = "restart", "compress", "undo", "observe", "act", "remember"
SIGNED = "x-anthropic-billing-header: cc_version=2.1.197.abc; cc_entrypoint=cli; cch=0a1b2;"
TOOLS = ("bash", "read_file", "grep", "edit", "list")
READ_BACK = ModelCall("own_1", "recover_text", {"id": "PRN", "start_line": 3, "end_line": 6})


@dataclass(frozen=True, slots=True)
class Turn:
    """A request after a pause, and the answers of the provider: more than one where it calls a tool of ours."""

    body: bytes
    pause_s: float = WARM_S
    session: str = ""
    says: tuple[Says, ...] = (Says("Done."),)


Step = Turn | str  # one of the words above


@dataclass(frozen=True, slots=True)
class Story:
    name: str
    wire: Wire
    steps: Sequence[Step]
    settings: str = ""
    window: int = 1_000_000
    provider: str = "played"
    is_translated: bool = False  # to a provider that speaks another API
    breaks: frozenset[int] = field(default_factory=frozenset)  # requests whose beginning the client itself changed


AREAS = ("orders", "billing", "stock", "mail", "search")


def _function(at: int) -> str:
    area = AREAS[at % len(AREAS)]
    return "\n".join(
        [
            f"def {area}_{at}(rows, limit={at}):",
            f'    """Return the {area} of a ledger, newest first."""',
            f"    found = [row for row in rows if row.area == {area!r} and row.amount > limit]",
            *(f"    found = rule_{rule}(found, {rule * at})" for rule in range(at % 9)),
            "    return sorted(found, key=lambda row: -row.at)",
            "",
        ]
    )


def results() -> list[tuple[Call, str]]:
    """Calls and results of the kinds that agents read, long and short, some of them twice."""
    log, build, table = outputs.pytest_log(400), outputs.build_log(500), outputs.records(120)
    source = "\n".join(_function(at) for at in range(60))
    hits = "\n".join(f"src/{name}.py:{at}:    posting = {name}.post({at})" for name in AREAS for at in range(40))
    short = "\n".join(f"src/importer/step_{at}.py" for at in range(12))
    lookup = "\n".join(f"value_{row} = lookup({row * 7}, 'of table {row}')" for row in range(220))
    return [
        (Call("r0", "list", {"path": "src/importer"}), short),
        (Call("r1", "read_file", {"path": "src/importer/lookup.py"}), lookup),
        (Call("r2", "bash", {"command": "pytest -q"}), log.text),
        (Call("r3", "grep", {"pattern": "posting"}), hits),
        (Call("r4", "read_file", {"path": "src/ledger.py"}), source),
        (Call("r5", "bash", {"command": "cargo build"}), build.text),
        (Call("r6", "bash", {"command": "cat orders.json"}), table.text),
        (Call("r7", "bash", {"command": "pytest -q"}), log.text),
        (Call("r8", "edit", {"path": "src/importer/lookup.py"}), "ok"),
        (Call("r9", "read_file", {"path": "src/importer/lookup.py"}), lookup.replace("value_9 ", "amount ")),
    ]


def conversation(goal: str = "Make the importer's tests pass.") -> Iterator[list[Item]]:
    """Return the items of each request of one long turn, then of a second one."""
    items: list[Item] = [User(goal)]
    yield list(items)
    for call, text in results():
        items += [Assistant(f"I look at {call.id}.", (call,)), Result(call.id, text)]
        yield list(items)
    items += [Assistant("The importer works again."), User("Now say which orders failed in the build.")]
    yield list(items)
    for number in range(3):
        call = Call(f"s{number}", "bash", {"command": f"cargo test {number}"})
        items += [Assistant("", (call,)), Result(call.id, outputs.build_log(300, seed=number).text)]
        yield list(items)


def exchanges() -> Iterator[list[Item]]:
    """Return the items of each request of many short turns."""
    items: list[Item] = []
    for number, (call, text) in enumerate([*results(), *results()]):
        ask = Call(f"e{number}", call.name, call.arguments)
        items += [User(f"Look at part {number} of the importer."), Assistant("", (ask,)), Result(ask.id, text[:6_000])]
        yield list(items)
        items.append(Assistant(f"Part {number} does what it says."))


def asked(wire: Wire, items: Sequence[Item], **more: JsonValue) -> bytes:
    more |= {"store": False} if wire is Wire.RESPONSES else {}  # as Codex asks
    return body(wire, items, TOOLS, model=MODEL, **more)


def turns(wire: Wire, pauses: dict[int, float] | None = None, session: str = "", goal: str = "") -> list[Turn]:
    said = conversation(goal) if goal else conversation()
    return [Turn(asked(wire, items), (pauses or {}).get(at, WARM_S), session) for at, items in enumerate(said)]


def many(wire: Wire) -> list[Step]:
    return [Turn(asked(wire, items), session="one") for items in exchanges()]


def compacted(wire: Wire) -> list[Step]:
    """A client that replaces what was said by a summary, and goes on."""
    before = turns(wire)[:9]
    items: list[Item] = [User("This continues an earlier conversation: the importer's tests were made to pass.")]
    after: list[Step] = []
    for call, text in results()[1:6]:
        items += [Assistant("", (Call(f"n{call.id}", call.name, call.arguments),)), Result(f"n{call.id}", text)]
        after.append(Turn(asked(wire, items)))
    return [*before, *after]


def read_back(wire: Wire) -> list[Step]:
    """The model calls our tool in the request after the long log, once in a stream."""
    steps: list[Step] = []
    for at, items in enumerate(conversation()):
        is_asked = at in (4, 9)
        says = (Says("I look.", (READ_BACK,)), Says("I see.")) if is_asked else (Says("Done."),)
        steps.append(Turn(asked(wire, items, stream=at == 9), says=says))
    return steps


def sub_agents(wire: Wire) -> list[Step]:
    """Two conversations in one session, request by request."""
    one = turns(wire, session="shared")
    other = turns(wire, session="shared", goal="List every caller of lookup.")
    return [turn for pair in zip(one, other, strict=True) for turn in pair]


def forked(wire: Wire) -> list[Step]:
    """A conversation that is begun again from its middle with other words at its end."""
    steps: list[Step] = [*turns(wire)[:8]]
    middle = list(conversation())[5]
    for number in range(3):
        items = [*middle, Assistant("Stop."), User(f"Another way, please: {number}.")]
        steps.append(Turn(asked(wire, items)))
    return steps


def reminded(wire: Wire) -> list[Step]:
    """A client that changes the reminders in its first message between two requests."""
    steps: list[Step] = []
    for at, items in enumerate(conversation()):
        date = "2026-01-05" if at < 8 else "2026-01-06"
        first = f"<system-reminder>\nToday is {date}.\n</system-reminder>\nMake the importer's tests pass."
        steps.append(Turn(asked(wire, [User(first), *items[1:]])))
    return steps


def signed() -> list[Step]:
    """Requests of a plan login: Claude Code signs each, so nothing new may change in them."""
    steps: list[Step] = []
    for items in conversation():
        made: JsonObject = json.loads(asked(Wire.MESSAGES, items))
        made["system"] = [{"type": "text", "text": SIGNED}, {"type": "text", "text": "You are Claude Code."}]
        steps.append(Turn(json.dumps(made).encode()))
    return steps


def marked() -> list[Step]:
    """A client that sets cache marks of its own, and moves them along."""
    steps: list[Step] = []
    for at, items in enumerate(conversation()):
        made = json.loads(asked(Wire.MESSAGES, items))
        last = made["messages"][-1]
        content = last["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        last["content"] = [*blocks[:-1], {**blocks[-1], "cache_control": {"type": "ephemeral"}}]
        steps.append(Turn(json.dumps(made).encode(), COLD_S if at == 11 else WARM_S))
    return steps


def with_steps(steps: Sequence[Step], more: dict[int, str]) -> list[Step]:
    """Return `steps` with others before those at these places."""
    return [each for at, step in enumerate(steps) for each in ([more[at], step] if at in more else [step])]


def observed(wire: Wire, cold: dict[int, float]) -> list[Story]:
    """Conversations of which nothing is changed; the account says what would have been saved."""
    switched = with_steps(turns(wire, cold), {4: ACT, 10: OBSERVE})
    all_on = f"{WATCHED}{REMEMBERED}{AUTOMATIC}{ONLY_NEEDED}{LARGER}"
    return [
        Story("observed, restarted", wire, with_steps(turns(wire, cold), {5: RESTART, 13: RESTART}), WATCHED),
        Story("observed, sub-agents", wire, sub_agents(wire), WATCHED),
        Story("observed, forked", wire, forked(wire), WATCHED, breaks=frozenset({8, 9, 10})),
        Story("observed, read back", Wire.MESSAGES, read_back(Wire.MESSAGES), WATCHED),
        Story("observed at first", wire, switched, WATCHED),
        Story("observed, everything on", wire, [REMEMBER, *many(wire)], all_on, window=9_000),
        Story("observed, rescued", wire, many(wire), WATCHED, window=9_000),
        Story("observed, signed", Wire.MESSAGES, signed(), WATCHED, provider="anthropic"),
    ]


def stories() -> list[Story]:
    cold, chat = {7: COLD_S, 12: COLD_S}, Wire.CHAT
    made: list[Story] = []
    for wire in Wire:
        made += [
            Story(f"{wire.name.lower()}, warm", wire, turns(wire)),
            Story(f"{wire.name.lower()}, cold twice", wire, turns(wire, cold)),
            Story(
                f"{wire.name.lower()}, restarted twice", wire, with_steps(turns(wire, cold), {5: RESTART, 13: RESTART})
            ),
            Story(f"{wire.name.lower()}, compacted by the client", wire, compacted(wire)),
            Story(f"{wire.name.lower()}, read back", wire, read_back(wire)),
            Story(f"{wire.name.lower()}, sub-agents", wire, sub_agents(wire)),
        ]
    made += [
        Story("forked", chat, forked(chat), breaks=frozenset({8, 9, 10})),
        Story("reminders change", Wire.MESSAGES, reminded(Wire.MESSAGES)),
        Story("signed", Wire.MESSAGES, signed(), provider="anthropic"),
        Story("marked by the client", Wire.MESSAGES, marked()),
        Story("compressed and undone", chat, with_steps(many(chat), {12: COMPRESS, 16: UNDO})),
        Story("compressed, restarted", chat, with_steps(many(chat), {12: COMPRESS, 16: RESTART})),
        Story("observed", chat, turns(chat, cold), '[sanitizer]\nmode = "observe"\nbudget_ms = 60_000\n'),
        *observed(chat, cold),
        Story("project memory", chat, [REMEMBER, *with_steps(turns(chat, cold), {5: RESTART})], REMEMBERED),
        # In one turn old results are cut in place of a compaction by the client: once in each window.
        Story("compressed automatically", chat, many(chat), AUTOMATIC, window=9_000, breaks=frozenset({6})),
        Story("rescued", chat, many(chat), window=9_000, breaks=frozenset({6})),
        Story("careful", chat, turns(chat, cold), '[sanitizer]\npolicy = "careful"\nbudget_ms = 60_000\n'),
        Story("deep", chat, turns(chat, cold), '[sanitizer]\npolicy = "deep"\nbudget_ms = 60_000\n'),
        Story("routed", chat, turns(chat), LARGER, window=9_000, breaks=frozenset({5})),
        Story("tools on demand", chat, turns(chat), ONLY_NEEDED),
        Story(
            "instructions repeated",
            chat,
            turns(chat),
            "[reinjection]\nenabled = true\nthreshold = 0.01\n",
            breaks=frozenset(range(6, 15)),
        ),
        Story("translated from Anthropic", Wire.MESSAGES, turns(Wire.MESSAGES, cold), is_translated=True),
        Story("translated, read back", Wire.MESSAGES, read_back(Wire.MESSAGES), is_translated=True),
    ]
    return made


LARGER = """
[models."larger"]
provider = "PROVIDER"
model = "replayed-larger"
max_context_size = 200_000
"""
WATCHED = '[sanitizer]\nmode = "observe"\nbudget_ms = 60_000\n'
REMEMBERED = "[memory]\ninject = true\n"
AUTOMATIC = "[compression]\nautomatic = true\nask_provider = false\ncooldown_s = 30\n"
ONLY_NEEDED = '[deferred_tools]\ntools = ["edit", "list"]\n'
