"""Every Python below the tests reads this as it starts: a worker or MCP server of ours lets a fork be it.

Their imports take over half a second of CPU, and the tests start some hundreds of them. The process that was started
stays in the fork's place: what ends one ends the other (tests/forks.py).
"""

import os
import sys

WORKERS = "kimi_proxy.services.workers"


def _arguments() -> list[str]:
    """Return what a fork is to run in this process's place, or nothing."""
    match [argument for argument in sys.orig_argv[1:] if argument != "-P"]:
        case ["-m", "kimi_proxy", "pruner" | "tools", *_] as server:
            return server[2:]
        # As the pool starts a worker: python -P -m, or in tests of the pool python -P -c.
        case ["-m" | "-c", program] as worker if WORKERS in program and "-P" in sys.orig_argv:
            return worker
    return []


def _stand_in(arguments: list[str], address: str) -> None:
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
    order = json.dumps([arguments, os.getcwd(), dict(os.environ), False]).encode()  # noqa: PTH109 - pathlib costs time
    streams = b"".join(fd.to_bytes(4, sys.byteorder) for fd in (0, 1, 2))
    line.sendmsg([len(order).to_bytes(4)], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
    line.sendall(order)
    for fd in (0, 1, 2):
        os.close(fd)  # the other end has to see when the fork closes them
    status = line.recv(16)
    code = os.waitstatus_to_exitcode(int(status)) if status else 1
    if code < 0:
        _signal.signal(-code, _signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if "TESTS_FORKS" in os.environ and (arguments := _arguments()):
    _stand_in(arguments, os.environ["TESTS_FORKS"])
