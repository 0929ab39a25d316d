"""Every Python below the tests reads this as it starts: one that is to be a worker lets a fork be it (tests/forks.py).

A worker's imports take over half a second of CPU, and the tests start some hundreds of workers. The process that was
started stays in the fork's place: what ends one ends the other.
"""

import os
import sys

WORKERS = "kimi_proxy.services.workers"


def _stand_in(address: str) -> None:
    """Have a fork do this process's work, and end as it ends. Return if there are no forks to be had."""
    import _signal
    import _socket
    import json

    line = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        line.connect(address)
    except OSError:
        return
    for number in (_signal.SIGTERM, _signal.SIGINT):
        _signal.signal(number, lambda number, _: line.send(bytes([number])))
    order = json.dumps([sys.orig_argv[2:], os.getcwd(), dict(os.environ), False]).encode()  # noqa: PTH109 - pathlib costs time
    streams = b"".join(fd.to_bytes(4, sys.byteorder) for fd in (0, 1, 2))
    line.sendmsg([len(order).to_bytes(4)], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
    line.sendall(order)
    for fd in (0, 1, 2):
        os.close(fd)  # the other end has to see when the fork closes them
    status = line.recv(16)
    os._exit(os.waitstatus_to_exitcode(int(status)) & 0x7F if status else 1)


# As the pool starts a worker: python -P -m, or in tests of the pool python -P -c.
if "TESTS_FORKS" in os.environ and sys.orig_argv[1:2] == ["-P"] and WORKERS in sys.orig_argv[-1]:
    _stand_in(os.environ["TESTS_FORKS"])
