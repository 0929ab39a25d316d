"""A server in the place of ours, which does one thing wrong. Its first argument says what.

It tells on standard output where it listens, as ours does, and is slow in nothing but what it is told.
"""

import itertools
import json
import os
import pathlib
import signal
import socket
import sys
import time

OURS = {"server": "mcp-pruner", "version": "0", "status": "healthy"}
STRANGER = {"server": "somebody-else", "version": "0", "status": "healthy"}


def listening() -> socket.socket:
    listener = socket.create_server(("127.0.0.1", 0))
    announce(listener.getsockname()[1])
    return listener


def announce(port: int) -> None:
    print(json.dumps({"server": "mcp-pruner", "url": f"http://127.0.0.1:{port}"}), flush=True)


def answer(listener: socket.socket, *healths: dict[str, str]) -> None:
    """Answer every caller, with each of `healths` in turn."""
    for count in itertools.count(1):
        body = json.dumps(healths[count % len(healths)]).encode()
        try:
            caller, _ = listener.accept()
        except OSError:
            return
        if len(healths) > 1:
            pathlib.Path("probes").write_text(str(count))
        with caller:
            caller.recv(65_536)
            caller.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))


def main(how: str) -> None:
    match how:
        case "never tells":
            time.sleep(600)
        case "exits at once":
            print("no luck today", file=sys.stderr)
            sys.exit(3)
        case "never answers":
            listener = listening()
            time.sleep(600)
            listener.close()
        case "is a stranger":
            answer(listening(), STRANGER)
        case "is a stranger every other time":
            answer(listening(), STRANGER, OURS)
        case "names a stranger's port":
            announce(int(sys.argv[2]))
            time.sleep(600)
        case "stops listening":
            listener = listening()
            signal.signal(signal.SIGUSR1, lambda *_: listener.close())
            answer(listener, OURS)
            time.sleep(600)
        case "ignores SIGTERM":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            answer(listening(), OURS)
        case "leaves a child":
            if os.fork() == 0:
                time.sleep(600)
            answer(listening(), OURS)
        case _:
            answer(listening(), OURS)


if __name__ == "__main__":
    main(sys.argv[1])
