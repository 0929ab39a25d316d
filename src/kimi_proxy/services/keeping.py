"""Originals kept outside of a prune: outputs too long to show, texts that somebody else pruned."""

import asyncio
from hashlib import sha256

from kimi_proxy.core import jsontext
from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.core.ids import new_id
from kimi_proxy.services.store import Original, Store

SCOPE = "local"


class Keeper:
    def __init__(self, store: Store, scope: str = SCOPE) -> None:
        self._store = store
        self._scope = scope

    async def id_for(self, key: bytes) -> str:
        """The live id of what was kept under `key`, else a new one."""
        try:
            found = await self._store.find(self._scope, key)
        except StoreUnavailable:
            found = None
        return found or new_id("prn")

    async def keep(self, prune_id: str, key: bytes, text: bytes, note: bytes) -> None:
        """Return once `text` is on disk; StoreUnavailable if it is not."""
        await self._store.keep(Original(prune_id, self._scope, key, text, note))

    async def shelve(self, text: bytes, what: str) -> str:
        """Keep `text` under an id of its own, and return the id."""
        key = await asyncio.to_thread(fingerprint, what.encode(), text)
        prune_id = await self.id_for(key)
        await self.keep(prune_id, key, text, jsontext.encode({"what": what}))
        return prune_id


def fingerprint(*parts: bytes) -> bytes:
    """The same parts are the same original."""
    digest = sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.digest()
