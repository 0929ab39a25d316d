"""The day itself: four conversations, a question to the pruner, a trip to the ticket desk, windows that fill up."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from random import Random

from kimi_proxy.core.chat import Wire
from kimi_proxy.core.json import JsonObject
from kimi_proxy.lab import demo_texts

RECOVER = "recover_text"  # our own tool: the proxy answers it, the agent never hears of it


@dataclass(frozen=True, slots=True)
class Call:
    """A tool, what it is asked, and what it will print."""

    tool: str
    arguments: JsonObject
    prints: str = ""
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model says at once: words, calls, or both."""

    text: str
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True, slots=True)
class Turn:
    """A person says something; the model replies until it calls no more tools."""

    said: str
    replies: tuple[Reply, ...]


@dataclass(frozen=True, slots=True)
class Conversation:
    name: str
    title: str
    wire: Wire
    model: str
    system: str
    turns: tuple[Turn, ...]

    def call_id(self, turn: int, reply: int, call: int) -> str:
        return f"call_{self.name}_{turn}_{reply}_{call}"


@dataclass(frozen=True, slots=True)
class Spoken:
    """A reply with the ids of its calls."""

    text: str
    calls: tuple[tuple[str, Call], ...]


class Script:
    """What the model says to each newest message, and what each call prints."""

    def __init__(self, conversations: Iterator[Conversation]) -> None:
        self.after_text: dict[str, Spoken] = {}
        self.after_call: dict[str, Spoken] = {}
        self.calls: dict[str, Call] = {}
        for conversation in conversations:
            for number, turn in enumerate(conversation.turns):
                self._learn(conversation, number, turn)

    def _learn(self, conversation: Conversation, number: int, turn: Turn) -> None:
        spoken = [
            Spoken(reply.text, tuple((conversation.call_id(number, n, c), call) for c, call in enumerate(reply.calls)))
            for n, reply in enumerate(turn.replies)
        ]
        self.after_text[turn.said] = spoken[0]
        for one, then in pairwise(spoken):
            self.after_call |= {id: then for id, _ in one.calls}
            self.calls |= dict(one.calls)


FERRY, LINER = "demo/ferry", "demo/liner"
PROVIDER = "harbour"
WINDOW, LARGER_WINDOW = 4_096, 65_536

TITLE = "Which labels are printed twice?"
OUTGROWING_SYSTEM = """\
You look after the shop's warehouse. Answer in one sentence, and say which file you have it from.
- Labels are printed by a machine; a label that was printed is never taken back.
- Count parcels, not orders: an order may leave in several."""


def outgrowing_turns(rng: Random) -> tuple[Turn, ...]:
    def read(part: str, start: int) -> Call:
        """Too short to be cut, and together more than a small window holds."""
        return Call(
            "read", {"path": f"shop/{part}.py", "lines": f"{start}-{start + 55}"}, demo_texts.section(rng, part, 56)
        )

    return (
        Turn(
            "Some labels come out of the printer twice. Where is that decided?",
            (
                Reply("I read how they are printed.", (read("labels", 40), read("orders", 12))),
                Reply("Stock and mailing ask for labels too.", (read("stock", 300), read("mailing", 90))),
                Reply("I want to see returns before I answer.", (read("returns", 210),)),
                Reply("shop/mailing.py prints a label again when the mail to the customer is tried again."),
            ),
        ),
        Turn("Then that is our mistake. How many parcels is that?", (Reply("Nine this month (shop/mailing.py)."),)),
    )


SMALL, LARGE, OTHER = "demo/apprentice", "demo/journeyman", "demo/scribe"
DESK = "ticket-desk"  # the MCP server

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
class Compress:
    """The red button."""

    conversation: str


Act = Say | Prune | Compress


@dataclass(frozen=True, slots=True)
class Day:
    conversations: Mapping[str, Conversation]
    acts: tuple[Act, ...]


def day(seed: int, number: int = 1) -> Day:
    """The same seed and number make the same day."""
    rng = Random(f"{seed}/{number}")  # noqa: S311 - a story, no secret
    suffix = "" if number == 1 else f"-{number}"
    told = tuple(
        Conversation(f"{name}{suffix}", title, wire, model, system, tuple(_of_day(turn, number) for turn in turns))
        for name, title, wire, model, system, turns in (
            ("vat", "A cent is missing from invoice 1147", Wire.CHAT, SMALL, SYSTEM + MEMORY, _vat(rng)),
            ("notes", "Release notes for Thursday", Wire.MESSAGES, OTHER, SYSTEM, _notes(rng)),
            ("slow", "Why is the export slow in the morning?", Wire.CHAT, LARGE, SYSTEM, _slow(rng)),
            ("labels", TITLE, Wire.CHAT, FERRY, OUTGROWING_SYSTEM, outgrowing_turns(rng)),
        )
    )
    names = [conversation.name for conversation in told]
    return Day({conversation.name: conversation for conversation in told}, tuple(_acts(rng, *names)))


def _of_day(turn: Turn, number: int) -> Turn:
    """Nobody says the same twice: the model knows by the words which answer is wanted."""
    return turn if number == 1 else Turn(f"{turn.said} (day {number})", turn.replies)


def _acts(rng: Random, vat: str, notes: str, slow: str, labels: str) -> Iterator[Act]:
    yield Say(vat)
    yield Say(vat)
    yield Say(notes)
    yield Prune(demo_texts.service_log(rng), "why can invoice 1147 not be booked?", "logs")
    yield Say(vat)
    yield Say(slow)
    yield Say(labels)
    yield Say(vat)
    yield Prune(demo_texts.module(rng, "invoices"), "where is the VAT of an invoice rounded?", "code")
    yield Say(vat)
    yield Say(notes)
    yield Say(vat)
    yield Say(vat)
    yield Say(slow)
    yield Say(vat)
    yield Say(vat)
    yield Compress(vat)
    yield Say(vat)
    yield Say(notes)
    yield Say(labels)
    yield Say(vat)


