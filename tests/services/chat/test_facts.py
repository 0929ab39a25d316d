"""Facts of conversations: recall results are not looked up with every request, and late ones reach the disk."""

from collections.abc import Collection, Mapping

from tests.support.conversations import Assistant, Call, Item, Result, User, request
from tests.support.fakes import Clock, MemoryFacts
from tests.support.processes import until

from kimi_proxy.core.caller import LOCAL, Caller
from kimi_proxy.core.chat import Wire
from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.features.chat.conversations import name_conversation
from kimi_proxy.features.chat.pipeline import Draft
from kimi_proxy.features.chat.sessions import Session
from kimi_proxy.features.models import Target
from kimi_proxy.services.chat.facts import ChatFacts, LateFacts
from kimi_proxy.services.chat.notes import Notes
from kimi_proxy.services.store.protocols import FactKind


class CountedFacts(MemoryFacts):
    """How often they were read, and a disk that can be full."""

    reads, refused, is_full = 0, 0, False

    async def get(self, who: Caller, kind: FactKind, keys: Collection[bytes]) -> Mapping[bytes, bytes]:
        self.reads += 1
        return await super().get(who, kind, keys)

    async def put_if_absent(
        self, who: Caller, kind: FactKind, facts: Mapping[bytes, bytes], session: str | Mapping[bytes, str] = ""
    ) -> Mapping[bytes, bytes]:
        if self.is_full:
            self.refused += 1
            raise StoreUnavailable("the disk is full")
        return await super().put_if_absent(who, kind, facts, session)


async def test_what_is_pending_for_a_call_whose_id_was_used_before_is_found():
    stored = CountedFacts()
    facts = ChatFacts(Notes(stored, 60, Clock(0.0)))
    nothing = [await facts.pending_results(LOCAL, "ses_1", ["call_1"]) for _ in range(2)]
    before = stored.reads
    await facts.save_pending_result(LOCAL, "ses_1", "call_1", "recovered lines")
    pending = [await facts.pending_results(LOCAL, "ses_1", ["call_1"]) for _ in range(2)]

    assert nothing == [{}, {}]
    assert pending == [{"call_1": "recovered lines"}] * 2
    assert (before, stored.reads) == (1, 1), "what was written is known without a read"


async def test_a_late_fact_is_written_when_the_store_can_be_written_again():
    stored = CountedFacts()
    stored.is_full = True
    facts = LateFacts(stored, "tool", is_shared=True)
    facts.put(LOCAL, b"key", b"value")
    await until(lambda: stored.refused > 0)
    assert facts.is_unwritten(LOCAL, b"key")
    stored.is_full = False
    await until(lambda: not facts.is_unwritten(LOCAL, b"key"))
    await facts.close()

    assert await stored.get(LOCAL, "tool", [b"key"]) == {b"key": b"value"}


async def test_closing_waits_only_a_moment_for_a_store_that_cannot_be_written():
    stored = CountedFacts()
    stored.is_full = True
    facts = LateFacts(stored, "tool", is_shared=False)
    facts.put(LOCAL, b"key", b"value")
    await facts.close()

    assert (stored.refused > 0, stored.facts) == (True, {})


async def test_a_late_fact_of_a_session_that_is_deleted_is_not_written():
    stored = CountedFacts()
    facts = LateFacts(stored, "conversation", is_shared=False)
    for session in ("ses_1", "ses_2", ""):
        facts.put(LOCAL, session.encode() or b"any", b"value", session)
    facts.forget(LOCAL, "ses_1")
    await facts.close()

    assert {key for _, _, key in stored.facts} == {b"ses_2", b"any"}


async def test_a_conversation_inherits_all_that_decides_about_the_bytes_of_its_requests():
    """Our tool, the thinking that was cleared, the tools left out, and what the model reads with a result."""
    facts = ChatFacts(Notes(MemoryFacts(), 60, Clock(0.0)))
    items: list[Item] = [User("go"), Assistant("", (Call("c1"),)), Result("c1", "ok")]
    draft = Draft(request(Wire.CHAT, items), Target("kimi", "kimi-k2"), Session("ses_2"), LOCAL)
    parent, own = name_conversation("ses_1", draft.request), draft.conversation
    nothing = await facts.inherit(draft, parent)
    facts.save_has_tool(LOCAL, parent.place)
    await facts.save_cleared_turns(LOCAL, parent.place, 3)
    await facts.save_deferred_tools(LOCAL, parent.place, ["bash"])
    await facts.save_pending_result(LOCAL, "ses_1", "c1", "recovered lines")
    found = await facts.inherit(draft, parent)
    await facts.close()

    assert (nothing, found) == (False, True)
    assert await facts.has_tool(LOCAL, own.place)
    assert await facts.cleared_turns(LOCAL, own.place) == 3
    assert await facts.deferred_tools(LOCAL, own.place) == {"bash"}
    assert await facts.pending_results(LOCAL, "ses_2", ["c1"]) == {"c1": "recovered lines"}
