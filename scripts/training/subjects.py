"""What the generated projects are about: names to inject failures under, and the words of people who ask about them."""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

VERBS = (
    "parse", "render", "merge", "sort", "load", "store", "encode", "decode", "resize", "rotate", "schedule",
    "cancel", "refund", "archive", "publish", "subscribe", "validate", "export", "import", "compress", "encrypt",
    "sign", "verify", "index", "rank", "filter", "group", "split", "batch", "retry", "throttle", "cache", "evict",
    "replay", "migrate", "rename", "clone", "audit", "notify", "route", "translate", "format", "round", "convert",
    "lookup", "allocate", "release", "lock", "unlock", "sync", "poll", "drain", "restore", "snapshot", "stream",
    "upload", "download", "quote", "charge",
)  # fmt: skip
NOUNS = (
    "invoice", "cart", "session", "token", "voucher", "basket", "ledger", "payment", "refund_note", "customer",
    "address", "parcel", "shipment", "warehouse", "calendar", "meeting", "reminder", "playlist", "picture",
    "thumbnail", "document", "page", "footnote", "chapter", "archive_file", "backup", "snapshot", "queue",
    "worker", "job", "pipeline", "stage", "message", "mailbox", "channel", "thread", "comment", "profile",
    "avatar", "badge", "role", "permission", "policy", "quota", "budget", "report", "chart", "axis", "legend",
    "column", "matrix", "vector", "polygon", "route_map", "waypoint", "sensor", "reading", "alert", "metric",
    "counter", "bucket", "shard", "replica", "cluster", "node_list", "socket", "packet", "header", "cookie",
    "certificate", "key_ring", "template", "theme", "locale", "currency", "price", "discount", "tax_rate",
    "coupon", "receipt", "contract", "clause", "survey", "answer", "grade",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Subject:
    """A thing that is done to something: `snake` is its name in code, `words` is what people call it."""

    verb: str
    noun: str

    @property
    def snake(self) -> str:
        return f"{self.verb}_{self.noun}"

    @property
    def camel(self) -> str:
        return "".join(part.capitalize() for part in self.snake.split("_"))

    @property
    def words(self) -> str:
        return f"{self.verb} the {self.noun.replace('_', ' ')}"


@dataclass(frozen=True, slots=True)
class Fault:
    """A failure that was injected. Every line of a log with one of `marks` speaks of it, and no other line does.

    `symptom` is what a person sees of it without knowing its name; no two faults of a log have the same.
    """

    subject: Subject
    marks: tuple[str, ...]
    symptom: str
    file: str = ""

    def pattern(self) -> re.Pattern[str]:
        """Marks count as whole names: `parse_cart` is not in `parse_carton`, but it is in `test_parse_cart`."""
        names = "|".join(re.escape(mark) for mark in self.marks)
        return re.compile(rf"(?<![A-Za-z0-9])(?:{names})(?![A-Za-z0-9_])")


def subjects(rng: random.Random, count: int) -> list[Subject]:
    """Different subjects; some share a verb or a noun, as in any project."""
    every = [Subject(verb, noun) for verb in VERBS for noun in NOUNS]
    return rng.sample(every, count)


def questions(fault: Fault, others: Sequence[Fault], rng: random.Random) -> list[str]:
    """How a person asks about a fault: by its name, by what it does, by where it is, by what is seen of it."""
    name = fault.marks[0]
    asked = [
        rng.choice((f"why does {name} fail?", f"fix {name}", f"{name} is broken, what happened?")),
        rng.choice(
            (
                f"what goes wrong when we {fault.subject.words}?",
                f"we can no longer {fault.subject.words}",
                f"find the reason why it does not {fault.subject.words}",
            )
        ),
        rng.choice((f"where does it say that {fault.symptom}?", f"{fault.symptom}: where and why?", fault.symptom)),
    ]
    if fault.file and not any(other.file == fault.file for other in others if other is not fault):
        asked.append(rng.choice((f"what is wrong in {fault.file}?", f"errors of {fault.file}")))
    return asked
