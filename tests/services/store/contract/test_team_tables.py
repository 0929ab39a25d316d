"""What every store keeps for a team."""

import asyncio
from dataclasses import replace
from inspect import getmembers, isfunction, signature
from pathlib import Path

from tests.services.store.contract.conftest import Opening
from tests.support.fakes import Clock
from tests.support.services.store.making import a_metric

from kimi_proxy.services.store.protocols import NEWEST
from kimi_proxy.services.store.usage import OpenRequest, UsageKey, UsageSum
from kimi_proxy.team.records import (
    AuditEntry,
    LoginRecord,
    PersonRecord,
    Spent,
    TeamTables,
    TokenRecord,
    UsageRange,
)
from kimi_proxy.team.tables import team_tables

ADA = PersonRecord("ada", "member", "platform", 100.0, 100.0, id="per_ada")
BEN = replace(ADA, name="ben", id="per_ben")
DAY = "1970-01-01"
USE = UsageKey(DAY, ADA.id, "platform", "m")


async def test_a_person_is_found_by_the_hash_of_a_token_until_it_is_rotated_or_revoked(opened: Opening, tmp_path: Path):
    async with opened(tmp_path, now=Clock()) as store:
        assert await team_tables(store).add_person(ADA, b"first", None)
        assert not await team_tables(store).add_person(ADA, b"other", None)
        assert await team_tables(store).person_with(b"first", 100.0) == ADA

        rotated = replace(ADA, rotated=200.0)
        assert await team_tables(store).rotate_person("ada", 200.0, b"second", None) == rotated
        assert (
            await team_tables(store).person_with(b"first", 100.0),
            await team_tables(store).person_with(b"second", 100.0),
        ) == (
            None,
            rotated,
        )

        revoked = replace(rotated, revoked=300.0)
        assert await team_tables(store).revoke_person("ada", 300.0) == revoked
        assert (await team_tables(store).person_with(b"second", 100.0), await team_tables(store).people()) == (
            None,
            [revoked],
        )
        assert await team_tables(store).rotate_person("ben", 300.0, b"third", None) is None
        assert await team_tables(store).revoke_person("ben", 300.0) is None


async def test_only_an_admins_token_or_login_adds_and_rotates_people(opened: Opening, tmp_path: Path):
    dee = PersonRecord("dee", "admin", "", 100.0, 100.0, id="per_dee")
    async with opened(tmp_path, now=Clock()) as store:
        team = team_tables(store)
        await team.add_person(ADA, b"of ada", None)
        await team.add_person(dee, b"of dee", None)
        await team.keep_login(LoginRecord(b"login of dee", 150.0, 250.0, dee.id))
        await team.add_token(TokenRecord("tok_1", dee.id, "", 150.0, 900.0), b"made by dee", b"of dee", 9)

        for nobody in (b"", b"of ada", b"made by dee", b"unknown"):
            assert not await team.add_person(replace(ADA, name="gus", id="per_gus", created=200.0), b"of gus", nobody)
            assert await team.rotate_person("ada", 200.0, b"second", nobody) is None
        assert await team.rotate_person("ada", 300.0, b"second", b"login of dee") is None  # it has expired
        assert await team.people() == [ADA, dee]

        assert await team.add_person(replace(ADA, name="gus", id="per_gus", created=200.0), b"of gus", b"login of dee")
        assert await team.rotate_person("ada", 200.0, b"second", b"of dee") == replace(ADA, rotated=200.0)
        await team.revoke_person("dee", 300.0)
        assert await team.rotate_person("ada", 300.0, b"third", b"of dee") is None


