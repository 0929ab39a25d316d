"""kimi-proxy keeps the lines that matter in what coding agents read, and never loses the rest."""

TYPE_CHECKING = (
    False  # type checkers take it as true; the module typing takes longer to load than the status line needs
)
if TYPE_CHECKING:
    from kimi_proxy.compressing import ShortenedMessages, acompress, compress, original

__version__ = "0.2.0"
__all__ = ["ShortenedMessages", "__version__", "acompress", "compress", "original"]


def __getattr__(name: str) -> object:
    """Return a function for Python programs; its dependencies are imported on first use, not by every command."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found: object = getattr(import_module("kimi_proxy.compressing"), name)
    return found
