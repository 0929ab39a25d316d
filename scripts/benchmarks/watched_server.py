"""`kimi-proxy start`, and beside it a thread that writes how late its event loop runs and how many tasks it has.

Each line of the file that WATCHED_FILE names has the milliseconds a callback waited, and the number of tasks then.
"""

import asyncio
import os
import runpy
import sys
import threading
import time
from pathlib import Path

import uvloop

LOOK_EVERY_S = 0.05
STUCK_S = 60.0


def main() -> None:
    make = uvloop.new_event_loop

    def watched() -> asyncio.AbstractEventLoop:
        loop = make()
        threading.Thread(target=_watch, args=(loop, Path(os.environ["WATCHED_FILE"])), daemon=True).start()
        return loop

    uvloop.new_event_loop = watched  # type: ignore[assignment]
    sys.argv = ["kimi-proxy", "start"]
    runpy.run_module("kimi_proxy", run_name="__main__")


def _watch(loop: asyncio.AbstractEventLoop, path: Path) -> None:
    """Ask the loop to run a callback, again and again, and write when it did."""
    with path.open("a", buffering=1) as file:
        while not loop.is_closed():
            time.sleep(LOOK_EVERY_S)
            done, asked = threading.Event(), time.perf_counter()

            def note(done: threading.Event = done, asked: float = asked) -> None:
                late_ms = (time.perf_counter() - asked) * 1000
                file.write(f"{late_ms:.2f} {len(asyncio.all_tasks(loop))}\n")
                done.set()

            try:
                loop.call_soon_threadsafe(note)
            except RuntimeError:  # it was closed
                return
            done.wait(STUCK_S)


if __name__ == "__main__":
    main()
