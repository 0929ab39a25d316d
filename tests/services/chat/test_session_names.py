"""Which session a client means: nobody's but the caller's, and the same one as before."""

from dataclasses import replace
from pathlib import Path

from tests.support.conversations import User, request
from tests.support.services.store.making import a_session, opened

from kimi_proxy.core.caller import LOCAL, Caller
from kimi_proxy.core.chat import Wire
from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.features.chat.sessions import LOCAL_IDS, Session, SessionIds, is_session_id, session_of
from kimi_proxy.services.chat.session_lookup import SessionNames
from kimi_proxy.services.store.protocols import SessionStore

ADA = Caller("person/ada", "ada", is_admin=False)
BEN = Caller("person/ben", "ben", is_admin=False)
ASKED = request(Wire.CHAT, [User("What is new?")])


async def found(names: SessionNames, who: Caller, name: str = "") -> Session:
    return await names.session_of(who, ASKED, {b"x-session-id": name.encode()} if name else {}, "p")


async def test_in_a_team_ids_are_secret_and_the_same_for_every_server(tmp_path: Path):
    async with opened(tmp_path) as one, opened(tmp_path) as other:
        names, elsewhere = SessionNames(one.sessions), SessionNames(other.sessions)
        for name in ("plan", ""):
            ids = [(await found(names, who, name)).id for who in (ADA, BEN)]
            public = [session_of(ASKED, {}, "p", SessionIds(who.scope)).id for who in (ADA, BEN)]
            public += [SessionIds(who.scope).session_named("plan").id for who in (ADA, BEN)]
            assert len({*ids, *public}) == 6
            assert [(await found(elsewhere, who, name)).id for who in (ADA, BEN)] == ids
        assert await names.id_of(ADA, "plan") == (await found(names, ADA, "plan")).id
    async with opened(tmp_path / "another store") as another:
        assert await SessionNames(another.sessions).id_of(ADA, "plan") != await names.id_of(ADA, "plan")


async def test_without_a_team_ids_are_what_they_were(tmp_path: Path):
    async with opened(tmp_path) as store:
        names = SessionNames(store.sessions)
        assert await found(names, LOCAL, "plan") == LOCAL_IDS.session_named("plan")
        assert await found(names, LOCAL) == session_of(ASKED, {}, "p", LOCAL_IDS)
        assert (await found(names, LOCAL, "ses_0123456789abcdef")).id == "ses_0123456789abcdef"


async def test_a_session_that_began_before_ids_were_secret_keeps_its_id(tmp_path: Path):
    before = {who: SessionIds(who.scope).session_named("plan").id for who in (ADA, BEN)}
    began = session_of(ASKED, {}, "p", SessionIds(ADA.scope)).id
    helper = SessionIds(ADA.scope).session_named("plan/agent").id
    async with opened(tmp_path) as store:
        # The one of ben was begun by ada.
        rows = [a_session(id) for id in (before[ADA], before[BEN], began, helper)]
        await store.sessions.write([replace(row, scope=ADA.scope) for row in rows], [])
        names = SessionNames(store.sessions)
        assert (await found(names, ADA, "plan")).id == await names.id_of(ADA, "plan") == before[ADA]
        assert (await found(names, BEN, "plan")).id not in before.values()
        assert await found(names, ADA) == Session(began, beginning=began)
        headers = {b"x-claude-code-session-id": b"plan", b"x-claude-code-agent-id": b"agent"}
        assert await names.session_of(ADA, ASKED, headers, "p") == Session(helper, "plan/agent", before[ADA])


async def test_an_id_counts_only_if_that_session_is_the_callers(tmp_path: Path):
    async with opened(tmp_path) as store:
        names = SessionNames(store.sessions)
        mine, other = "ses_0000000000000001", "ses_0000000000000002"
        rows = [replace(a_session(mine), scope=ADA.scope), replace(a_session(other), scope=BEN.scope)]
        await store.sessions.write(rows, [])
        assert (await found(names, ADA, mine)).id == mine
        for id in (other, "ses_0000000000000003"):
            named = await found(names, ADA, id)
            assert named.id != id and is_session_id(named.id)
            assert (await found(names, ADA, id)).id == named.id
        # One that was derived for its person counts before its row is written.
        derived = (await found(names, BEN, "plan")).id
        assert (await found(names, BEN, derived)).id == derived
        assert (await found(names, ADA, derived)).id != derived


class AwaySessions(SessionStore):
    """Sessions in a database that cannot be reached."""

    async def secret(self) -> bytes:
        raise StoreUnavailable("away")

    async def own_ids(self, who: Caller, ids: object) -> frozenset[str]:
        raise StoreUnavailable("away")


async def test_while_the_store_is_away_ids_cannot_be_guessed_either():
    one, other = SessionNames(AwaySessions()), SessionNames(AwaySessions())
    ids = [(await found(names, who, "plan")).id for names in (one, other) for who in (ADA, BEN)]
    assert len({*ids, *(SessionIds(who.scope).session_named("plan").id for who in (ADA, BEN))}) == 6
    assert (await found(one, ADA, "plan")).id == ids[0]
