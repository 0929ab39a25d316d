"""The played day: four conversations, questions to the pruner and the ticket desk, context windows that fill up."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from random import Random

from kimi_proxy.core.chat import Wire
from kimi_proxy.core.json import JsonObject
from kimi_proxy.lab import demo_texts

RECOVER = "recover_text"  # our own tool: the proxy answers it, and the agent never sees the call
SMALL, LARGE, OTHER = "demo/apprentice", "demo/journeyman", "demo/scribe"
FERRY, LINER = "demo/ferry", "demo/liner"
PROVIDER = "harbour"  # of the last two
WINDOW, LARGER_WINDOW = 4_224, 65_536
DESK = "ticket-desk"  # the MCP server


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """A tool, its arguments, and its scripted output."""

    tool: str
    arguments: JsonObject
    prints: str = ""
    failed: bool = False


@dataclass(frozen=True, slots=True)
class ScriptedReply:
    """One reply of the model: text, calls, or both."""

    text: str
    calls: tuple[ScriptedCall, ...] = ()


@dataclass(frozen=True, slots=True)
class Turn:
    """A user message; the model replies until it calls no more tools."""

    said: str
    replies: tuple[ScriptedReply, ...]


@dataclass(frozen=True, slots=True)
class ScriptedConversation:
    name: str
    title: str
    wire: Wire
    model: str
    system: str
    turns: tuple[Turn, ...]

    def call_id(self, turn: int, reply: int, call: int) -> str:
        return f"call_{self.name}_{turn}_{reply}_{call}"


@dataclass(frozen=True, slots=True)
class ModelReply:
    """A reply with the ids of its calls."""

    text: str
    calls: tuple[tuple[str, ScriptedCall], ...]


class Script:
    """The model's answer to each newest message, and the output of each call."""

    def __init__(self, conversations: Iterable[ScriptedConversation]) -> None:
        self.after_text: dict[str, ModelReply] = {}
        self.after_call: dict[str, ModelReply] = {}
        self.calls: dict[str, ScriptedCall] = {}
        for conversation in conversations:
            for number, turn in enumerate(conversation.turns):
                self._add(conversation, number, turn)

    def _add(self, conversation: ScriptedConversation, number: int, turn: Turn) -> None:
        replies = [
            ModelReply(
                reply.text, tuple((conversation.call_id(number, n, c), call) for c, call in enumerate(reply.calls))
            )
            for n, reply in enumerate(turn.replies)
        ]
        self.after_text[turn.said] = replies[0]
        for one, then in pairwise(replies):
            self.after_call |= {id: then for id, _ in one.calls}
            self.calls |= dict(one.calls)


@dataclass(frozen=True, slots=True)
class Say:
    """The next turn of a conversation."""

    conversation: str


@dataclass(frozen=True, slots=True)
class Prune:
    """A question to the pruner itself."""

    text: str
    goal: str
    source_type: str


@dataclass(frozen=True, slots=True)
class CompressSession:
    """The red button."""

    conversation: str


Act = Say | Prune | CompressSession


@dataclass(frozen=True, slots=True)
class Day:
    conversations: Mapping[str, ScriptedConversation]
    acts: tuple[Act, ...]


def day(seed: int, number: int = 1) -> Day:
    """Return the day of that number; the same seed and number make the same day."""
    rng = Random(f"{seed}/{number}")  # noqa: S311 - a story, no secret
    suffix = "" if number == 1 else f"-{number}"
    conversations = tuple(
        ScriptedConversation(
            f"{name}{suffix}", title, wire, model, system, tuple(_of_day(turn, number) for turn in turns)
        )
        for name, title, wire, model, system, turns in (
            ("vat", "A cent is missing from invoice 1147", Wire.CHAT, SMALL, SYSTEM + MEMORY, _vat(rng)),
            ("notes", "Release notes for Thursday", Wire.MESSAGES, OTHER, SYSTEM, _notes(rng)),
            ("slow", "Why is the export slow in the morning?", Wire.CHAT, LARGE, SYSTEM, _slow(rng)),
            ("labels", "Which labels are printed twice?", Wire.CHAT, FERRY, WAREHOUSE_SYSTEM, _labels(rng)),
        )
    )
    names = [conversation.name for conversation in conversations]
    return Day(dict(zip(names, conversations, strict=True)), tuple(_acts(rng, *names)))


def _of_day(turn: Turn, number: int) -> Turn:
    """Return a turn in words of its day: the model knows by the words which answer is wanted."""
    return turn if number == 1 else Turn(f"{turn.said} (day {number})", turn.replies)