def _vat(rng: Random) -> tuple[Turn, ...]:
    def read(part: str, start: int) -> Call:
        lines = {"path": f"shop/{part}.py", "lines": f"{start}-{start + 55}"}
        return Call("read", {**lines}, demo_texts.section(rng, part, 56))

    return (
        Turn(
            "A customer says that invoice 1147 is a cent off. Find out where the VAT is rounded, please.",
            (
                Reply(
                    "I look for who computes the VAT.",
                    (Call("grep", {"word": "vat_of"}, demo_texts.listing(rng, "vat_of")),),
                ),
                Reply(
                    "The invoices do. I read that file.",
                    (Call("read", {"path": "shop/invoices.py"}, demo_texts.module(rng, "invoices")),),
                ),
                Reply("vat_of rounds every line and adds the roundings up: with three lines that is a cent off."),
            ),
        ),
        Turn(
            "That would explain it. Is there a test that fails?",
            (
                Reply(
                    "I run them.", (Call("bash", {"command": "pytest -v"}, demo_texts.failing_run(rng), failed=True),)
                ),
                Reply(
                    "One fails. Some lines of that run were left out; I want to see them.",
                    (Call(RECOVER, {}),),
                ),
                Reply("test_the_vat_of_three_lines_is_rounded_once fails with 0.03 instead of 0.04. That is our cent."),
            ),
        ),
        Turn(
            "Has anybody else reported this?",
            (
                Reply("I ask the ticket desk.", (Call("find_tickets", {"about": "VAT of invoices"}),)),
                Reply("Ticket 1130 says the same of invoice 1147, since February."),
            ),
        ),
        Turn(
            "Then mend it, and look at what calls it.",
            (
                Reply(
                    "First the function itself.", (Call("edit", {"path": "shop/invoices.py"}, demo_texts.VAT_MENDED),)
                ),
                Reply("Now its callers.", (read("exports", 40), read("returns", 200))),
                Reply("Exports add gross_of up per day, returns subtract it. Both take what vat_of gives."),
            ),
        ),
        Turn(
            "What about vouchers and labels?",
            (
                Reply("I read both.", (read("vouchers", 80), read("labels", 310))),
                Reply("Vouchers take the net amount, labels print the gross one. Neither rounds by itself."),
            ),
        ),
        Turn(
            "And who books an invoice?",
            (
                Reply("Booking is in accounts.", (read("accounts", 12),)),
                Reply("It also goes through the ledger of orders.", (read("orders", 377), read("stock", 90))),
                Reply(
                    "accounts.book refuses an invoice that is off by more than nothing: that is the error in the log."
                ),
            ),
        ),
        Turn(
            "Look at the other half of returns as well, they do sums of their own.",
            (
                Reply("I do.", (read("returns", 411), read("mailing", 30))),
                Reply("Returns have a loop of their own that rounds each line. The same mistake, in a second place."),
            ),
        ),
        Turn(
            "Mend that too and run everything again.",
            (
                Reply(
                    "I mend it.", (Call("edit", {"path": "shop/returns.py"}, demo_texts.VAT_MENDED), read("search", 5))
                ),
                Reply("And run the tests.", (Call("bash", {"command": "pytest -q"}, demo_texts.passing_run(rng)),)),
                Reply("All 241 pass, with a new one for returns."),
            ),
        ),
        Turn(
            "Before we go on: does anything else round money line by line?",
            (
                Reply("I read what is left.", (read("exports", 300), read("accounts", 520))),
                Reply("Nothing else does. The conversation has become long; a summary would make room."),
            ),
        ),
        Turn(
            "Good. Which invoices of February are wrong?",
            (
                Reply("I count them.", (Call("bash", {"command": "shop audit --month 2"}, _audit(rng)),)),
                Reply("Eleven, each by one cent. All have three lines or more."),
            ),
        ),
        Turn(
            "Write a line for the release notes, please.",
            (Reply("“The VAT of an invoice with several lines is right to the cent again (invoice 1147).”"),),
        ),
    )


def _notes(rng: Random) -> tuple[Turn, ...]:
    return (
        Turn(
            "What do our release notes have to say, and how long may they be?",
            (
                Reply("The runbook knows.", (Call("read_runbook", {"chapter": "release notes"}),)),
                Reply("One line per change that a reader notices; an amount that was mended names its invoice."),
            ),
        ),
        Turn(
            "Which changes since last Thursday would a reader notice?",
            (
                Reply("I read the log.", (Call("bash", {"command": "git log --oneline"}, _commits(rng)),)),
                Reply("Three: the VAT of invoices, quicker exports in the morning, and labels with a second line."),
            ),
        ),
        Turn("Thank you. Write them down in that order.", (Reply("Done: three lines in docs/releases/thursday.md."),)),
    )


def _slow(rng: Random) -> tuple[Turn, ...]:
    return (
        Turn(
            "The export takes four minutes every morning. What does the log say?",
            (
                Reply(
                    "I read this morning's log.",
                    (Call("read", {"path": "logs/shop.log"}, demo_texts.service_log(rng)),),
                ),
                Reply("Nothing is slow by itself. The export waits for an invoice that cannot be booked: 1147 again."),
            ),
        ),
        Turn(
            "So it is the same mistake twice. Is the export itself well written?",
            (
                Reply("I read it.", (Call("read", {"path": "shop/exports.py"}, demo_texts.module(rng, "exports")),)),
                Reply("It asks the store once per line. One question per invoice would do: four minutes become one."),
            ),
        ),
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
