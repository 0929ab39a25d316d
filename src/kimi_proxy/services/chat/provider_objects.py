"""Objects that a provider stores under the server's key: each member of a team can reach only their own.

A provider knows the key, not the people behind it. The owner of each object is therefore recorded when the provider
creates it, before the client gets its id. An id of someone else is replaced with a random one, so that the provider
responds as to any unknown id.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Concatenate, ParamSpec, TypeVar

from kimi_proxy.core import json
from kimi_proxy.core.cache import LruCache
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.chat.reply import MAX_BYTES, EventSplitter
from kimi_proxy.core.config import Config
from kimi_proxy.core.config.providers import is_local
from kimi_proxy.core.errors import AccessDenied, ParseError, StoreUnavailable
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.core.sse import SseParser
from kimi_proxy.features.chat.provider_objects import (
    MAX_ID_CHARS,
    AnswerIds,
    caller_ids,
    cursors_in,
    given_ids,
    is_towards_newest,
    may_name_objects,
    named_in,
    next_page,
    own_page,
    swap_ids,
    swap_query,
    unknown_id,
)
from kimi_proxy.proxy.headers import UpstreamRequest, credential, is_form, is_own_key
from kimi_proxy.services.chat.relay import ProviderClient, ReplyStream, RewrittenReply, read_up_to
from kimi_proxy.services.metrics import Metrics
from kimi_proxy.services.store.team import TeamTables

KEEP_S = 90 * 86_400.0  # longer than providers keep responses and batches
EXPIRE_S = 3600.0
MAX_KNOWN = 50_000
MAX_NOTED = 20  # ids of one request: what waits for the audit log is limited
IN_LOOP_MAX_BYTES = 1024**2  # a longer body is read in a thread
MAX_PAGES = 50  # of a provider's list that are read to fill one page with the caller's objects

USED, REFUSED = "use_provider_object", "refuse_provider_object"  # in the audit log

_STREAM = "text/event-stream"
_PLAIN = ("", "identity")

# Writes into the audit log who did what, to which id, with what detail.
NoteObject = Callable[[Caller, str, str, str], None]
# Returns something if a person was given an answer of this id before owners were written down.
WasAnswered = Callable[[Caller, str], Awaitable[object]]

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CheckedRequest:
    """A request as sent to the provider; `swapped` are the replacement ids in it.

    `given` are ids from the client: if a response repeats them, the provider has not created them.
    """

    question: UpstreamRequest
    swapped: Mapping[str, str] = field(default_factory=dict)
    given: frozenset[str] = frozenset()


class OwnedObjects:
    """Asks the providers; under a key that people share, each of them only for their own objects."""

    def __init__(
        self,
        client: ProviderClient,
        config: Config,
        tables: TeamTables,
        metrics: Metrics,
        note: NoteObject,
        was_answered: WasAnswered,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._providers = config.providers
        self._keyed = frozenset(config.provider_keys)
        self._on_demand = config.on_demand
        self._token = config.token.get_secret_value() if config.token else None
        self._tables = tables
        self._metrics = metrics
        self._note = note
        self._was_answered = was_answered
        self._now = now
        self._known: LruCache[tuple[str, tuple[str, ...], str], bool] = LruCache(MAX_KNOWN)
        self._noted: LruCache[tuple[str, str], bool] = LruCache(MAX_KNOWN)
        self._expired_at = 0.0

    def send(self, name: str, question: UpstreamRequest) -> AbstractAsyncContextManager[ReplyStream]:
        """Ask the provider of that name; its answer is open as long as the block runs."""
        is_shared = self._is_shared(name, question)
        return self._send_checked(name, question) if is_shared else self._client.send(name, question)

    def _is_shared(self, name: str, question: UpstreamRequest) -> bool:
        """Return whether others reach the same objects: by our key, or at a provider that asks for none."""
        if is_own_key(name, question.headers, self._token, self._on_demand):
            return False
        return name in self._keyed or is_local(self._providers[name]) or not credential(question.headers, self._token)

    @asynccontextmanager
    async def _send_checked(self, name: str, question: UpstreamRequest) -> AsyncIterator[ReplyStream]:
        objects = question.wire.format.objects
        is_list = objects is not None and objects.is_list(question.method, _path(question))
        checked = await self._check(name, question)
        async with self._client.send(name, checked.question) as reply:
            if is_list and reply.status == 200:
                yield await self._filter(name, checked, reply)
            else:
                watched = self._watch(name, checked, reply)
                # A provider that does not look ids up may answer all the same.
                yield RewrittenReply(watched, _restore(watched, checked.swapped)) if checked.swapped else watched

    async def _check(self, name: str, question: UpstreamRequest) -> CheckedRequest:
        """Return the request that may be sent.

        Raise ParseError if its object ids cannot be determined, StoreUnavailable if their owners cannot.
        """
        objects = question.wire.format.objects
        in_path = objects.id_in(_path(question)) if objects else ""
        # A form holds a file, which may be anything, and is passed on only where none names an object.
        read = b"" if is_form(question.headers) else question.body
        value, in_body = await _off_loop(named_in, read, _is_at_objects(question))
        ids = ({in_path} if in_path else set()) | in_body | (set() if in_path else cursors_in(question.query))
        foreign = ids - await self._own_ids(name, ids, question.caller)
        foreign -= await self._answered_before(question.caller, foreign & {in_path, *_previous(value)})
        self._note_all(name, question, in_path, foreign)
        given = given_ids(value)
        if not foreign:
            return CheckedRequest(question, given=given)
        swapped = {id: unknown_id(id, secrets.token_hex(MAX_ID_CHARS // 2)) for id in foreign}

        def swap(id: str) -> str:
            return swapped.get(id, id)

        body = question.body if in_body.isdisjoint(foreign) else json.encode(swap_ids(value, swap))
        path = objects.with_id(question.path, swap(in_path)) if objects and in_path in foreign else question.path
        sent = replace(question, path=path, query=swap_query(question.query, swap), body=body)
        return CheckedRequest(sent, {new: old for old, new in swapped.items()}, given.union(swapped.values()))

    def _note_all(self, name: str, question: UpstreamRequest, in_path: str, foreign: set[str]) -> None:
        """Note who used which object, once for a client that asks again and again, and who asked for another's."""
        did = f"{name} {question.method} {_path(question)}"
        for id in sorted(foreign)[:MAX_NOTED]:
            self._note(question.caller, REFUSED, id, did)
        key = question.caller.person, did
        if in_path and in_path not in foreign and (question.method != "GET" or key not in self._noted):
            self._note(question.caller, USED, in_path, did)
            self._noted.put(key, True)

    async def _own_ids(self, name: str, ids: set[str], caller: Caller) -> set[str]:
        """Return those of `ids` that are the caller's."""
        own = {id for id in ids if (name, caller.scopes, id) in self._known}
        asked = {id for id in ids - own if len(id) <= MAX_ID_CHARS}
        found = await self._tables.own_objects(name, asked, caller.scopes) if asked else frozenset[str]()
        for id in found:
            self._known.put((name, caller.scopes, id), True)
        return own | found

    async def _answered_before(self, caller: Caller, ids: set[str]) -> set[str]:
        return {id for id in ids if await self._was_answered(caller, id) is not None}

    def _watch(self, name: str, checked: CheckedRequest, reply: ReplyStream) -> ReplyStream:
        """Return the reply; whose the objects in it are is written down before a byte of them is passed on."""
        if not 200 <= reply.status < 300 or reply.media_type not in (_STREAM, "application/json"):
            return reply
        kept = _kept_ids(checked.question)
        if reply.encoding not in _PLAIN:
            if kept is AnswerIds.ALL:
                self._lose(ParseError(f"{name} compressed its answer"))
            return reply
        watch = self._watch_stream if reply.media_type == _STREAM else self._watch_body
        watched = RewrittenReply(reply, watch(name, checked, reply, kept))
        watched.headers = reply.headers
        return watched

    async def _watch_stream(
        self, name: str, checked: CheckedRequest, reply: ReplyStream, kept: AnswerIds
    ) -> AsyncIterator[bytes]:
        parser = SseParser()
        async for piece in reply.pieces():
            if parser.waiting_bytes < MAX_BYTES:
                for event in parser.feed(piece):
                    if may_name_objects(event.data, kept is not AnswerIds.NONE):
                        await self._add(name, checked, event.data, kept, is_event=True)
            yield piece

    async def _watch_body(
        self, name: str, checked: CheckedRequest, reply: ReplyStream, kept: AnswerIds
    ) -> AsyncIterator[bytes]:
        body, rest = await read_up_to(MAX_BYTES, reply.pieces())
        if rest is None and may_name_objects(body, kept is not AnswerIds.NONE):
            await self._add(name, checked, body, kept)
        elif rest is not None and kept is AnswerIds.ALL:
            self._lose(ParseError(f"{name} answered with more than 16 MiB"))
        yield body
        if rest is not None:
            async for piece in rest:
                yield piece

    async def _add(
        self, name: str, checked: CheckedRequest, raw: bytes, kept: AnswerIds, is_event: bool = False
    ) -> None:
        """Record who owns the objects in a response. If that fails, the response continues, and no one owns them."""
        caller = checked.question.caller
        try:
            made = caller_ids(await _off_loop(json.decode_deep, raw), kept, is_event) - checked.given
            new = {id for id in made if len(id) <= MAX_ID_CHARS and (name, caller.scopes, id) not in self._known}
            if new:
                await self._tables.add_objects(name, new, caller.scope, self._now())
                await self._own_ids(name, new, caller)  # one that is another's already stays theirs
                await self._expire()
        except (StoreUnavailable, ParseError) as e:
            self._lose(e)

    def _lose(self, error: Exception) -> None:
        log.warning("the owner of a provider's object was not stored", extra={"what": str(error)[:300]})
        self._metrics.count_fault("provider_objects", error)

    async def _expire(self) -> None:
        if self._now() - self._expired_at >= EXPIRE_S:
            self._expired_at = self._now()
            await self._tables.expire_objects(self._now() - KEEP_S)

    async def _filter(self, name: str, checked: CheckedRequest, reply: ReplyStream) -> ReplyStream:
        """Return a list of the caller's objects only; further pages are read until one is full. Raise AccessDenied
        if the list cannot be read."""
        question = checked.question
        page = await _read_page(name, reply)
        wanted, own = len(_data(page)), await self._own_part(name, question, page)
        following, pages, is_back = next_page(question.query, page), 1, is_towards_newest(question.query)
        while following is not None and len(own) < wanted and pages < MAX_PAGES:
            async with self._client.send(name, replace(question, query=following)) as more:
                if more.status != 200:
                    break
                last = await _read_page(name, more)
            found = await self._own_part(name, question, last)
            own = [*found, *own] if is_back else [*own, *found]
            following, pages = next_page(following, last), pages + 1
        listed = own[-wanted:] if is_back else own[:wanted]
        # A page without any of the caller's objects has no id to continue from.
        has_more = len(own) > wanted or (following is not None and bool(own))
        body = json.encode(own_page(page, listed, has_more))
        for new, old in checked.swapped.items():
            body = body.replace(new.encode(), _in_json(old))
        return RewrittenReply(reply, _once(body))

    async def _own_part(self, name: str, question: UpstreamRequest, page: JsonObject) -> list[JsonValue]:
        ids = {str(each["id"]) for each in _data(page) if "id" in each}
        own = await self._own_ids(name, ids, question.caller)
        return [each for each in _data(page) if each.get("id") in own]


