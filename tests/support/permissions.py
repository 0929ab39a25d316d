"""Root may read and write every file: `bound_by_modes` does something without that right."""

import ctypes
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest

VERSION, CAPBSET_DROP = 0x20080522, 24
DAC_OVERRIDE, DAC_READ_SEARCH = 1, 2

T = TypeVar("T")


def bound_by_modes(work: Callable[[], T]) -> T:
    """Return what `work` returns in a thread that is refused what a file's mode forbids, as are its children."""
    if os.geteuid() != 0:
        return work()
    if sys.platform != "linux":
        pytest.skip("root may read and write everything here")
    with ThreadPoolExecutor(1, initializer=_give_up) as thread:
        return thread.submit(work).result()


def _give_up() -> None:
    libc, header = ctypes.CDLL(None), (ctypes.c_uint32 * 2)(VERSION, 0)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; the low halves first
    assert libc.capget(header, sets) == 0
    for right in (DAC_OVERRIDE, DAC_READ_SEARCH):
        assert libc.prctl(CAPBSET_DROP, right, 0, 0, 0) == 0
        for at in range(3):
            sets[at] &= ~(1 << right)
    assert libc.capset(header, sets) == 0