async def test_a_person_has_no_more_tokens_than_they_may_and_makes_them_with_the_one_from_an_admin(
    opened: Opening, tmp_path: Path
):
    def made(number: int, at: float) -> TokenRecord:
        return TokenRecord(f"tok_{number}", ADA.id, "", at, at + 100.0)

    async with opened(tmp_path, now=Clock()) as store:
        team = team_tables(store)
        await team.add_person(ADA, b"first", None)
        await team.add_person(BEN, b"of ben", None)
        await team.keep_login(LoginRecord(b"login", 150.0, 250.0, ADA.id))
        for nobody in (b"", b"of ben", b"unknown"):
            assert not await team.add_token(made(0, 160.0), b"none", nobody, 3)
        assert await team.add_token(made(1, 160.0), b"one", b"first", 3)
        assert not await team.add_token(made(0, 160.0), b"none", b"one", 3)
        several = [team.add_token(made(n, 160.0), f"more {n}".encode(), b"login", 3) for n in range(2, 8)]
        assert sum(await asyncio.gather(*several)) == 2
        assert not await team.add_token(made(8, 160.0), b"too many", b"first", 3)
        assert await team.add_token(made(9, 260.0), b"later", b"first", 3)  # the others have expired
        assert not await team.add_token(made(10, 260.0), b"none", b"login", 3)

        # Made on a server whose clock is ahead, or within the same millisecond.
        await team.add_token(made(11, 400.0), b"ahead", b"first", 3)
        await team.rotate_person("ada", 300.0, b"second", None)
        assert (await team.tokens(ADA.id), await team.person_with(b"ahead", 410.0)) == ([], None)
        assert not await team.add_token(made(12, 300.0), b"none", b"first", 3)


async def test_a_token_of_their_own_is_good_until_it_ends_or_an_admin_rotates_or_revokes(
    opened: Opening, tmp_path: Path
):
    async with opened(tmp_path, now=Clock()) as store:
        team = team_tables(store)
        await team.add_person(ADA, b"first", None)
        laptop = TokenRecord("tok_1", ADA.id, "laptop", 100.0, 300.0)
        await team.add_token(laptop, b"own", b"first", 1)
        assert [await team.person_with(b"own", now) for now in (299.0, 300.0)] == [ADA, None]
        assert (await team.tokens(ADA.id), await team.tokens(BEN.id)) == ([laptop], [])

        assert not await team.end_token(BEN.id, "tok_1")
        assert await team.end_token(ADA.id, "tok_1")
        assert await team.person_with(b"own", 200.0) is None

        await team.add_token(laptop, b"own", b"first", 1)
        await team.revoke_person("ada", 200.0)
        assert await team.person_with(b"own", 201.0) is None
        await team.rotate_person("ada", 250.0, b"second", None)
        assert await team.person_with(b"own", 251.0) is None


async def test_a_removed_person_leaves_only_figures_without_a_name(opened: Opening, tmp_path: Path):
    of_ada = replace(a_metric(), person=ADA.id, team="platform", scope="person/per_ada")
    async with opened(tmp_path, now=Clock()) as store:
        team = team_tables(store)
        await team.add_person(ADA, b"first", None)
        await team.add_token(TokenRecord("tok_1", ADA.id, "", 100.0, 300.0), b"own", b"first", 1)
        await team.keep_login(LoginRecord(b"made", 150.0, 250.0, ADA.id))
        await store.sessions.write([], [of_ada, replace(of_ada, id="req_2", person="")])
        before = {one: await team.usage(DAY) for one in ("all",)}["all"]

        await team.erase_scope("person/per_ada")
        assert (await team.remove_person(ADA.id), await team.remove_person(ADA.id)) == (True, False)
        assert (await team.people(), await team.tokens(ADA.id), await team.person_logged_in(b"made", 200.0)) == (
            [],
            [],
            None,
        )
        after = await team.usage(DAY)
        assert [key.person for key, _ in after] == [""]
        assert after[0][1].requests == sum(one.requests for _, one in before) == 2
        assert await team.add_person(ADA, b"again", None)


async def test_a_login_is_its_persons_until_it_expires_is_ended_or_they_are_revoked(opened: Opening, tmp_path: Path):
    async with opened(tmp_path, now=Clock()) as store:
        team = team_tables(store)
        await team.add_person(ADA, b"first", None)
        made = LoginRecord(b"made", 150.0, 250.0, ADA.id)
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
        await team.revoke_person("ada", 200.0)
        assert not await team.change_by_login(named)  # which was read before
        assert await team.people() == [replace(named, revoked=200.0)]
        assert await team.person_logged_in(b"more", 200.0) is None
        await team.rotate_person("ada", 201.0, b"second", None)
        assert await team.person_logged_in(b"more", 202.0) is None
        await team.keep_login(replace(made, id_hash=b"late", began=260.0, expires=360.0))
        assert await team.take_login(b"more") is None  # it had expired