def _path(question: UpstreamRequest) -> str:
    return question.path or question.wire.format.paths[0]


def _kept_ids(question: UpstreamRequest) -> AnswerIds:
    """Return the ids in the response that belong to objects stored by the provider."""
    objects, path = question.wire.format.objects, _path(question)
    if objects is None or not _is_at_objects(question):
        return AnswerIds.NONE
    if not objects.makes_one(question.method, path):
        return AnswerIds.ITEMS
    try:
        is_kept = json.fields(question.body, ("store",)).get("store") is not False
    except ParseError:
        is_kept = True
    return AnswerIds.ALL if is_kept else AnswerIds.NONE


def _is_at_objects(question: UpstreamRequest) -> bool:
    """Return whether a request is about objects of a provider: then each `id` in it may be one of theirs."""
    objects = question.wire.format.objects
    return objects is not None and (_path(question) + "/").startswith(f"{objects.path}/")


def _previous(value: JsonValue) -> set[str]:
    """Return the response that a request continues."""
    previous = value.get("previous_response_id") if isinstance(value, Mapping) else None
    return {previous} if isinstance(previous, str) else set()


async def _off_loop(work: Callable[Concatenate[bytes, P], T], raw: bytes, *more: P.args, **named: P.kwargs) -> T:
    """Return the result of `work` on a body; for a long body in a thread, to keep the event loop responsive."""
    if len(raw) <= IN_LOOP_MAX_BYTES:
        return work(raw, *more, **named)
    return await asyncio.to_thread(work, raw, *more, **named)


