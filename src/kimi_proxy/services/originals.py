"""The note kept beside an original: what was asked and what was cut, so that it can be explained later.

The same question with the same outcome makes the same note: nothing in it depends on the hour or the load."""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256

from pydantic import BaseModel, ValidationError

from kimi_proxy.core import json
from kimi_proxy.core.config import PrunerSettings
from kimi_proxy.core.errors import InvalidParams, ParseError, StoreUnavailable
from kimi_proxy.core.json import JsonValue
from kimi_proxy.core.markers import new_id
from kimi_proxy.core.prune import Cut, Options, Pruned, Question, SourceType
from kimi_proxy.features.pruning import engine
from kimi_proxy.services.store import Original, Originals

SLICE_CHARS = 256 * 1024  # encoding holds the interpreter lock: other threads get a turn after each slice


def fingerprint(question: Question, text: bytes, config: PrunerSettings) -> bytes:
    """32 bytes that depend on all that may change the answer, and not on the time that it may take."""
    options = question.options
    asked = json.encode(
        [
            engine.VERSION,
            backend(config),
            question.goal,
            question.source_type,
            options.max_prune_ratio,
            options.min_keep_lines,
            options.annotate_lines,
            options.include_markers,
        ]
    )
    digest = sha256(len(asked).to_bytes(8, "big") + asked)
    digest.update(text)
    return digest.digest()


def backend(config: PrunerSettings) -> JsonValue:
    if config.backend == "heuristic":
        return "heuristic"
    return ["deepinfra", config.deepinfra_endpoint_url, config.deepinfra_max_docs]


def encoded(text: str) -> bytes:
    """`text` as it is stored: UTF-8, lone surrogates passed through."""
    slices = (text[at : at + SLICE_CHARS] for at in range(0, len(text), SLICE_CHARS))
    return b"".join(part.encode("utf-8", "surrogatepass") for part in slices)


def decoded(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogatepass")


# The note kept beside an original: what was asked and what was cut, so that it can be explained later.
#
# The same question with the same outcome makes the same note: nothing in it depends on the hour or the load.

GOAL_MAX_CHARS = 10_000


class _Note(BaseModel):
    goal: str
    source_type: SourceType
    options: Options
    cuts: list[Cut]


@dataclass(frozen=True, slots=True)
class About:
    """A question without its text, and the cuts that answered it."""

    question: Question
    cuts: Sequence[Cut]


def encode(question: Question, pruned: Pruned, backend: str) -> bytes:
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
    }
    return json.encode(note)


def decode(note: bytes, prune_id: str) -> About:
    try:
        read = _Note.model_validate(json.decode(note))
    except (ParseError, ValidationError) as e:
        raise InvalidParams("prune_id", f"{prune_id} names an original that was not pruned for a goal") from e
    return About(Question("", read.goal, read.source_type, read.options), read.cuts)


SCOPE = "local"


class Keeper:
    def __init__(self, originals: Originals, scope: str = SCOPE) -> None:
        self._originals = originals
        self._scope = scope

    async def id_for(self, key: bytes) -> str:
        """The live id of what was kept under `key`, else a new one."""
        try:
            found = await self._originals.find(self._scope, key)
        except StoreUnavailable:
            found = None
        return found or new_id("prn")

    async def keep(self, prune_id: str, key: bytes, text: bytes, note: bytes) -> None:
        """Return once `text` is on disk; StoreUnavailable if it is not."""
        await self._originals.keep(Original(prune_id, self._scope, key, text, note))

    async def shelve(self, text: bytes, what: str) -> str:
        """Keep `text` under an id of its own, and return the id."""
        key = await asyncio.to_thread(text_fingerprint, what.encode(), text)
        prune_id = await self.id_for(key)
        await self.keep(prune_id, key, text, json.encode({"what": what}))
        return prune_id


def text_fingerprint(*parts: bytes) -> bytes:
    """The same parts are the same original."""
    digest = sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.digest()