async def test_what_people_use_is_counted_once_by_day_person_team_and_model(opened: Opening, tmp_path: Path):
    of_ada = replace(a_metric(), person=ADA.id, team="platform", scope="person/per_ada")
    async with opened(tmp_path, now=Clock()) as store:
        await team_tables(store).add_person(ADA, b"of ada", None)
        await team_tables(store).add_person(BEN, b"of ben", None)
        for _ in range(2):
            await store.sessions.write(
                [], [of_ada, replace(of_ada, id="req_2"), replace(of_ada, id="req_3", person=BEN.id)]
            )

        found = await team_tables(store).usage(DAY)
        assert [(key, one.requests) for key, one in found] == [
            (replace(USE, model=of_ada.model, person="ada"), 2),
            (replace(USE, model=of_ada.model, person="ben"), 1),
        ]
        assert found[0][1].input_tokens == 2 * (of_ada.input_tokens or 0)
        assert [key.person for key, _ in await team_tables(store).usage(DAY, [BEN.id])] == ["ben"]
        assert await team_tables(store).usage("1970-01-02") == await team_tables(store).usage(DAY, []) == []


async def test_no_more_requests_are_admitted_than_a_budget_has_however_many_come_at_once(
    opened: Opening, tmp_path: Path
):
    wanted = [UsageRange(DAY, person=ADA.id), UsageRange(DAY, team="platform", models=("m",))]
    async with opened(tmp_path) as store, opened(tmp_path) as other:

        async def ask(at: int) -> bool:
            here = (store, other)[at % 2]
            spent = await team_tables(here).admit(USE, wanted, lambda sums: all(one.requests < 7 for one in sums))
            return all(one.requests < 7 for one in spent)

        assert sum(await asyncio.gather(*map(ask, range(12)))) == 7
        assert await team_tables(store).admit(USE, wanted, lambda sums: False) == [Spent(7, 0.0)] * 2
        assert await team_tables(store).usage(DAY) == []  # they were let through, and are not over


async def test_a_budget_counts_the_money_of_requests_that_are_over(opened: Opening, tmp_path: Path):
    costly = replace(a_metric(), person=ADA.id, team="platform", cost_usd=1.5)
    async with opened(tmp_path, now=Clock()) as store:
        await store.sessions.write([], [costly, replace(costly, id="req_2", model="other")])

        sums = await team_tables(store).admit(
            USE,
            [UsageRange(DAY, person=ADA.id), UsageRange(DAY, models=("other",)), UsageRange("1970-01-02")],
            lambda sums: False,
        )
        assert [one.usd for one in sums] == [3.0, 1.5, 0.0]


async def test_of_three_servers_two_settle_once_what_the_killed_third_was_relaying(opened: Opening, tmp_path: Path):
    async with opened(tmp_path, now=Clock()) as one, opened(tmp_path, now=Clock()) as other:
        async with opened(tmp_path, now=Clock()) as killed:
            lost = [OpenRequest(f"req_{at}", USE, 0.5, 100, 60.0) for at in range(20)]
            await team_tables(killed).hold_open(lost, [], 60.0)
        for _ in range(2):  # nothing before its time, and all of it once
            assert await asyncio.gather(
                team_tables(one).close_expired(59.0), team_tables(other).close_expired(59.0)
            ) == [0, 0]
        closed = await asyncio.gather(*(team_tables(store).close_expired(61.0) for store in (one, other, one, other)))
        assert sum(closed) == 20
        ((key, used),) = await team_tables(one).usage(DAY)
        assert (key, used.cost_usd, used.input_tokens) == (replace(USE, person=""), 10.0, 2000)  # no one has that id
        assert await team_tables(other).close_expired(1000.0) == 0


async def test_an_open_request_counts_until_it_is_over_or_its_server_died(opened: Opening, tmp_path: Path):
    metric = replace(a_metric(), person=ADA.id, team="platform", cost_usd=1.5)
    over, lost = OpenRequest(metric.id, USE, 2.0, 100, 60.0), OpenRequest("req_lost", USE, 4.0, 100, 60.0)
    wanted = [UsageRange(DAY, person=ADA.id)]
    async with opened(tmp_path, now=Clock()) as store:

        async def spent() -> float:
            return (await team_tables(store).admit(USE, wanted, lambda sums: False))[0].usd

        await team_tables(store).admit(USE, wanted, lambda sums: True, over)
        await team_tables(store).hold_open([over, lost], [over.id], 90.0)
        assert await spent() == 6.0
        await team_tables(store).settle(over.id, 1.0)
        assert await spent() == 5.0
        assert (await team_tables(store).close_expired(60.5), await spent()) == (1, 5.0)
        await store.sessions.write([], [metric])
        assert (await team_tables(store).close_expired(1000.0), await spent()) == (0, 5.5)
        await team_tables(store).close_requests([("req_relayed", USE, UsageSum(requests=1, cost_usd=0.5))])
        assert await spent() == 6.0
        assert sum(one.requests for _, one in await team_tables(store).usage(DAY)) == 3


