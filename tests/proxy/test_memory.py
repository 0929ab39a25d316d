"""The memory that a process may take, as its cgroup says."""

from pathlib import Path

import pytest

from kimi_proxy.proxy.memory import memory_limit

GIB = 1024**3


@pytest.mark.parametrize(
    ("cgroup", "files", "limit"),
    [
        ("0::/\n", {"memory.max": f"{GIB}\n"}, GIB),
        ("0::/a.slice/b.service\n", {"a.slice/memory.max": f"{GIB}", "a.slice/b.service/memory.max": "max"}, GIB),
        ("0::/kubepods/pod1\n", {"memory.max": f"{GIB}"}, GIB),
        ("5:cpu,cpuacct:/x\n4:memory:/x\n", {"memory/x/memory.limit_in_bytes": f"{GIB}", "memory.max": "1"}, GIB),
    ],
)
def test_the_smallest_limit_of_the_cgroups_around_us_counts(
    cgroup: str, files: dict[str, str], limit: int, tmp_path: Path
):
    own = tmp_path / "own"
    own.write_text(cgroup)
    for name, text in files.items():
        (tmp_path / "groups" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "groups" / name).write_text(text)

    assert memory_limit(tmp_path / "groups", own) == limit


def test_without_a_limit_it_is_the_memory_of_the_machine(tmp_path: Path):
    assert memory_limit(tmp_path, tmp_path / "none") > 64 * 1024**2
