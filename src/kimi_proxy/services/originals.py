"""How a text becomes an original: the fingerprint of its question, and the note from which a cut is explained.

The same question with the same outcome makes the same note: nothing in it depends on the time or the load.
"""

import asyncio
from dataclasses import asdict, replace
from hashlib import sha256

from pydantic import BaseModel, ValidationError

from kimi_proxy.core import json
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.config import PrunerSettings
from kimi_proxy.core.errors import InvalidParams, ParseError, StoreUnavailable
from kimi_proxy.core.markers import new_id
from kimi_proxy.core.prune import CallContext, Cut, Options, Pruned, Question, SourceType
from kimi_proxy.features.pruning import engine
from kimi_proxy.services.store.protocols import Original, Originals

GOAL_MAX_CHARS = 10_000


def fingerprint(question: Question, text: bytes, config: PrunerSettings) -> bytes:
    """Return 32 bytes that depend on all that may change the answer, and not on the time that it may take."""
    options, is_local = question.options, config.backend == "heuristic"
    backend = "heuristic" if is_local else ["deepinfra", config.deepinfra_endpoint_url, config.deepinfra_max_docs]
    identity = json.encode(
        [
            engine.VERSION,
            backend,
            question.goal,
            question.source_type,
            options.max_prune_ratio,
            options.min_keep_lines,
            options.annotate_lines,
            options.include_markers,
        ]
    )
    digest = sha256(len(identity).to_bytes(8, "big") + identity)
    digest.update(text)
    return digest.digest()


def text_fingerprint(*parts: bytes) -> bytes:
    """Return the same 32 bytes for the same parts, and for no others."""
    digest = sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.digest()


class PruneNote(BaseModel):
    """What the note beside a pruned original holds that explains it; its figures are read by services/cuts."""

    goal: str
    source_type: SourceType
    options: Options
    cuts: list[Cut]
    context: CallContext | None = None

    @property
    def question(self) -> Question:
        """The question, without its text."""
        return Question("", self.goal, self.source_type, self.options, self.context)


def encode_note(question: Question, pruned: Pruned, backend: str, session: str = "") -> bytes:
    note: dict[str, object] = {
        "goal": question.goal[:GOAL_MAX_CHARS],
        "source_type": question.source_type,
        "options": asdict(replace(question.options, timeout_ms=0)),
        "cuts": [asdict(a.cut) for a in pruned.annotations],
        "stats": {
            "backend": backend,
            "original_lines": pruned.original_lines,
            "pruned_lines": pruned.pruned_lines,
            "tokens_est_before": pruned.tokens_before,
            "tokens_est_after": pruned.tokens_after,
        },
        "warnings": list(pruned.warnings),
        **({"context": asdict(question.context)} if question.context else {}),
        **({"session": session} if session else {}),
    }
    return json.encode(note)


def decode_note(note: bytes, prune_id: str) -> PruneNote:
    """Return what explains the original `prune_id`; raise InvalidParams if it was not pruned for a goal."""
    try:
        return PruneNote.model_validate(json.decode(note))
    except (ParseError, ValidationError) as e:
        raise InvalidParams("prune_id", f"{prune_id} names an original that was not pruned for a goal") from e


class Keeper:
    """Keeps texts, each under the id that its key was given before, or a new one."""

    def __init__(self, originals: Originals) -> None:
        self._originals = originals

    async def id_for(self, who: Caller, key: bytes) -> str:
        """Return the live id of what was kept under `key`, else a new one."""
        try:
            found = await self._originals.find(who, key)
        except StoreUnavailable:
            found = None
        return found or new_id("prn")

    async def keep(self, who: Caller, prune_id: str, key: bytes, text: bytes, note: bytes) -> None:
        """Return once `text` is on disk; raise StoreUnavailable if it is not."""
        await self._originals.keep(Original(prune_id, who.scope, key, text, note))

    async def keep_text(self, who: Caller, text: bytes, what: str) -> str:
        """Keep `text` under an id of its own, and return the id."""
        key = await asyncio.to_thread(text_fingerprint, what.encode(), text)
        prune_id = await self.id_for(who, key)
        await self.keep(who, prune_id, key, text, json.encode({"what": what}))
        return prune_id
