"""Small edits of other programs' configuration files, which leave all other bytes unchanged."""

from collections.abc import Callable

from kimi_proxy.core.errors import FileRefused


def check_rest(before: str, after: str, rest: Callable[[str], object]) -> None:
    """Raise FileRefused unless both texts are equal apart from our part; `rest` returns the other part."""
    said = repr(rest(before))  # the order of keys counts, and NaN equals itself
    try:
        same = said == repr(rest(after))
    except FileRefused as e:
        raise FileRefused(f"changing it would break it ({e}): edit it by hand") from e
    if not same:
        raise FileRefused("changing it would also alter something else in it: edit it by hand")


def newline_of(text: str) -> str:
    """Return the line break that a file uses."""
    return "\r\n" if "\r\n" in text else "\n"


def gap_before(text: str) -> str:
    """Return the newlines that must follow `text` so that an addition begins after a blank line."""
    newline = newline_of(text)
    end = "" if not text or text.endswith("\n") else newline
    return end + (newline if text.strip() and not (text + end).endswith(newline * 2) else "")