def _acts(rng: Random, vat: str, notes: str, slow: str, labels: str) -> Iterator[Act]:
    yield from (Say(vat), Say(vat), Say(notes))
    yield Prune(demo_texts.service_log(rng), "why can invoice 1147 not be booked?", "logs")
    yield from (Say(vat), Say(slow), Say(labels), Say(vat))
    yield Prune(demo_texts.module(rng, "invoices"), "where is the VAT of an invoice rounded?", "code")
    yield from (Say(vat), Say(notes), Say(vat), Say(vat), Say(slow), Say(vat), Say(vat))
    yield from (CompressSession(vat), Say(vat), Say(notes), Say(labels), Say(vat))


TOOLS: Mapping[str, str] = {
    "read": "Read a file of the project, or some lines of it.",
    "grep": "Search the project for a word, and print each line that has it.",
    "bash": "Run a command in the project's folder and print what it says.",
    "edit": "Replace lines of a file.",
    "find_tickets": "Ask the ticket desk for tickets about a subject.",
    "read_runbook": "Read how the team releases, from the ticket desk.",
}
AT_THE_DESK = ("find_tickets", "read_runbook")

SYSTEM = """\
You mend the shop's order service. It is a Python project; amounts are Decimal, never float.
- Read before you write, and say which lines you changed.
- Run the tests after each change. A change without a test that fails before it is not finished.
- Never edit a migration that has been released, and never touch files under vendor/.
- Money is rounded once per document, half up. If you see it done otherwise, it is a mistake: mend it.
- Ask before you change what an invoice looks like: the tax office has a copy of every one."""

MEMORY = """
<mcp-memory>
The team releases on Thursdays. Release notes are one line per change that a reader notices.
The tax office audits the shop in May; every invoice since January must add up to the cent.
Invoices and returns have keepers, named in CODEOWNERS: ask them before changing what those files export.
Amounts are kept net. Gross amounts are computed where they are shown, never stored.
The export runs at six in the morning and must be over by eight, when the shop opens.
Booking refuses an invoice whose lines do not add up; the accountant then gets a mail, which nobody likes.
In January vouchers were rounded twice. The mend is in commit 4f1c22a, and its test is a good example to follow.
Tests that need a store take the one in tests/conftest.py; a store of their own makes the run twice as long.
Labels are printed by a machine that knows no letters beyond Latin-1: replace the rest, do not drop it.
Search is rebuilt at night. What is changed in the daytime is found after at most ten minutes.
Refunds older than ninety days need a second pair of eyes: the list is in shop/returns.py, reviewed().
</mcp-memory>"""


WAREHOUSE_SYSTEM = """\
You look after the shop's warehouse. Answer in one sentence, and say which file you have it from.
- Labels are printed by a machine; a label that was printed is never taken back.
- Count parcels, not orders: an order may leave in several."""


def _turn(said: str, *replies: str | tuple[str, *tuple[ScriptedCall, ...]]) -> Turn:
    """Return a turn; a reply is its text, or a text and calls."""
    found = ((reply,) if isinstance(reply, str) else reply for reply in replies)
    return Turn(said, tuple(ScriptedReply(text, tuple(calls)) for text, *calls in found))


def _read(rng: Random, part: str) -> ScriptedCall:
    return ScriptedCall("read", {"path": f"shop/{part}.py"}, demo_texts.module(rng, part))


def _read_lines(rng: Random, part: str, start: int) -> ScriptedCall:
    """Return a call that prints too little to be cut; several are more than a small context window holds."""
    lines: JsonObject = {"path": f"shop/{part}.py", "lines": f"{start}-{start + 55}"}
    return ScriptedCall("read", lines, demo_texts.section(rng, part, 56))


def _edit(part: str) -> ScriptedCall:
    return ScriptedCall("edit", {"path": f"shop/{part}.py"}, demo_texts.VAT_MENDED)


def _bash(command: str, prints: str, failed: bool = False) -> ScriptedCall:
    return ScriptedCall("bash", {"command": command}, prints, failed)


