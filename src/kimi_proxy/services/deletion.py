"""Deleting texts that were kept for sessions: their owner's deletion ends the promise of an id."""

from collections.abc import Collection

from kimi_proxy.core.caller import Caller
from kimi_proxy.services.store.protocols import Store


async def delete_texts(store: Store, who: Caller, sessions: Collection[str] | None) -> int:
    """Delete the decisions and facts of these sessions, or of all (None), and the originals that only they use.

    Return how many originals went. Sessions themselves go last: a deletion that was interrupted can be repeated.
    """
    noted = await store.originals.of_sessions(who, sessions)
    sole = await store.decisions.sole_originals(who, sessions, noted)
    deleted = await store.originals.delete(who, sole)
    await store.decisions.forget_sessions(who, sessions)
    await store.facts.forget_sessions(who, sessions)
    return len(deleted)
