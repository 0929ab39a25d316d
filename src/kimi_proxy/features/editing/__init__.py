"""Small changes to configuration files of other programs: what we don't change stays as it is, byte for byte."""


def newline_of(text: str) -> str:
    """Return the line break that a file uses."""
    return "\r\n" if "\r\n" in text else "\n"


def gap_before(text: str) -> str:
    """Return what has to follow `text` so that something new begins after a blank line."""
    newline = newline_of(text)
    end = "" if not text or text.endswith("\n") else newline
    return end + (newline if text.strip() and not (text + end).endswith(newline * 2) else "")
