"""The context map names the tools that the newest request describes."""

from tests.support.conversations import Assistant, Call, Result, User, request

from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.chat import Wire
from kimi_proxy.features.chat.pipeline import Draft
from kimi_proxy.features.chat.sessions import Session
from kimi_proxy.features.models import Models, Target
from kimi_proxy.services.chat.context import LatestRequests, TokenCounter


async def test_each_tool_has_its_tokens_and_its_calls_and_servers_are_summed_up():
    items = [User("go"), Assistant("", (Call("c1", "bash"),)), Result("c1", "done")]
    came = request(Wire.CHAT, items, tools=("bash", "todowrite", "mcp__a__list", "mcp__a__close"))
    draft, counter = Draft(came, Target("kimi", "kimi-k2"), Session("s-1"), LOCAL), TokenCounter()
    latest = LatestRequests(counter, Models({}, {}))
    latest.on_start(draft, draft)
    try:
        shown = (await latest.context(LOCAL, "s-1"))["described_tools"]
    finally:
        counter.close()

    assert isinstance(shown, list)
    by_name = {one["name"]: one for one in shown if isinstance(one, dict)}
    assert {name: (one["tools"], one["calls"]) for name, one in by_name.items()} == {
        "a": (2, 0),
        "bash": (1, 1),
        "todowrite": (1, 0),
    }
    assert by_name["todowrite"]["switch_off"] == '"tools": {"todowrite": false}  // in opencode.json'
