"""Texts that are changed at random, and kept where they lead to code that no other has led to."""

import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType

import kimi_proxy

Target = Callable[[bytes], None]  # raises, or fails an assertion, where a promise is broken
Trace = Callable[[FrameType, str, object], object]

SOURCE = str(Path(kimi_proxy.__file__).parent)
CORPUS = Path(__file__).with_name("corpus")
BETWEEN = b"\n%%%%\n"  # texts of a corpus file
MAX_BYTES = 4096
MAX_KEPT = 2000

_TOKENS = (
    *(b"\r", b"\n", b"\r\n", b"\n\n", b"\0", b"\xff", b"\xed\xa0\x80", b"\xe2\x80\xa8", b"\xef\xbb\xbf", b'"', b"\\"),
    *(b"{", b"}", b"[", b"]", b",", b":", b'":"', b"{}", b"[]", b"null", b"-1", b"1e400", b"\\ud800", b"//", b"/*"),
    *(b"*/", b"#", b"=", b"..", b"../", b"/", b"~", b"file:", b"%2e%2e", b" ", b"\t", b"'", b'"""', b"data: ", b"id"),
)


def seeds(name: str) -> list[bytes]:
    """Return the texts of a committed corpus."""
    return (CORPUS / f"{name}.txt").read_bytes().removesuffix(b"\n").split(BETWEEN)


def mutations(corpus: Sequence[bytes], rng: random.Random) -> Iterator[bytes]:
    """Yield texts of `corpus`, each changed in one to five places; the corpus may grow meanwhile."""
    while True:
        text = bytearray(rng.choice(corpus))
        for _ in range(rng.randint(1, 5)):
            _mutate(text, corpus, rng)
        yield bytes(text[:MAX_BYTES])


def _mutate(text: bytearray, corpus: Sequence[bytes], rng: random.Random) -> None:
    at = rng.randint(0, len(text))
    until = min(len(text), at + rng.choice((1, 2, 8, 64)))
    match rng.randrange(7):
        case 0:
            text[at:at] = rng.choice(_TOKENS)
        case 1:
            del text[at:until]
        case 2:
            text[at:until] = bytes([rng.randrange(256)])
        case 3:
            text[at:at] = text[at:until] * rng.choice((1, 2, 30))
        case 4:
            other = rng.choice(corpus)
            begin = rng.randint(0, len(other))
            text[at:at] = other[begin : begin + rng.choice((4, 16, 256))]
        case 5:
            text[at:until] = rng.choice(_TOKENS)
        case _:
            begin = rng.randint(0, len(text))
            text[at:until], text[begin : begin + until - at] = text[begin : begin + until - at], text[at:until]


def run(target: Target, corpus: Sequence[bytes], runs: int, seed: int) -> None:
    """Give the target its corpus and `runs` mutations of it; an error names the text that leads to it."""
    changed = mutations(corpus, random.Random(seed))
    for text in (*corpus, *(next(changed) for _ in range(runs))):
        _try(target, text)


def explore(target: Target, corpus: Sequence[bytes], seconds: float, seed: int) -> tuple[int, int, int]:
    """Mutate for a time, guided by coverage. Return how many texts were tried, how many kept, and the lines reached."""
    kept, rng, seen = list(corpus), random.Random(seed), set[tuple[str, int, int]]()
    for text in corpus:
        seen |= _covered(target, text)
    deadline, tried = time.monotonic() + seconds, len(corpus)
    for text in mutations(kept, rng):
        new = _covered(target, text) - seen
        tried += 1
        if new:
            seen |= new
            kept.append(text)
            if len(kept) > MAX_KEPT:
                kept.pop(rng.randrange(len(corpus), len(kept)))
        if time.monotonic() > deadline:
            break
    return tried, len(kept), len(seen)


def _covered(target: Target, text: bytes) -> set[tuple[str, int, int]]:
    """Return the steps from line to line that the target makes in our source."""
    steps: set[tuple[str, int, int]] = set()

    def trace(frame: FrameType, event: str, argument: object) -> Trace | None:
        file = frame.f_code.co_filename
        if not file.startswith(SOURCE):
            return None
        last = frame.f_lineno

        def line(frame: FrameType, event: str, argument: object) -> object:
            nonlocal last
            steps.add((file, last, frame.f_lineno))
            last = frame.f_lineno
            return line

        return line

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        _try(target, text)
    finally:
        sys.settrace(before)
    return steps


def _try(target: Target, text: bytes) -> None:
    try:
        target(text)
    except Exception as e:
        e.add_note(f"the text was {text!r}")
        raise
