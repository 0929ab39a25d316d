"""How much memory this process may take: what its cgroup allows, or what the machine has."""

import os
from collections.abc import Iterator
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUP = Path("/proc/self/cgroup")
UNKNOWN_BYTES = 4 * 1024**3  # what a machine is taken to have that does not say it


def memory_limit(cgroups: Path = CGROUPS, own: Path = OWN_CGROUP) -> int:
    """Return the smallest limit of the cgroups around this process, at most the machine's memory."""
    return min([_machine_bytes(), *_limits(cgroups, own)])


def _limits(cgroups: Path, own: Path) -> Iterator[int]:
    for line in _read(own).splitlines() or ["0::/"]:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        is_first_version = "memory" in controllers.split(",")
        if controllers and not is_first_version:
            continue
        root, name = (cgroups / "memory", "memory.limit_in_bytes") if is_first_version else (cgroups, "memory.max")
        below = Path(path.lstrip("/"))
        # In a container the path may be that on the host, and only the root is there.
        for folder in (below, *below.parents):
            limit = _read(root / folder / name).strip()
            if limit.isdigit():
                yield int(limit)


def _read(path: Path) -> str:
    try:
        return path.read_text("ascii")
    except (OSError, ValueError):
        return ""


def _machine_bytes() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # Windows has no such call
        return UNKNOWN_BYTES
