"""A short conversation that outgrows the window of its model: it goes on with a larger one of the same provider."""

from random import Random

from kimi_proxy.features.demo import texts
from kimi_proxy.features.demo.script import Call, Reply, Turn

FERRY, LINER = "demo/ferry", "demo/liner"
PROVIDER = "harbour"
WINDOW, LARGER_WINDOW = 4_096, 65_536

TITLE = "Which labels are printed twice?"
SYSTEM = """\
You look after the shop's warehouse. Answer in one sentence, and say which file you have it from.
- Labels are printed by a machine; a label that was printed is never taken back.
- Count parcels, not orders: an order may leave in several."""


def turns(rng: Random) -> tuple[Turn, ...]:
    def read(part: str, start: int) -> Call:
        """Too short to be cut, and together more than a small window holds."""
        return Call("read", {"path": f"shop/{part}.py", "lines": f"{start}-{start + 55}"}, texts.section(rng, part, 56))

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
