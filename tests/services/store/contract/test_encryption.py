"""Texts are encrypted at rest in every store, under keys that rotate."""

import base64
from pathlib import Path

import pytest
from tests.services.store.contract.conftest import Opening
from tests.support.fakes import Clock

from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.config import parse
from kimi_proxy.core.errors import ConfigError, StoreUnavailable
from kimi_proxy.services.store.encryption import TextCipher, load_cipher
from kimi_proxy.services.store.protocols import CompressionRecord, DecisionRecord, Original, Store

OLD, NEW = b"o" * 32, b"n" * 32
SECRET = b"zebra crossing " * 40
ORIGINAL = Original("prn_1", "local", b"key", SECRET, b"{}")
DECISION = DecisionRecord(b"1", "pruned", SECRET, ("prn_1",), session="ses_a")
MADE = CompressionRecord("cmp_1", "ses_a", 1.0, 9, 1, 1, (), b"", SECRET.decode(), "s", "", "", "compression", True)


async def fill(store: Store) -> None:
    await store.originals.keep(ORIGINAL)
    await store.decisions.add(LOCAL, [DECISION])
    await store.facts.put_if_absent(LOCAL, "owed", {b"k": SECRET})
    await store.decisions.add_compression(LOCAL, MADE)


async def texts_of(store: Store) -> list[object]:
    kept = await store.originals.get(LOCAL, "prn_1")
    decided = (await store.decisions.get(LOCAL, [b"1"]))[b"1"]
    facts = await store.facts.get(LOCAL, "owed", [b"k"])
    (compression,) = await store.decisions.compressions(LOCAL, "ses_a")
    return [kept.text, decided.shown, facts[b"k"], compression.message.encode()]


async def frames_of(store: Store) -> list[bytes]:
    database = store.decisions.database  # type: ignore[attr-defined]
    columns = (("text", "frame"), ("decision", "shown"), ("fact", "frame"), ("compression_log", "frame"))
    found = [await database.rows(f"SELECT {column} FROM {table}") for table, column in columns]
    return [frame for rows in found for (frame,) in rows]


async def test_texts_are_encrypted_and_read_back_only_with_their_key(opened: Opening, tmp_path: Path):
    async with opened(tmp_path, now=Clock(), cipher=TextCipher([OLD])) as store:
        await fill(store)
        assert await texts_of(store) == [SECRET] * 4
        frames = await frames_of(store)
        marks = (b"KPE1",)  # encrypted
        assert len(frames) == 4 and all(frame.startswith(marks) and SECRET[:20] not in frame for frame in frames)
        await store.originals.keep(ORIGINAL)
        assert (await store.usage()).originals == 1
    for cipher in (None, TextCipher([NEW])):
        async with opened(tmp_path, now=Clock(), cipher=cipher) as store:
            with pytest.raises(StoreUnavailable, match="key"):
                await store.originals.get(LOCAL, "prn_1")


async def test_a_new_key_takes_over_what_was_plain_or_under_the_old_one(opened: Opening, tmp_path: Path):
    async with opened(tmp_path, now=Clock()) as store:
        await fill(store)
        with pytest.raises(StoreUnavailable, match="KIMI_PROXY_STORE_KEY"):
            await store.reencrypt()
    async with opened(tmp_path, now=Clock(), cipher=TextCipher([OLD])) as store:
        assert await texts_of(store) == [SECRET] * 4  # plain ones are still read
        assert (await store.reencrypt(), await store.reencrypt()) == (4, 0)
    async with opened(tmp_path, now=Clock(), cipher=TextCipher([NEW, OLD])) as store:
        assert (await store.reencrypt(), await store.reencrypt()) == (4, 0)
    async with opened(tmp_path, now=Clock(), cipher=TextCipher([NEW])) as store:
        assert await texts_of(store) == [SECRET] * 4


async def test_all_texts_can_be_written_as_they_are(opened: Opening, tmp_path: Path):
    async with opened(tmp_path, now=Clock(), cipher=TextCipher([OLD])) as store:
        await fill(store)
    async with opened(tmp_path, now=Clock()) as store:
        with pytest.raises(StoreUnavailable, match="KIMI_PROXY_STORE_KEY"):
            await store.decrypt()
    async with opened(tmp_path, now=Clock(), cipher=TextCipher([OLD])) as store:
        assert (await store.decrypt(), await store.decrypt()) == (4, 0)
    async with opened(tmp_path, now=Clock()) as store:
        assert await texts_of(store) == [SECRET] * 4
        assert not any(frame.startswith(b"KPE1") for frame in await frames_of(store))


def test_a_text_that_was_changed_on_disk_is_not_given_out():
    cipher = TextCipher([OLD])
    frame = cipher.encrypt(b"text", b"hash")
    assert cipher.decrypt(frame, b"hash") == b"text"
    for changed, hashed in ((frame[:-1] + bytes([frame[-1] ^ 1]), b"hash"), (frame, b"other")):
        with pytest.raises(StoreUnavailable, match="damaged"):
            cipher.decrypt(changed, hashed)


def test_keys_come_from_the_environment_or_a_command_and_are_checked(tmp_path: Path):
    keys = [base64.b64encode(key).decode() for key in (NEW, OLD)]
    frame = TextCipher([OLD]).encrypt(b"text", b"hash")
    file = tmp_path / "keys"
    file.write_text("\n".join(keys))
    by_command = f'[store]\nkey_command = "cat {file}"\n'
    for toml, env in (("", {"KIMI_PROXY_STORE_KEY": ",".join(keys)}), (by_command, {})):
        cipher = load_cipher(parse(toml, env, tmp_path))
        assert cipher is not None and cipher.decrypt(frame, b"hash") == b"text"
        assert cipher.is_current(cipher.encrypt(b"x", b"h")) and not cipher.is_current(frame)
    assert load_cipher(parse("", {}, tmp_path)) is None
    for wrong in ("short", "", "c2hvcnQ="):
        if wrong:
            with pytest.raises(ConfigError, match="32 bytes"):
                load_cipher(parse("", {"KIMI_PROXY_STORE_KEY": wrong}, tmp_path))
    with pytest.raises(ConfigError, match="key_command"):
        load_cipher(parse('[store]\nkey_command = "false"\n', {}, tmp_path))