def _vat(rng: Random) -> tuple[Turn, ...]:
    return (
        _turn(
            "A customer says that invoice 1147 is a cent off. Find out where the VAT is rounded, please.",
            (
                "I look for who computes the VAT.",
                ScriptedCall("grep", {"word": "vat_of"}, demo_texts.listing(rng, "vat_of")),
            ),
            ("The invoices do. I read that file.", _read(rng, "invoices")),
            "vat_of rounds every line and adds the roundings up: with three lines that is a cent off.",
        ),
        _turn(
            "That would explain it. Is there a test that fails?",
            ("I run them.", _bash("pytest -v", demo_texts.failing_run(rng), failed=True)),
            ("One fails. Some lines of that run were left out; I want to see them.", ScriptedCall(RECOVER, {})),
            "test_the_vat_of_three_lines_is_rounded_once fails with 0.03 instead of 0.04. That is our cent.",
        ),
        _turn(
            "Has anybody else reported this?",
            ("I ask the ticket desk.", ScriptedCall("find_tickets", {"about": "VAT of invoices"})),
            "Ticket 1130 says the same of invoice 1147, since February.",
        ),
        _turn(
            "Then mend it, and look at what calls it.",
            ("First the function itself.", _edit("invoices")),
            ("Now its callers.", _read_lines(rng, "exports", 40), _read_lines(rng, "returns", 200)),
            "Exports add gross_of up per day, returns subtract it. Both take what vat_of gives.",
        ),
        _turn(
            "What about vouchers and labels?",
            ("I read both.", _read_lines(rng, "vouchers", 80), _read_lines(rng, "labels", 310)),
            "Vouchers take the net amount, labels print the gross one. Neither rounds by itself.",
        ),
        _turn(
            "And who books an invoice?",
            ("Booking is in accounts.", _read_lines(rng, "accounts", 12)),
            (
                "It also goes through the ledger of orders.",
                *(_read_lines(rng, "orders", 377), _read_lines(rng, "stock", 90)),
            ),
            "accounts.book refuses an invoice that is off by more than nothing: that is the error in the log.",
        ),
        _turn(
            "Look at the other half of returns as well, they do sums of their own.",
            ("I do.", _read_lines(rng, "returns", 411), _read_lines(rng, "mailing", 30)),
            "Returns have a loop of their own that rounds each line. The same mistake, in a second place.",
        ),
        _turn(
            "Mend that too and run everything again.",
            ("I mend it.", _edit("returns"), _read_lines(rng, "search", 5)),
            ("And run the tests.", _bash("pytest -q", demo_texts.passing_run(rng))),
            "All 241 pass, with a new one for returns.",
        ),
        _turn(
            "Before we go on: does anything else round money line by line?",
            ("I read what is left.", _read_lines(rng, "exports", 300), _read_lines(rng, "accounts", 520)),
            "Nothing else does. The conversation has become long; a summary would make room.",
        ),
        _turn(
            "Good. Which invoices of February are wrong?",
            ("I count them.", _bash("shop audit --month 2", _audit(rng))),
            "Eleven, each by one cent. All have three lines or more.",
        ),
        _turn(
            "Write a line for the release notes, please.",
            "“The VAT of an invoice with several lines is right to the cent again (invoice 1147).”",
        ),
    )


def _notes(rng: Random) -> tuple[Turn, ...]:
    return (
        _turn(
            "What do our release notes have to say, and how long may they be?",
            ("The runbook knows.", ScriptedCall("read_runbook", {"chapter": "release notes"})),
            "One line per change that a reader notices; an amount that was mended names its invoice.",
        ),
        _turn(
            "Which changes since last Thursday would a reader notice?",
            ("I read the log.", _bash("git log --oneline", _commits(rng))),
            "Three: the VAT of invoices, quicker exports in the morning, and labels with a second line.",
        ),
        _turn("Thank you. Write them down in that order.", "Done: three lines in docs/releases/thursday.md."),
    )


def _slow(rng: Random) -> tuple[Turn, ...]:
    return (
        _turn(
            "The export takes four minutes every morning. What does the log say?",
            (
                "I read this morning's log.",
                ScriptedCall("read", {"path": "logs/shop.log"}, demo_texts.service_log(rng)),
            ),
            "Nothing is slow by itself. The export waits for an invoice that cannot be booked: 1147 again.",
        ),
        _turn(
            "So it is the same mistake twice. Is the export itself well written?",
            ("I read it.", _read(rng, "exports")),
            "It asks the store once per line. One question per invoice would do: four minutes become one.",
        ),
    )


def _labels(rng: Random) -> tuple[Turn, ...]:
    return (
        _turn(
            "Some labels come out of the printer twice. Where is that decided?",
            ("I read how they are printed.", _read_lines(rng, "labels", 40), _read_lines(rng, "orders", 12)),
            ("Stock and mailing ask for labels too.", _read_lines(rng, "stock", 300), _read_lines(rng, "mailing", 90)),
            ("I want to see returns before I answer.", _read_lines(rng, "returns", 210)),
            "shop/mailing.py prints a label again when the mail to the customer is tried again.",
        ),
        _turn("Then that is our mistake. How many parcels is that?", "Nine this month (shop/mailing.py)."),
    )


def _commits(rng: Random) -> str:
    return "\n".join(
        f"{rng.randrange(16**7):07x} {rng.choice(demo_texts.PARTS).capitalize()}: "
        f"{rng.choice(demo_texts.WHAT)} is {done}"
        for done in demo_texts.DONE
        for _ in range(3)
    )


def _audit(rng: Random) -> str:
    rows = [f"invoice {rng.randrange(1000, 1300)} off by 0.01 ({rng.randrange(3, 9)} lines)" for _ in range(11)]
    return "\n".join([*sorted(rows), "11 invoices, 0.11 in all"])
