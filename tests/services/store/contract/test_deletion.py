"""Deleting a session deletes what only it used, in every store."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.services.store.contract.conftest import Opening
from tests.support.fakes import Clock
from tests.support.services.store.making import a_metric

from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.errors import PruneIdNotFound
from kimi_proxy.services.originals import delete_texts
from kimi_proxy.services.store.protocols import CompressionRecord, DecisionRecord, Original, Store


def an_original(id: str, session: str = "", text: bytes = b"a text") -> Original:
    about = {"what": "output"} | ({"session": session} if session else {})
    return Original(id, "local", id.encode(), text, json.dumps(about).encode())


async def reason(store: Store, id: str) -> str:
    """Return why an id recovers nothing; "live" if it does."""
    try:
        await store.originals.get(LOCAL, id)
    except PruneIdNotFound as e:
        return e.reason
    return "live"


async def test_a_deleted_session_takes_along_what_only_it_used(opened: Opening, tmp_path: Path):
    async with opened(tmp_path, now=Clock()) as store:
        for id, session in (
            ("prn_a", "ses_a"),
            ("prn_b", "ses_b"),
            ("prn_both", "ses_a"),
            ("prn_old", ""),
            ("prn_hook", "ses_a"),
        ):
            await store.originals.keep(an_original(id, session))
        await store.originals.keep(an_original("prn_tool"))
        await store.decisions.add(
            LOCAL,
            [
                DecisionRecord(b"1", "pruned", b"x", ("prn_a", "prn_both"), session="ses_a"),
                DecisionRecord(b"2", "pruned", b"x", ("prn_b", "prn_both"), session="ses_b"),
            ],
        )
        made = CompressionRecord("cmp_1", "ses_a", 1.0, 9, 1, 1, (), b"", "m", "s", "prn_old", "", "compression", True)
        await store.decisions.add_compression(LOCAL, made)
        await store.sessions.write([], [replace(a_metric(), session=id, id=f"req_{id}") for id in ("ses_a", "ses_b")])

        assert await delete_texts(store, LOCAL, ["ses_a"]) == (3, 1)
        assert await store.sessions.delete(LOCAL, ["ses_a"]) == ["ses_a"]

        ids = ("prn_a", "prn_hook", "prn_old", "prn_both", "prn_b", "prn_tool", "prn_never")
        found = {id: await reason(store, id) for id in ids}
        assert found == {
            "prn_a": "expired",
            "prn_hook": "expired",
            "prn_old": "expired",
            "prn_both": "live",
            "prn_b": "live",
            "prn_tool": "live",
            "prn_never": "unknown",
        }
        assert [one.key for _, one in await store.decisions.page(LOCAL, 0, 10)] == [b"2"]
        usage = await store.usage()
        assert usage.originals == 3

        assert await delete_texts(store, LOCAL, None) == (2, 1)
        assert [await reason(store, id) for id in ("prn_b", "prn_both", "prn_tool")] == ["expired", "expired", "live"]


async def test_a_text_that_another_original_holds_stays(opened: Opening, tmp_path: Path):
    async with opened(tmp_path, now=Clock()) as store:
        await store.originals.keep(an_original("prn_a", text=b"the same"))
        await store.originals.keep(an_original("prn_b", text=b"the same"))
        assert await store.originals.delete(LOCAL, ["prn_a", "prn_none"]) == {"prn_a"}
        assert (await store.originals.get(LOCAL, "prn_b")).text == b"the same"
        with pytest.raises(PruneIdNotFound):
            await store.originals.get(LOCAL, "prn_a")


async def test_thousands_of_originals_are_deleted_in_short_transactions(opened: Opening, tmp_path: Path):
    async with opened(tmp_path, now=Clock()) as store:
        ids = [f"prn_{at}" for at in range(230)]
        for id in ids:
            await store.originals.keep(an_original(id, text=id.encode()))
        assert await store.originals.delete(LOCAL, ids) == frozenset(ids)
        assert (await store.usage()).originals == 0
