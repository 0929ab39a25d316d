"""Whether a provider has a prompt cache at all."""

from collections import OrderedDict

from kimi_proxy.core.chat.usage import Usage
from kimi_proxy.features.accounting.account import Sent

MIN_CACHED_TOKENS = 2048  # what is shorter may go uncached anywhere
MISSES = 3  # requests that should have hit and did not, after which nobody believes in a cache
MAX_KNOWN = 1_000


class Caching:
    """Whether a model's provider has a cache at all, by what it told so far; believed until it was missed often."""

    def __init__(self) -> None:
        self._misses: OrderedDict[str, int] = OrderedDict()

    def __getitem__(self, model: str) -> bool:
        return self._misses.get(model, 0) < MISSES

    def observe(self, model: str, sent: Sent, usage: Usage | None) -> None:
        if usage is None:
            return
        if usage.cached_tokens:
            self._put(model, 0)
        elif sent.old_after >= MIN_CACHED_TOKENS and not sent.is_rewritten:
            self._put(model, self._misses.get(model, 0) + 1)

    def _put(self, model: str, misses: int) -> None:
        self._misses[model] = misses
        self._misses.move_to_end(model)
        if len(self._misses) > MAX_KNOWN:
            self._misses.popitem(last=False)
