import os
import time
from pathlib import Path

from kimi_proxy.proxy.private_files import FORGOTTEN_S, replace


def test_what_a_killed_write_left_behind_goes_with_the_next_one(tmp_path: Path) -> None:
    left, fresh, theirs = (tmp_path / name for name in (".kimi-proxy-a1.tmp", ".kimi-proxy-b2.tmp", "other.tmp"))
    for file in (left, fresh, theirs):
        file.write_text("half")
    old = time.time() - FORGOTTEN_S - 10
    for file in (left, theirs):
        os.utime(file, (old, old))

    replace(tmp_path / "settings.toml", b"whole")

    assert {file.name for file in tmp_path.iterdir()} == {fresh.name, theirs.name, "settings.toml"}
    assert (tmp_path / "settings.toml").read_bytes() == b"whole"
