"""A block of ours in somebody's Markdown, between two comments that nobody sees."""

from kimi_proxy.core.errors import FileRefused

BEGIN = "<!-- kimi-proxy: begin -->"
END = "<!-- kimi-proxy: end -->"


def put(text: str, block: str) -> str:
    """`text` with `block`: in its place if it is there, else at the end."""
    newline = _newline(text)
    marked = newline.join((BEGIN, *block.strip("\n").split("\n"), END))
    place = _place(text)
    if place:
        return text[: place[0]] + marked + text[place[1] :]
    end = "" if not text or text.endswith("\n") else newline
    gap = newline if text.strip() and not (text + end).endswith(newline * 2) else ""
    return text + end + gap + marked + newline


def remove(text: str) -> str:
    """`text` without our block, and without the blank line that we put before it."""
    place = _place(text)
    if place is None:
        return text
    newline = _newline(text)
    before, after = text[: place[0]], text[place[1] :].removeprefix(newline)
    if before.endswith(newline * 2) and (not after or after.startswith(newline)):
        before = before.removesuffix(newline)
    return before + after


def _place(text: str) -> tuple[int, int] | None:
    begins, ends = text.count(BEGIN), text.count(END)
    if begins == ends == 0:
        return None
    if (begins, ends) != (1, 1) or text.index(END) < text.index(BEGIN):
        raise FileRefused(f"{BEGIN} and {END} must stand there once, in this order")
    return text.index(BEGIN), text.index(END) + len(END)


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"
