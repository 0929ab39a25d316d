"""Long originals in object storage: the row of a text then holds the name of an object in place of the text's frame.

An object is written before its row, so a crash may leave objects without one, never a row without an object. The table
`stray_object` names those that may be deleted: each one before it is written, and again when its row is deleted.
"""

import asyncio
import hmac
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from kimi_proxy.core.errors import StoreUnavailable, UpstreamError
from kimi_proxy.core.lines import encode_text
from kimi_proxy.proxy.s3 import Bucket
from kimi_proxy.services.store.encryption import TextCipher
from kimi_proxy.services.store.postgres.database import PostgresDatabase, read_bytes
from kimi_proxy.services.store.sql import REFERENCE, CompressedText, encrypt_frame

WRITING_S = 3600.0  # after which no transaction of ours refers to a new object any more
RETRY_S = 5.0  # how long nothing is written after a failure: a bucket that hangs would delay each long text
DELETE_AT_ONCE, AT_A_TIME = 200, 8

log = logging.getLogger(__name__)

_BEGIN = "INSERT INTO stray_object VALUES (?, extract(epoch FROM clock_timestamp()) + ?) RETURNING 1"
_IS_REFERENCE = "octet_length(frame) < 100 AND substring(frame FROM 1 FOR 4) = ?"
_REFERENCES = f"SELECT seq, hash, frame FROM text WHERE seq > ? AND {_IS_REFERENCE} ORDER BY seq LIMIT ?"  # noqa: S608


@dataclass(frozen=True, slots=True)
class ObjectSettings:
    bucket: Bucket
    place: str  # as people name it
    min_bytes: int


class ObjectStorage:
    """Writes the frames of long texts as objects, and reads them back."""

    def __init__(
        self, database: PostgresDatabase, settings: ObjectSettings, secret: Callable[[], Awaitable[bytes]]
    ) -> None:
        self._database = database
        self._bucket = settings.bucket
        self._min_bytes = settings.min_bytes
        self._secret = secret
        self._again = 0.0  # when the next object may be written
        self.failures = 0  # to write an object

    async def put(self, scope: str, text: CompressedText) -> CompressedText:
        """Return a text whose frame is the name of a new object; `text` itself if it is short, or if that failed.

        One that is an object already stays as it is: what is added to the database for it then keeps that name.
        """
        if len(text.frame) < self._min_bytes or time.monotonic() < self._again:
            return text
        known = f"SELECT 1 FROM text WHERE scope = ? AND hash = ? AND {_IS_REFERENCE}"  # noqa: S608 - a fixed text
        if await self._database.rows(known, (encode_text(scope), text.hash, REFERENCE)):
            return text
        name = await self._write(scope, text.frame)
        return text if name is None else replace(text, frame=REFERENCE + name.encode())

    async def get(self, text: CompressedText) -> CompressedText:
        """Return a text with its own frame. Raise StoreUnavailable if its object cannot be read."""
        (found,) = await self.get_all([text])
        if found is None:
            raise StoreUnavailable("this original is missing in object storage: read the source again")
        return found

    async def get_all(self, texts: Sequence[CompressedText]) -> Sequence[CompressedText | None]:
        """Return texts with their own frames, None for those whose objects are missing.

        Raise StoreUnavailable if the objects cannot be read.
        """
        turns = asyncio.Semaphore(AT_A_TIME)

        async def get(text: CompressedText) -> CompressedText | None:
            name = object_name(text.frame)
            if name is None:
                return text
            async with turns:
                frame = await self._bucket.get(name)
            return None if frame is None else replace(text, frame=frame)

        try:
            return await asyncio.gather(*map(get, texts))
        except UpstreamError as e:
            raise StoreUnavailable(str(e)) from e

    async def sweep(self) -> None:
        """Delete the objects that no text refers to any more. Raise StoreUnavailable if that fails."""
        due = "SELECT name FROM stray_object WHERE due <= extract(epoch FROM clock_timestamp()) ORDER BY due LIMIT ?"
        # A transaction that still adds the text of an object holds its row.
        select = f"{due} FOR UPDATE SKIP LOCKED"
        while rows := await self._database.change(select, (DELETE_AT_ONCE,)):
            names = [str(name) for (name,) in rows]
            for start in range(0, len(names), AT_A_TIME):
                try:
                    await asyncio.gather(*map(self._bucket.delete, names[start : start + AT_A_TIME]))
                except UpstreamError as e:
                    raise StoreUnavailable(str(e)) from e
            await self._database.change("DELETE FROM stray_object WHERE name = ANY(?) RETURNING 1", (names,))

    async def reencrypt(self, cipher: TextCipher) -> int:
        """Encrypt with the newest key the objects that are not; return how many those were."""
        last = total = 0
        while rows := await self._database.rows(_REFERENCES, (last, REFERENCE, DELETE_AT_ONCE)):
            for seq, hashed, reference in rows:
                last = int(str(seq))
                text = await self.get(CompressedText(read_bytes(hashed), read_bytes(reference)))
                if (frame := encrypt_frame(cipher, text.hash, text.frame)) is None:
                    continue
                folder = read_bytes(reference)[len(REFERENCE) :].decode().partition("/")[0]
                name = await self._write_in(folder, frame)
                if name is None:
                    raise StoreUnavailable("an object could not be written: run this again")
                change = """WITH changed AS (UPDATE text SET frame = ? WHERE seq = ? AND frame = ? RETURNING seq)
                  DELETE FROM stray_object USING changed WHERE name = ? RETURNING 1"""
                values = (REFERENCE + name.encode(), seq, reference, name)
                total += len(await self._database.change(change, values))
        return total

    async def close(self) -> None:
        await self._bucket.close()

    async def _write(self, scope: str, frame: bytes) -> str | None:
        # A list of the bucket does not show whose objects these are, or that two of them hold the same text.
        return await self._write_in(hmac.digest(await self._secret(), encode_text(scope), "sha256")[:8].hex(), frame)

    async def _write_in(self, folder: str, frame: bytes) -> str | None:
        """Write an object, and return its name, None if that failed."""
        name = f"{folder}/{secrets.token_hex(16)}"
        await self._database.change(_BEGIN, (name, WRITING_S))
        try:
            await self._bucket.put(name, frame)
        except UpstreamError as e:
            self.failures += 1
            self._again = time.monotonic() + RETRY_S
            log.warning("object_storage_failed", extra={"trouble": str(e)[:300]})
            return None
        return name


def object_name(frame: bytes) -> str | None:
    """Return the name of the object that a frame refers to."""
    return frame[len(REFERENCE) :].decode() if frame.startswith(REFERENCE) else None
