"""Messages that another gateway hands over: its tool results are cut as in a chat request, and read back by a hash."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

from kimi_proxy.core import chat, json, tokens
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.chat import Wire
from kimi_proxy.core.errors import InvalidParams, PruneIdNotFound, StoreUnavailable
from kimi_proxy.core.json import JsonValue
from kimi_proxy.core.markers import ALPHABET
from kimi_proxy.features.chat.context import tokens_of
from kimi_proxy.features.chat.pipeline import Draft, OnFault, Stage, run_stages
from kimi_proxy.features.models import Target
from kimi_proxy.services.chat.facts import ChatFacts
from kimi_proxy.services.chat.requests import SessionOf
from kimi_proxy.services.recover import Recovery
from kimi_proxy.services.settings import ObserveMode

HASH_DIGITS = 20  # 80 bits, as an id has
PREFIXES = ("prn", "msk")
UNNAMED = "messages"  # of a caller that does not say for which model

_ID = re.compile(r"\b(?:prn|msk)_([0-9a-hjkmnp-tv-z]{16})\b", re.ASCII)
_HASH = re.compile(r"[0-9a-f]{20}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ShortenedMessages:
    """The messages in their original number and order; `hashes` identify the originals of the cut texts."""

    messages: list[JsonValue]
    tokens_before: int
    tokens_after: int
    hashes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class Messages:
    """Shortens messages for other gateways, and gives the originals back."""

    def __init__(
        self,
        stages: Sequence[Stage],
        session_of: SessionOf,
        recovery: Recovery,
        facts: ChatFacts,
        on_fault: OnFault,
        mode: ObserveMode | None = None,
    ) -> None:
        self._mode = mode or ObserveMode()
        self._session_of = session_of
        self._stages = stages
        self._recovery = recovery
        self._facts = facts
        self._on_fault = on_fault

    async def shorten(self, who: Caller, messages: JsonValue, model: str = "", session: str = "") -> ShortenedMessages:
        """Return the messages of a chat request with long tool results cut, or unchanged if kimi-proxy itself fails.

        Raise InvalidParams if they are not a list of messages. Calls that begin with the same words belong to one
        conversation, unless they name a `session`; a cut has the same bytes every time.
        """
        if not isinstance(messages, list) or not all(isinstance(one, dict) for one in messages):
            raise InvalidParams("messages", "must be a list of objects with role and content")
        body = json.encode({"model": model or UNNAMED, "messages": messages})
        request = chat.parse(body, Wire.CHAT)
        headers = {b"x-session-id": session.encode("utf-8", "replace")} if session else {}
        found_session = await self._session_of(who, request, headers, "")
        received = Draft(request, Target("", model), found_session, who, request, is_observed=self._mode.is_on)
        outgoing = await run_stages(received, self._stages, self._on_fault)
        before = await asyncio.to_thread(tokens_of, request, tokens.count)
        if outgoing.request.body == body:
            return ShortenedMessages(messages, before, before, warnings=tuple(map(str, outgoing.reasons)))
        changed = json.decode(outgoing.request.body)
        found = changed.get("messages") if isinstance(changed, dict) else None
        if not isinstance(found, list) or len(found) != len(messages):
            return ShortenedMessages(messages, before, before, warnings=("failed",))
        shown, hashes = _with_hashes(messages, found)
        try:
            await self._facts.save_handed_over(who, hashes)
        except StoreUnavailable as e:
            return ShortenedMessages(messages, before, before, warnings=(e.code,))
        after = chat.parse(json.encode({"model": model or UNNAMED, "messages": shown}), Wire.CHAT)
        return ShortenedMessages(shown, before, await asyncio.to_thread(tokens_of, after, tokens.count), hashes)

    async def original(self, who: Caller, hashed: str) -> str:
        """Return the text behind a hash from `shorten`. Raise PruneIdNotFound if it is not one, or has expired.

        Originals of chat sessions and tools are not for other gateways: those have ids, which are unknown here.
        """
        is_known = _HASH.fullmatch(hashed) and await self._facts.is_handed_over(who, hashed)
        ids = [f"{prefix}_{_digits(hashed)}" for prefix in PREFIXES] if is_known else []
        for id in ids:
            try:
                return (await self._recovery.read(who, id)).text
            except PruneIdNotFound as e:
                if e.reason == "expired":
                    raise
        raise PruneIdNotFound(hashed, "unknown")


def _with_hashes(received: Sequence[JsonValue], shown: list[JsonValue]) -> tuple[list[JsonValue], tuple[str, ...]]:
    """Return the messages, those that were cut with a line that names their hashes, and all the hashes."""
    hashes: dict[str, None] = {}
    named: list[JsonValue] = []
    for before, after in zip(received, shown, strict=True):
        new: list[str] = []
        if after != before and isinstance(after, Mapping):
            written = json.encode(after).decode()
            known = json.encode(before).decode()
            new = [digits for digits in dict.fromkeys(_ID.findall(written)) if digits not in known]
        own = [_hash(digits) for digits in new]
        hashes.update(dict.fromkeys(own))
        content = after.get("content") if isinstance(after, Mapping) else None
        if own and isinstance(after, Mapping) and isinstance(content, str):
            named.append({**after, "content": f"{content}\n[{' '.join(f'hash={one}' for one in own)}]"})
        else:
            named.append(after)
    return named, tuple(hashes)


def _hash(digits: str) -> str:
    """Return the digits of an id as a hexadecimal number: gateways know no other names of originals."""
    number = 0
    for digit in digits:
        number = number * len(ALPHABET) + ALPHABET.index(digit)
    return f"{number:0{HASH_DIGITS}x}"


def _digits(hashed: str) -> str:
    """Return the digits of the id behind a hash."""
    number = int(hashed, 16)
    return "".join(ALPHABET[(number >> shift) & 31] for shift in range(75, -1, -5))


class FiguresBody(TypedDict):
    tokens_before: int
    tokens_after: int
    tokens_saved: int
    compression_ratio: float
    transforms_applied: list[str]


def figures(done: ShortenedMessages) -> FiguresBody:
    """Return the savings under the names that gateways use."""
    saved = done.tokens_before - done.tokens_after
    return {
        "tokens_before": done.tokens_before,
        "tokens_after": done.tokens_after,
        "tokens_saved": saved,
        "compression_ratio": round(done.tokens_after / done.tokens_before, 4) if done.tokens_before else 1.0,
        "transforms_applied": ["tool_results"] if saved else [],
    }
