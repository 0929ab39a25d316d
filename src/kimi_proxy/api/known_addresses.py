"""The addresses of clients that have shown a valid token: connections are kept for them when there are many."""

from kimi_proxy.core.cache import LruCache

KNOWN = "known_addresses"  # in the state of each request, where the server keeps them
MAX_ADDRESSES = 10_000


class KnownAddresses:
    def __init__(self) -> None:
        self._known: LruCache[str, bool] = LruCache(MAX_ADDRESSES)

    def __contains__(self, address: str) -> bool:
        return address in self._known

    def note(self, address: str, is_valid: bool) -> None:
        """Remember what the last request of an address was."""
        if is_valid:
            self._known.put(address, True)
        else:
            self._known.forget(address)