async def test_a_request_of_a_living_server_that_others_took_for_dead_counts_once(opened: Opening, tmp_path: Path):
    """A server that is too busy to renew its hold, or whose clock is late, still knows what its request cost."""
    metric = replace(a_metric(), person=ADA.id, team="platform", cost_usd=1.5)
    slow, relayed = OpenRequest(metric.id, USE, 2.0, 100, 60.0), OpenRequest("req_relayed", USE, 4.0, 100, 60.0)
    wanted = [UsageRange(DAY, person=ADA.id)]
    async with opened(tmp_path, now=Clock()) as living, opened(tmp_path, now=Clock()) as other:

        async def spent() -> float:
            return (await team_tables(living).admit(USE, wanted, lambda sums: False))[0].usd

        await team_tables(living).hold_open([slow, relayed], [], 60.0)
        assert (await team_tables(other).close_expired(61.0), await spent()) == (2, 6.0)
        await team_tables(living).hold_open([], [slow.id, relayed.id], 120.0)
        await team_tables(living).settle(slow.id, 100.0)
        assert (await team_tables(other).close_expired(121.0), await spent()) == (0, 6.0)

        await living.sessions.write([], [metric])
        assert await spent() == 5.5
        await team_tables(living).close_requests([(relayed.id, USE, UsageSum(requests=1, cost_usd=0.5))])
        assert await spent() == 2.0
        assert sum(one.requests for _, one in await team_tables(living).usage(DAY)) == 2


async def test_what_was_settled_for_a_dead_server_is_remembered_for_a_day(opened: Opening, tmp_path: Path):
    async with opened(tmp_path, now=Clock()) as store:
        await team_tables(store).hold_open([OpenRequest("req_lost", USE, 2.0, 100, 60.0)], [], 60.0)
        assert await team_tables(store).close_expired(61.0) == 1
        assert await team_tables(store).close_expired(61.0 + 86_401) == 0

        await team_tables(store).close_requests([("req_lost", USE, UsageSum(requests=1, cost_usd=0.5))])
        ((_, used),) = await team_tables(store).usage(DAY)
        assert (used.requests, used.cost_usd) == (2, 2.5)  # nothing is known of it any more


async def test_the_audit_log_is_read_from_its_end_and_expires(opened: Opening, tmp_path: Path):
    entries = [AuditEntry(float(at), "ada", "recover", f"prn_{at}", person_id=ADA.id) for at in range(5)]
    async with opened(tmp_path, now=Clock()) as store:
        await team_tables(store).add_audit(entries)
        page = await team_tables(store).audit(NEWEST, 2)
        rest = await team_tables(store).audit(page[-1][0], 10, since=1.0)
        assert [entry for _, entry in (*page, *rest)] == entries[:0:-1]

        assert await team_tables(store).expire_audit(3.0) == 3
        assert [entry for _, entry in await team_tables(store).audit(NEWEST, 10)] == entries[:2:-1]


def test_sums_add_up():
    assert UsageSum(1, 2, cost_usd=0.5) + UsageSum(1, 1, cost_usd=0.25) == UsageSum(2, 3, cost_usd=0.75)


def test_every_method_for_a_team_says_whose_rows_it_reads():
    """Those about people are behind routes for admins, or get the person from the guard; the others name scopes."""
    about_people = {
        *("people", "person_with", "add_person", "rotate_person", "revoke_person", "change_by_login", "remove_person"),
        *("add_token", "tokens", "end_token", "erased_since"),
        *("keep_login", "take_login", "person_logged_in", "admit", "usage"),
        *("add_audit", "audit", "expire_audit"),
        *("hold_open", "settle", "close_requests", "close_expired"),
    }
    methods = {name: method for name, method in getmembers(TeamTables, isfunction) if not name.startswith("_")}
    scoped = {name for name, method in methods.items() if {"scope", "scopes"} & set(signature(method).parameters)}

    assert set(methods) - scoped == about_people
    assert scoped == {"erase_scope", "erase_person"}
