"""What every store keeps for a team."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from tests.fakes import Clock
from tests.services.store.contract.conftest import Opening
from tests.services.store.making import a_metric, a_session, an_original

from kimi_proxy.core.caller import Caller, acting
from kimi_proxy.core.errors import AccessDenied, PruneIdNotFound
from kimi_proxy.services.store.protocols import NEWEST, DecisionRecord
from kimi_proxy.services.store.team import AuditEntry, LoginRecord, PersonRecord, Spent, UsageKey, UsageRange, UsageSum
from kimi_proxy.services.team.store import TeamStore

ADA = PersonRecord("ada", "member", "platform", 100.0, 100.0)
DAY = "1970-01-01"
USE = UsageKey(DAY, "ada", "platform", "m")


async def test_a_person_is_found_by_the_hash_of_a_token_until_it_is_rotated_or_revoked(opened: Opening, tmp_path: Path):
    async with opened(tmp_path, now=Clock()) as store:
        assert await store.team.add_person(ADA, b"first")
        assert not await store.team.add_person(ADA, b"other")
        assert await store.team.person_with(b"first") == ADA

        rotated = replace(ADA, rotated=200.0)
        assert await store.team.change_person(rotated, b"second")
        assert (await store.team.person_with(b"first"), await store.team.person_with(b"second")) == (None, rotated)

        revoked = replace(rotated, revoked=300.0)
        assert await store.team.change_person(revoked)
        assert (await store.team.person_with(b"second"), await store.team.people()) == (None, [revoked])
        assert not await store.team.change_person(replace(ADA, name="ben"))


async def test_a_login_is_its_persons_until_it_expires_is_ended_or_they_are_revoked(opened: Opening, tmp_path: Path):
    async with opened(tmp_path, now=Clock()) as store:
        team = store.team
        await team.add_person(ADA, b"first")
        made = LoginRecord(b"made", 150.0, 250.0, "ada")
        begun = LoginRecord(b"begun", 150.0, 250.0, detail='{"state": "é"}')
        for one in (made, begun, replace(made, id_hash=b"before", began=99.0), replace(made, id_hash=b"more")):
            await team.keep_login(one)

        assert await team.person_logged_in(b"made", 249.0) == ADA
        assert [await team.person_logged_in(id, 249.0) for id in (b"begun", b"before", b"none")] == [None] * 3
        assert await team.person_logged_in(b"made", 250.0) is None
        taken = await asyncio.gather(*(team.take_login(b"begun") for _ in range(5)))
        assert [one for one in taken if one] == [begun]
        assert (await team.take_login(b"made"), await team.person_logged_in(b"made", 200.0)) == (made, None)

        named = replace(ADA, subject="https://login.example.org 1")
        assert await team.change_by_login(named)
        assert not await team.change_by_login(replace(named, subject="https://login.example.org 2", role="admin"))
        assert await team.person_logged_in(b"more", 200.0) == named
        await team.change_person(replace(ADA, revoked=200.0))
        assert not await team.change_by_login(named)  # which was read before
        assert await team.people() == [replace(named, revoked=200.0)]
        assert await team.person_logged_in(b"more", 200.0) is None
        await team.change_person(replace(ADA, rotated=201.0), b"second")
        assert await team.person_logged_in(b"more", 202.0) is None
        await team.keep_login(replace(made, id_hash=b"late", began=260.0, expires=360.0))
        assert await team.take_login(b"more") is None  # it had expired


async def test_what_people_use_is_counted_once_by_day_person_team_and_model(opened: Opening, tmp_path: Path):
    of_ada = replace(a_metric(), person="ada", team="platform", scope="person/ada")
    async with opened(tmp_path, now=Clock()) as store:
        for _ in range(2):
            await store.sessions.write(
                [], [of_ada, replace(of_ada, id="req_2"), replace(of_ada, id="req_3", person="ben")]
            )

        found = await store.team.usage(DAY)
        assert [(key, one.requests) for key, one in found] == [
            (replace(USE, model=of_ada.model), 2),
            (replace(USE, model=of_ada.model, person="ben"), 1),
        ]
        assert found[0][1].input_tokens == 2 * (of_ada.input_tokens or 0)
        assert [key.person for key, _ in await store.team.usage(DAY, ["ben"])] == ["ben"]
        assert await store.team.usage("1970-01-02") == await store.team.usage(DAY, []) == []


async def test_no_more_requests_are_admitted_than_a_budget_has_however_many_come_at_once(
    opened: Opening, tmp_path: Path
):
    wanted = [UsageRange(DAY, person="ada"), UsageRange(DAY, team="platform", model="m")]
    async with opened(tmp_path) as store, opened(tmp_path) as other:

        async def ask(at: int) -> bool:
            here = (store, other)[at % 2]
            spent = await here.team.admit(USE, wanted, lambda sums: all(one.requests < 7 for one in sums))
            return all(one.requests < 7 for one in spent)

        assert sum(await asyncio.gather(*map(ask, range(12)))) == 7
        assert await store.team.admit(USE, wanted, lambda sums: False) == [Spent(7, 0.0)] * 2
        assert await store.team.usage(DAY) == []  # they were let through, and are not over


async def test_a_budget_counts_the_money_of_requests_that_are_over(opened: Opening, tmp_path: Path):
    costly = replace(a_metric(), person="ada", team="platform", cost_usd=1.5)
    async with opened(tmp_path, now=Clock()) as store:
        await store.sessions.write([], [costly, replace(costly, id="req_2", model="other")])

        sums = await store.team.admit(
            USE,
            [UsageRange(DAY, person="ada"), UsageRange(DAY, model="other"), UsageRange("1970-01-02")],
            lambda sums: False,
        )
        assert [one.usd for one in sums] == [3.0, 1.5, 0.0]


async def test_the_audit_log_is_read_from_its_end_and_expires(opened: Opening, tmp_path: Path):
    entries = [AuditEntry(float(at), "ada", "recover", f"prn_{at}") for at in range(5)]
    async with opened(tmp_path, now=Clock()) as store:
        await store.team.add_audit(entries)
        page = await store.team.audit(NEWEST, 2)
        rest = await store.team.audit(page[-1][0], 10, since=1.0)
        assert [entry for _, entry in (*page, *rest)] == entries[:0:-1]

        assert await store.team.expire_audit(3.0) == 3
        assert [entry for _, entry in await store.team.audit(NEWEST, 10)] == entries[:2:-1]


async def test_lists_of_sessions_and_requests_hold_those_of_the_given_scopes_only(opened: Opening, tmp_path: Path):
    own, other = "person/ada", "person/ben"
    async with opened(tmp_path, now=Clock()) as store:
        sessions = store.sessions
        await sessions.write(
            [
                replace(a_session("ses_a", title="secret plan"), scope=own, person="ada"),
                replace(a_session("ses_b", title="secret plan"), scope=other, person="ben"),
            ],
            [replace(a_metric("req_a", "ses_a"), scope=own), replace(a_metric("req_b", "ses_b"), scope=other)],
        )
        for scopes, ids in (((own,), ["ses_a"]), ((own, other), ["ses_a", "ses_b"]), ((), [])):
            assert sorted(one.id for one in await sessions.newest(10, scopes=scopes)) == ids
            assert sorted(one.id for one in await sessions.newest(10, (1e9, ""), scopes)) == ids
            assert sorted(one.id for one in await sessions.search("plan", 10, scopes)) == ids
            assert sorted(one.session for one in await sessions.newest_metrics(10, scopes=scopes)) == ids
            assert sorted(one.session for _, one in await sessions.metrics(None, 0, 10, scopes)) == ids
            assert sorted(one.session for one in await sessions.accounts(0.0, scopes=scopes)) == ids
            assert await sessions.count(scopes) == (await sessions.totals(scopes)).sessions == len(ids)
            assert (await sessions.memory_totals(scopes)).requests <= len(ids)
        assert await sessions.newest_metrics(10, "ses_b", (own,)) == []
        found = await sessions.get("ses_a")
        assert found and (found.scope, found.person) == (own, "ada")

        assert await sessions.delete_all((own,)) == 1
        assert [one.id for one in await sessions.newest(10)] == ["ses_b"]
        assert len(await sessions.newest_metrics(10)) == 1


def test_sums_add_up():
    assert UsageSum(1, 2, cost_usd=0.5) + UsageSum(1, 1, cost_usd=0.25) == UsageSum(2, 3, cost_usd=0.75)


async def test_in_the_store_of_a_team_everything_of_another_person_is_as_if_it_were_not_there(
    opened: Opening, tmp_path: Path
):
    noted: list[tuple[str, str]] = []
    ada, ben, dee = (Caller(f"person/{name}", name, is_admin=name == "dee") for name in ("ada", "ben", "dee"))
    original = replace(an_original(b"a secret"), scope=ada.scope)
    decision = DecisionRecord(b"k" * 32, "pruned", b"shown", (original.id,), "a secret", "ses_a")
    session = replace(a_session("ses_a", title="a secret"), scope=ada.scope, person="ada")
    async with opened(tmp_path, now=Clock()) as kept:
        store = TeamStore(kept, lambda action, subject: noted.append((action, subject)))
        with acting(ada):
            await store.originals.keep(original)
            await store.decisions.add(ada.scope, [decision])
            await store.sessions.write([session], [replace(a_metric(), scope=ada.scope, person="ada")])
            assert await store.originals.get(ada.scope, original.id) == original
        for other in (ben, dee):
            with acting(other):
                with pytest.raises(PruneIdNotFound):
                    await store.originals.get(other.scope, original.id)
                assert await store.originals.find(other.scope, original.key) is None
                assert await store.originals.live(other.scope, [original.id]) == frozenset()
                assert await store.originals.page(other.scope, NEWEST, 10) == []
                assert await store.originals.texts(other.scope, NEWEST, 10) == []
                assert await store.decisions.get(other.scope, [decision.key]) == {}
                assert await store.decisions.of_original(other.scope, original.id) is None
                assert await store.sessions.search("secret", 10) == []
                assert await store.sessions.newest_context("ses_a") == (None, None)
                assert not await store.sessions.rename("ses_a", "mine")
                assert await store.sessions.delete(["ses_a"]) == await store.sessions.delete_all() == 0
                with pytest.raises(AccessDenied):
                    await store.originals.keep(original)
        with acting(ben):
            assert (await store.sessions.get("ses_a"), await store.sessions.newest(10)) == (None, [])
            assert await store.sessions.metrics(None, 0, 10) == await store.sessions.accounts(0.0) == []
        with acting(dee):
            (seen,) = await store.sessions.newest(10)
            assert (seen.person, seen.requests, seen.title) == ("ada", 1, "")
            assert [line.title for line in await store.sessions.accounts(0.0)] == [""]
        with pytest.raises(AccessDenied):
            await store.sessions.newest(10)
    assert ("recover", original.id) in noted
