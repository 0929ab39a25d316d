"""Originals kept outside of a prune: outputs too long to show, texts that somebody else pruned."""

from hashlib import sha256

from kimi_proxy.core import jsontext
from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.core.ids import new_id
from kimi_proxy.services.fingerprint import encoded
from kimi_proxy.services.store import Original, Store

SCOPE = "local"


class Keeper:
    def __init__(self, store: Store, scope: str = SCOPE) -> None:
        self._store = store
        self._scope = scope

    @staticmethod
    def key(*parts: str) -> bytes:
        """A fingerprint: the same parts are the same original."""
        digest = sha256()
        for part in parts:
            raw = encoded(part)
            digest.update(len(raw).to_bytes(8, "big") + raw)
        return digest.digest()

    async def id_for(self, key: bytes) -> str:
        """The live id of what was kept under `key`, else a new one."""
        try:
            found = await self._store.find(self._scope, key)
        except StoreUnavailable:
            found = None
        return found or new_id("prn")

    async def keep(self, prune_id: str, key: bytes, text: str, note: bytes) -> None:
        """Return once `text` is on disk; StoreUnavailable if it is not."""
        await self._store.keep(Original(prune_id, self._scope, key, encoded(text), note))

    async def shelve(self, text: str, what: str) -> str:
        """Keep `text` under an id of its own, and return the id."""
        key = self.key(what, text)
        prune_id = await self.id_for(key)
        await self.keep(prune_id, key, text, jsontext.encode({"what": what}))
        return prune_id
