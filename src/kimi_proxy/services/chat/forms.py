"""How to ask a provider in another form than that of the client's API: a table by the types of providers."""

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from kimi_proxy.core.config.providers import Provider
from kimi_proxy.proxy.headers import UpstreamRequest
from kimi_proxy.services.chat.relay import ProviderClient, ReplyStream

TRANSLATED = "translated"  # stands among the types for every provider that speaks another API than the client


class ProviderForm(Protocol):
    """One form: a question becomes another question, and its answer one to the question that was asked."""

    is_envelope: bool  # questions are taken out of it before anything else is done with them

    def send(
        self, client: ProviderClient, name: str, question: UpstreamRequest
    ) -> AbstractAsyncContextManager[ReplyStream]:
        """Ask the provider in its form; the answer has the form of the question."""

    def plain(self, name: str, question: UpstreamRequest) -> UpstreamRequest:
        """Return a question that a client asked in this form, for the provider `name` of another form."""

    def listing(self, name: str, question: UpstreamRequest) -> UpstreamRequest | None:
        """Return the question for a provider's list of models; None if it has none that can be read."""


MakeForm = Callable[[Mapping[str, Provider]], ProviderForm]


class Forms(Protocol):
    """The forms that there are, each of which is loaded when it is first needed."""

    @property
    def kinds(self) -> Collection[str]: ...

    def form(self, kind: str) -> ProviderForm | None:
        """Return the form of providers of this type; None if they are asked as they are."""
