"""A progress bar on standard error, if that is a terminal."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TextIO, TypeAlias

BAR_CHARS = 40
REDRAW_S = 0.1

Advance: TypeAlias = Callable[[str, int, int], None]


@dataclass(slots=True)
class ProgressBar:
    """A line that is redrawn; `total` is 0 while unknown."""

    stream: TextIO
    clock: Callable[[], float]
    width: Callable[[], int]
    what: str
    done: int = 0
    total: int = 0
    began: float = field(init=False)
    drawing: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.began = self.clock()

    def advance(self, what: str, done: int, total: int) -> None:
        """Update the step, its progress and its total; an empty `what` keeps the step's name."""
        is_new = what not in ("", self.what)
        self.what = what or self.what
        self.done = done
        self.total = total
        if is_new:
            self.draw()

    def line(self) -> str:
        """Return the line to draw: step, bar, elapsed and remaining time."""
        elapsed_s = self.clock() - self.began
        share = min(1.0, self.done / self.total) if self.total else 0.0
        if not self.total:
            return f"{self.what} {_duration(elapsed_s)}"
        filled = round(BAR_CHARS * share)
        left = f", {_duration(elapsed_s / share - elapsed_s)} left" if 0 < share < 1 else ""
        return f"{self.what} {'━' * filled}{' ' * (BAR_CHARS - filled)} {share:4.0%} {_duration(elapsed_s)}{left}"

    def draw(self) -> None:
        with self.drawing:
            self.stream.write(f"\r\x1b[2K{self.line()[: self.width() - 1]}")
            self.stream.flush()

    def erase(self) -> None:
        self.stream.write("\r\x1b[2K")
        self.stream.flush()


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


@contextmanager
def progress_bar(what: str = "") -> Iterator[Advance]:
    """Yield a function that advances the bar, which a thread redraws and erases at the end."""
    if not sys.stderr.isatty():
        yield lambda what, done, total: None
        return
    bar = ProgressBar(sys.stderr, time.monotonic, lambda: os.get_terminal_size(sys.stderr.fileno()).columns or 80, what)
    ended = threading.Event()
    drawing = threading.Thread(target=_redraw, args=(bar, ended), daemon=True)
    drawing.start()
    try:
        yield bar.advance
    finally:
        ended.set()
        drawing.join()
        bar.erase()


def _redraw(bar: ProgressBar, ended: threading.Event) -> None:
    """Redraw the bar until `ended` is set; a closed terminal must not stop the work."""
    try:
        while True:
            bar.draw()
            if ended.wait(REDRAW_S):
                return
    except (OSError, ValueError):
        return
