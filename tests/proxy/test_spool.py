"""A spool keeps what is written into it, in memory, on disk, or as far as a limit allows."""

import hashlib
import subprocess
import sys
from pathlib import Path

from kimi_proxy.proxy.files import TAIL_BYTES, Spool

WHOLE = b"".join(hashlib.sha256(str(n).encode()).digest() for n in range(100_000))  # 3.2 MB


def filled(spool: Spool) -> Spool:
    for at in range(0, len(WHOLE), 77_777):
        spool.write(WHOLE[at : at + 77_777])
    return spool


def test_any_part_of_what_is_kept_comes_back():
    with filled(Spool(10**7)) as spool:
        assert (spool.size, spool.kept, spool.lost) == (len(WHOLE), len(WHOLE), 0)
        assert spool.read(1_234_567, 1000) == WHOLE[1_234_567:1_235_567]
        assert spool.read(0, 10**9) == WHOLE
        assert spool.end(100_000) == WHOLE[-100_000:]
        assert spool.end(0) == b""


def test_a_little_over_the_limit_nothing_is_lost():
    with filled(Spool(3_000_000)) as spool:
        assert (spool.kept, spool.lost) == (3_000_000, 0)
        assert spool.read(2_999_990, 1000) == WHOLE[2_999_990:3_000_000]
        assert spool.end(300_000) == WHOLE[-300_000:]


def test_far_over_the_limit_the_start_and_the_end_stay_and_the_rest_is_counted():
    with filled(Spool(1_000_000)) as spool:
        assert spool.read(0, 10**9) == WHOLE[:1_000_000]
        assert spool.end(10**9) == WHOLE[-TAIL_BYTES:]
        assert spool.lost == len(WHOLE) - 1_000_000 - TAIL_BYTES


def test_a_spooled_file_has_no_name_that_others_could_open(tmp_path: Path):
    with filled(Spool(10**7, str(tmp_path))):
        assert list(tmp_path.iterdir()) == []


FULL_DISK = """
import resource
from kimi_proxy.proxy.files import Spool

resource.setrlimit(resource.RLIMIT_FSIZE, (3_000_000, 3_000_000))  # the kernel refuses more, like a full disk
with Spool(10**9) as spool:
    for letter in b"abcde":
        spool.write(bytes([letter]) * 900_000)
    whole = b"".join(bytes([letter]) * 900_000 for letter in b"abcde")
    assert spool.read(0, 10**9) == whole[:3_000_000], spool.kept
    assert (spool.full, spool.size, spool.end(100)) == (True, 4_500_000, b"e" * 100)
    assert spool.lost == 4_500_000 - 3_000_000 - 256 * 1024

resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
with Spool(10**9) as spool:
    spool.write(b"a" * 900_000)
    spool.write(b"b" * 900_000)
    assert (spool.kept, spool.full, spool.read(0, 10), spool.end(3)) == (900_000, True, b"a" * 10, b"bbb")
"""


def test_on_a_full_disk_the_start_and_the_end_stay():
    subprocess.run([sys.executable, "-c", FULL_DISK], check=True)
