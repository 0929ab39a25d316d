"""A process that outlives us by a second, so that the servers we started do not.

When we are killed, nobody runs our code any more; but the kernel closes the pipe to this shell,
which then ends every process group that we told it about."""

import logging
import subprocess
from contextlib import suppress

SHELL = "/bin/sh"
GRACE_S = 1

_SCRIPT = f"""
trap '' HUP INT TERM
groups=' '
while read -r change group; do
  case $change in
    +) groups="$groups$group " ;;
    -) case $groups in *" $group "*) groups="${{groups%% $group *}} ${{groups#* $group }}" ;; esac ;;
  esac
done
for group in $groups; do kill -s TERM -- "-$group" 2>/dev/null; done
[ "$groups" = ' ' ] || sleep {GRACE_S}
for group in $groups; do kill -s KILL -- "-$group" 2>/dev/null; done
"""

log = logging.getLogger(__name__)


class Reaper:
    """Started with the first group to watch."""

    def __init__(self) -> None:
        self._shell: subprocess.Popen[bytes] | None = None

    def watch(self, group: int) -> None:
        if self._shell is None:
            self._shell = _started()
        self._tell(f"+ {group}\n")

    def forget(self, group: int) -> None:
        self._tell(f"- {group}\n")

    def close(self) -> None:
        """Let it go; what it still watches ends with it."""
        if self._shell is not None and self._shell.stdin is not None:
            with suppress(BrokenPipeError):
                self._shell.stdin.close()
            self._shell.wait()
        self._shell = None

    def _tell(self, line: str) -> None:
        if self._shell is not None and self._shell.stdin is not None:
            try:
                self._shell.stdin.write(line.encode())
            except BrokenPipeError:
                log.warning("the reaper is gone: servers may outlive a crash")


def _started() -> subprocess.Popen[bytes] | None:
    try:
        return subprocess.Popen(  # noqa: S603 - our own script, and no argument
            [SHELL, "-c", _SCRIPT],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            cwd="/",
            env={"PATH": "/usr/bin:/bin"},
            start_new_session=True,
        )
    except OSError as e:
        log.warning("no reaper: servers may outlive a crash", extra={"problem": str(e)})
        return None
