"""Long originals in object storage: a real S3 server holds them, and whatever becomes of it no text is lost."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from tests.support.replicas.fleet import free_port
from tests.support.services.store.making import an_original, reason
from tests.support.services.store.postgres_server import opened, serving, url_of
from tests.support.services.store.s3_server import BUCKET, S3Server, s3_server

from kimi_proxy.core.caller import LOCAL, Caller
from kimi_proxy.core.config import parse
from kimi_proxy.core.errors import ConfigError, StoreUnavailable
from kimi_proxy.proxy.s3 import Bucket
from kimi_proxy.services.store import open_store
from kimi_proxy.services.store.encryption import TextCipher
from kimi_proxy.services.store.postgres.objects import ObjectSettings
from kimi_proxy.services.store.protocols import NEWEST

LONG = os.urandom(100_000) + b"\r\n\xed\xa0\x80\x00"
_FULL = """
CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS
  $$ BEGIN RAISE EXCEPTION 'No space left on device' USING ERRCODE = 'disk_full'; END $$;
CREATE TRIGGER full_disk BEFORE INSERT ON record FOR EACH ROW EXECUTE FUNCTION no_room();
"""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with serving() as url:
        yield url


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as running:
        yield running


def settings_at(endpoint: str, timeout_s: float = 30.0) -> ObjectSettings:
    place = f"s3://{BUCKET}/x"
    return ObjectSettings(Bucket(place, endpoint, timeout_s), place, 1)


def make_due(url: str) -> None:
    """Let the time pass after which objects that no text refers to are deleted."""
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE stray_object SET due = 0")


def strays(url: str) -> int:
    with psycopg.connect(url) as connection:
        return len(connection.execute("SELECT 1 FROM stray_object").fetchall())


def lengths(url: str) -> list[int]:
    """Return the bytes that each text takes in the database."""
    with psycopg.connect(url) as connection:
        return [n for (n,) in connection.execute("SELECT octet_length(frame) FROM text ORDER BY 1").fetchall()]


async def test_long_originals_are_objects_and_short_ones_rows(server: str, s3: S3Server, tmp_path: Path) -> None:
    long, short, url = an_original(LONG, "person/ada"), an_original(), url_of(server, tmp_path)
    other_long = an_original(LONG, "person/ben")
    async with opened(server, tmp_path, objects=s3.settings("a", 50_000)) as store:
        for original in (long, short, other_long):
            await store.originals.keep(original)
    async with opened(server, tmp_path, objects=s3.settings("a", 50_000)) as other:
        assert await other.originals.get(LOCAL, short.id) == short
        assert await other.originals.get(Caller("person/ada"), long.id) == long
        assert [one.text for one in await other.originals.texts(Caller("person/ben"), NEWEST, 9)] == [LONG]
        assert await reason(other.originals, long.id, "person/ben") == "unknown"
        assert (await other.usage()).path.endswith(f" and s3://{BUCKET}/a")

    names = sorted(s3.objects("a"))
    assert len(names) == 2 and max(lengths(url)) < 100 and strays(url) == 0
    # A name tells neither whose text it is nor which: two people with one text have nothing in common.
    assert all("ada" not in name and "ben" not in name for name in names)
    assert not set(names[0].split("/")[1:]) & set(names[1].split("/")[1:])


async def test_the_same_text_is_one_object(server: str, s3: S3Server, tmp_path: Path) -> None:
    first, second = an_original(LONG, key=b"1" * 32), an_original(LONG, key=b"2" * 32)
    async with opened(server, tmp_path, objects=s3.settings("b")) as store:
        for original in (first, second, first):
            await store.originals.keep(original)
        assert len(s3.objects("b")) == 1
        await asyncio.gather(*(store.originals.keep(an_original(LONG * 2)) for _ in range(6)))
        make_due(url_of(server, tmp_path))
        await store.sweep()
        assert len(s3.objects("b")) == 2
        assert await store.originals.get(LOCAL, second.id) == second


async def test_an_object_goes_with_the_last_original_that_has_its_text(
    server: str, s3: S3Server, tmp_path: Path
) -> None:
    first, second, url = an_original(LONG, key=b"1" * 32), an_original(LONG, key=b"2" * 32), url_of(server, tmp_path)
    async with opened(server, tmp_path, objects=s3.settings("c")) as store:
        await store.originals.keep(first)
        await store.originals.keep(second)
        await store.originals.delete(LOCAL, [first.id])
        make_due(url)
        await store.sweep()
        assert await store.originals.get(LOCAL, second.id) == second
        await store.originals.delete(LOCAL, [second.id])
        await store.sweep()
        assert len(s3.objects("c")) == 1  # for a minute: somebody may be reading it
        make_due(url)
        await store.sweep()
        assert (s3.objects("c"), strays(url), lengths(url)) == ({}, 0, [])


@pytest.mark.parametrize("trouble", ["away", "refuses", "hangs"])
async def test_what_object_storage_does_not_take_is_kept_in_the_database(
    trouble: str, server: str, s3: S3Server, tmp_path: Path
) -> None:
    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    listening = await asyncio.start_server(hang, "127.0.0.1", 0)
    hanging = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    endpoint = {"away": f"http://127.0.0.1:{free_port()}", "refuses": f"{s3.url}/nobody", "hangs": hanging}[trouble]
    originals = [an_original(LONG), an_original(LONG * 2)]
    async with listening, opened(server, tmp_path, objects=settings_at(endpoint, 2.0)) as store:
        for original in originals:
            await store.originals.keep(original)  # the second one does not try again so soon
            assert await store.originals.get(LOCAL, original.id) == original
        make_due(url := url_of(server, tmp_path))
        assert (await store.sweep(), strays(url)) == (0, int(trouble != "refuses"))  # what nobody took may be there
        usage = await store.usage()
    assert (usage.state, usage.object_failures) == ("ok", 1)
    assert min(lengths(url)) > 100_000


async def test_an_object_whose_original_was_not_committed_is_deleted_later(
    server: str, s3: S3Server, tmp_path: Path
) -> None:
    url = url_of(server, tmp_path)
    async with opened(server, tmp_path, objects=s3.settings("d")) as store:
        await store.usage()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(_FULL)
            with pytest.raises(StoreUnavailable, match="No space left"):
                await store.originals.keep(an_original(LONG))
            connection.execute("DROP TRIGGER full_disk ON record")
        await store.sweep()
        assert len(s3.objects("d")) == 1  # for an hour: its transaction might still end
        make_due(url)
        with psycopg.connect(url) as connection:
            connection.execute("DELETE FROM stray_object")  # as such a transaction does
            await store.sweep()
            assert len(s3.objects("d")) == 1
            connection.rollback()
        await store.sweep()
        assert s3.objects("d") == {}


async def test_an_object_that_is_missing_changed_or_out_of_reach_is_never_given_out(
    server: str, s3: S3Server, tmp_path: Path
) -> None:
    original = an_original(LONG)
    async with opened(server, tmp_path, objects=s3.settings("e")) as store:
        await store.originals.keep(original)
        ((name, body),) = s3.objects("e").items()
        for changed, said in ((body[:-1], "damaged"), (None, "missing")):
            if changed is None:
                s3.delete(name)
            else:
                s3.put(name, changed)
            with pytest.raises(StoreUnavailable, match=said):
                await store.originals.get(LOCAL, original.id)
            assert [one.text for one in await store.originals.texts(LOCAL, NEWEST, 9)] == [None]
        s3.put(name, body)
        assert await store.originals.get(LOCAL, original.id) == original
    away = settings_at(f"http://127.0.0.1:{free_port()}")
    for objects, said in ((away, "does not answer"), (None, r"store\.object_storage")):
        async with opened(server, tmp_path, objects=objects) as store:
            with pytest.raises(StoreUnavailable, match=said):
                await store.originals.get(LOCAL, original.id)


async def test_objects_are_encrypted_and_a_new_key_takes_over(server: str, s3: S3Server, tmp_path: Path) -> None:
    text = b"zebra crossing " * 9000
    original, url, old, new = an_original(text), url_of(server, tmp_path), b"o" * 32, b"n" * 32
    async with opened(server, tmp_path, objects=s3.settings("f")) as store:
        await store.originals.keep(original)
    for keys in ([old], [new, old]):
        before = s3.objects("f")
        async with opened(server, tmp_path, objects=s3.settings("f"), cipher=TextCipher(keys)) as store:
            assert (await store.reencrypt(), await store.reencrypt()) == (1, 0)
            assert await store.originals.get(LOCAL, original.id) == original
            make_due(url)
            await store.sweep()
        assert len(s3.objects("f")) == 1 and not set(s3.objects("f")) & set(before)
        assert all(body.startswith(b"KPE1") and b"zebra" not in body for body in s3.objects("f").values())
    async with opened(server, tmp_path, objects=s3.settings("f"), cipher=TextCipher([new])) as store:
        assert await store.originals.get(LOCAL, original.id) == original


async def test_the_settings_name_the_bucket_and_what_is_missing(
    server: str, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, original = url_of(server, tmp_path), an_original(LONG)
    toml = f'[store]\nobject_storage = "s3://{BUCKET}/g"\nobject_endpoint = "{s3.url}"\nobject_min_bytes = 2000\n'
    store = await open_store(parse(toml, {"KIMI_PROXY_DATABASE_URL": url}, tmp_path))
    try:
        await store.originals.keep(original)
        assert await store.originals.get(LOCAL, original.id) == original
    finally:
        await store.close()
    assert len(s3.objects("g")) == 1

    with pytest.raises(ConfigError, match="KIMI_PROXY_DATABASE_URL"):
        parse(toml, {}, tmp_path)
    with pytest.raises(ConfigError, match="object_storage"):
        parse(toml.replace("s3://", "gs://"), {"KIMI_PROXY_DATABASE_URL": url}, tmp_path)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(ConfigError, match="AWS_ACCESS_KEY_ID"):
        await open_store(parse(toml, {"KIMI_PROXY_DATABASE_URL": url}, tmp_path))
