"""Refuses what a provider keeps under a key that a team shares: to the provider they are one account."""

import asyncio
from collections.abc import Callable

from kimi_proxy.core.caller import Caller
from kimi_proxy.core.chat import Wire
from kimi_proxy.core.errors import AccessDenied
from kimi_proxy.proxy.headers import UpstreamRequest, is_form
from kimi_proxy.team.provider_objects import suspect_field, suspect_id

IN_LOOP_MAX_BYTES = 256 * 1024  # a longer body is searched in a thread
MAX_NAME_CHARS = 200  # of the member that is named

# Paths at which a provider keeps nothing, as far as is known, besides those of chat requests.
_STATELESS = frozenset(path for wire in Wire for path in (*wire.format.stateless, *wire.format.count_paths))
_PREFIXES = ("/v1/models", *(path for path in _STATELESS if path.endswith(":")))

REFUSED = "refuse_provider_object"  # in the audit log

# Writes into the audit log who did what, to what, with what detail.
NoteObject = Callable[[Caller, str, str, str], None]


class SharedKeyGate:
    """Admits only requests that can name no object which a provider keeps for everyone who has its key."""

    def __init__(self, note: NoteObject) -> None:
        self._note = note

    async def check(self, provider: str, question: UpstreamRequest) -> None:
        """Raise AccessDenied for such a path or id, ParseError for a body in which an id could hide."""
        path = question.path
        is_stateless = not path or path in _STATELESS or path.startswith(_PREFIXES)
        found = await self._find(question) if is_stateless else path
        if not found:
            return
        named = found[:MAX_NAME_CHARS]
        about = f"{provider} {question.method} {path or question.wire.format.paths[0]}"
        self._note(question.caller, REFUSED, named, about)
        raise AccessDenied(
            f"{named} is refused: {provider} keeps files and stored answers in one account for everyone who shares its "
            "key; send the content itself, or use a key of your own"
        )

    async def _find(self, question: UpstreamRequest) -> str:
        """Return the name of a member that may hold an id; "" if there is none."""
        if is_form(question.headers):
            return await asyncio.to_thread(suspect_field, question.body)
        if len(question.body) <= IN_LOOP_MAX_BYTES:
            return suspect_id(question.wire, question.body)
        return await asyncio.to_thread(suspect_id, question.wire, question.body)
