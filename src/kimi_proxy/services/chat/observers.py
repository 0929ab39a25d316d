"""What may watch every chat request without delaying it."""

from kimi_proxy.core.caller import Caller
from kimi_proxy.features.chat.pipeline import Draft
from kimi_proxy.proxy.headers import Header
from kimi_proxy.services.chat.relay import Exchange

MAX_MODEL_CHARS = 200  # of a model's name in the counts


class ChatObserver:
    """Observes every chat request. Its methods return at once; by default they do nothing.

    The request is known by the id of its draft. If a method fails, the request goes on without it.
    """

    wants_timings = False  # of the parts of each request, in `draft.timings`

    def on_start(self, received: Draft, outgoing: Draft) -> None:
        """Called when a request is about to be sent."""

    def headers_for(self, outgoing: Draft) -> tuple[Header, ...]:
        """Return headers to send to the provider; they replace headers of the same names."""
        return ()

    def on_end(self, exchange: Exchange) -> None:
        """Called at the end of the request of `exchange.draft`, which was `outgoing` in `on_start`."""

    def on_relayed(self, exchange: Exchange) -> None:
        """Called at the end of another kind of request, such as embeddings; it belongs to no session."""

    def forget(self, who: Caller, session: str | None) -> None:
        """Forget the words of a session that was deleted, or of all of a person's."""
