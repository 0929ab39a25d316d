"""Where originals are kept."""

from kimi_proxy.services.store.originals import Original, Store, Usage
from kimi_proxy.services.store.sqlite import open_store

__all__ = ["Original", "Store", "Usage", "open_store"]