async def _read_page(name: str, reply: ReplyStream) -> JsonObject:
    body, rest = await read_up_to(MAX_BYTES, reply.pieces())
    try:
        page = json.decode_deep(body) if rest is None and reply.encoding in _PLAIN else None
    except ParseError:
        page = None
    if not isinstance(page, dict) or not isinstance(page.get("data"), list):
        raise AccessDenied(f"the list of {name} cannot be read, so it cannot be limited to your own objects")
    return page


def _data(page: JsonObject) -> list[JsonObject]:
    data = page["data"]
    return [each for each in data if isinstance(each, dict)] if isinstance(data, list) else []


async def _restore(reply: ReplyStream, swapped: Mapping[str, str]) -> AsyncIterator[bytes]:
    """Yield a response with the client's own ids in it."""
    events = EventSplitter()

    def restore_ids(raw: bytes) -> bytes:
        for new, old in swapped.items():
            raw = raw.replace(new.encode(), _in_json(old))
        return raw

    if reply.media_type != _STREAM:
        body, rest = await read_up_to(MAX_BYTES, reply.pieces())
        yield restore_ids(body)
        if rest is not None:
            async for piece in rest:
                yield piece
        return
    async for piece in reply.pieces():
        for event in events.feed(piece):
            yield restore_ids(event)
    yield restore_ids(events.rest())


async def _once(body: bytes) -> AsyncIterator[bytes]:
    yield body


def _in_json(text: str) -> bytes:
    return json.encode(text)[1:-1]
