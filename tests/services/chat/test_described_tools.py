"""The context map names the tools that the newest request describes."""

from dataclasses import replace

from tests.support.conversations import Assistant, Call, Result, User, request

from kimi_proxy.addons.tools_on_demand import deferral
from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.chat import Wire
from kimi_proxy.features.chat.pipeline import Draft
from kimi_proxy.features.chat.sessions import Session
from kimi_proxy.features.models import Models, Target
from kimi_proxy.services.chat.context import LatestRequests, TokenCounter
from kimi_proxy.services.store.protocols import SessionRecord


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


async def test_tools_that_were_left_out_are_counted_and_their_calls_are_not_called_cut():
    items = [User("go"), Assistant("", (Call("c1", "mcp__a__list", {"x": 1}),)), Result("c1", "done")]
    came = request(Wire.CHAT, items, tools=("bash", "mcp__a__list", "mcp__a__close"))
    left, _ = deferral.leave_out(came, {"mcp__a__list", "mcp__a__close"})
    draft, counter = Draft(came, Target("openai", "gpt-5"), Session("s-1"), LOCAL), TokenCounter()
    latest = LatestRequests(counter, Models({}, {}))
    latest.on_start(draft, replace(draft, request=left))
    record = SessionRecord("s-1", "", "", "kimi", "kimi-k2", 0.0, 0.0, requests=2, input_tokens=4_000, cost_usd=0.02)
    try:
        shown = await latest.context(LOCAL, "s-1", record)
    finally:
        counter.close()

    assert [flag for row in shown["messages"] for flag in row["flags"]] == []
    found = {one["name"]: (one["left_out"], one["pattern"]) for one in shown["described_tools"]}
    assert found == {"a": (2, "mcp__a__*"), "bash": (0, "bash")}
    costs = {one["name"]: one["session_usd"] for one in shown["described_tools"]}
    assert costs["a"] == 0 and costs["bash"] is not None and 0 < costs["bash"] < 0.002
