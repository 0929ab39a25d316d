"""What an addon is: an optional feature whose folder can be deleted.

Its `settings.py` is read at every start. The rest is loaded when the settings switch it on, or with the first request
to one of its paths. It exports one value, `ADDON`, in `addon.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AsyncExitStack
    from pathlib import Path

    from starlette.routing import BaseRoute

    from kimi_proxy.api.forms import FormOf
    from kimi_proxy.core.caller import Caller
    from kimi_proxy.core.config import Config
    from kimi_proxy.core.section import AddonSettings
    from kimi_proxy.features.chat.pipeline import Stage
    from kimi_proxy.features.metering import NewerCount
    from kimi_proxy.features.models import Models
    from kimi_proxy.services.chat.facts import ChatFacts
    from kimi_proxy.services.chat.forms import MakeForm
    from kimi_proxy.services.chat.handler import Chat
    from kimi_proxy.services.chat.messages import Messages
    from kimi_proxy.services.chat.observers import ChatObserver
    from kimi_proxy.services.chat.session_lookup import SessionNames
    from kimi_proxy.services.events import Publish
    from kimi_proxy.services.metrics import Metrics
    from kimi_proxy.services.remembered import Memory
    from kimi_proxy.services.sessions import Forget
    from kimi_proxy.services.settings import NameList, ObserveMode
    from kimi_proxy.services.store.protocols import Store
    from kimi_proxy.services.workers.pool import Workers


class Closable(Protocol):
    async def close(self) -> None: ...


Ended = TypeVar("Ended", bound=Closable)


@dataclass(frozen=True, slots=True)
class Given:
    """The parts of the server that an addon may use."""

    alive: AsyncExitStack
    config: Config
    env: Mapping[str, str]
    store: Store
    models: Models
    names: SessionNames
    facts: ChatFacts
    workers: Workers
    metrics: Metrics
    mode: ObserveMode
    publish: Publish
    memory: Memory  # the registry of what is remembered: every cache of an addon is in it
    now: Callable[[], float]
    lists: Mapping[str, NameList]  # of names that people may change, by their names in the file
    is_erased: Callable[[str], bool]  # whether the data of the person of an id was erased
    forgetters: list[Forget]  # called for each session that is deleted, and for all of a person's

    def end(self, it: Ended) -> Ended:
        """Return `it`, which is closed when the server ends."""
        self.alive.push_async_callback(it.close)
        return it


@dataclass(frozen=True, slots=True)
class Serving:
    """What the routes of an addon may ask, once everything is built."""

    chat: Chat
    messages: Messages


@dataclass(frozen=True, slots=True)
class Built:
    """What an addon adds to chat requests."""

    stage: Stage | None = None
    observers: Sequence[ChatObserver] = ()
    newer_count: NewerCount | None = None  # of a session, where the addon knows one


class PersonalFiles(Protocol):
    """Files that an addon writes about people, also while it is switched off now."""

    def of_person(self, person: str) -> Sequence[Path]:
        """Return the files about the person of this id."""

    def forget(self, who: Caller, session: str | None) -> None:
        """Delete what is known of a session, or all about a person."""


@dataclass(frozen=True, slots=True)
class Addon:
    """An optional feature; each member but the first two may be missing."""

    name: str  # of its folder
    settings: type[AddonSettings]
    build: Callable[[Given], Built] | None = None
    routes: Callable[[Given, Serving], Sequence[BaseRoute]] | None = None
    forms: Mapping[str, MakeForm] = field(default_factory=dict)  # of providers, by the types in `settings.PROVIDERS`
    client_form: FormOf | None = None  # of requests to the paths in `settings.FORMS`
    files: Callable[[Config], PersonalFiles] | None = None
