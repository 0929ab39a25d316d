"""Run the benchmarks that are named on the command line, or all of them."""

import os
import sys

import busy
import commands
import dashboard
import gateway
import hooks
import image
import load
import played
import pruning
import questions
import relay
import rivals
import sanitizer
import server
import sessions
import stages
import structured
import tool_search
import tools

import team

BENCHMARKS = {
    "pruning": pruning.main,
    "server": server.main,
    "tools": tools.main,
    "relay": relay.main,
    "sanitizer": sanitizer.main,
    "stages": stages.main,
    "hooks": hooks.main,
    "commands": commands.main,
}
# These install other people's servers first, or need a browser, so they run only when they are named.
ASKED_FOR = {
    "busy": busy.main,
    "dashboard": dashboard.main,
    "gateway": gateway.main,
    "image": image.main,
    "load": load.main,
    "rivals": rivals.main,
    "team": team.main,
    "tool-search": tool_search.main,
}


def main() -> None:
    alone = {"sessions": sessions, "played": played, "questions": questions}.get(sys.argv[1] if sys.argv[1:] else "")
    if alone is not None:  # they take folders
        alone.main(sys.argv[2:])
        return
    if sys.argv[1:2] == ["structured"]:  # it takes a rival
        structured.main(sys.argv[2:])
        return
    loops, chosen = _loops(sys.argv[1:])
    chosen = chosen or list(BENCHMARKS)
    unknown = [name for name in chosen if name not in BENCHMARKS | ASKED_FOR]
    if unknown:
        raise SystemExit(f"no benchmark {', '.join(unknown)}: choose from {', '.join(BENCHMARKS | ASKED_FOR)}")
    if loops:
        print(f"\nMeasured beside {loops} busy loops on {os.cpu_count()} cores.")
    with busy.busy_loops(loops):
        for name in chosen:
            (BENCHMARKS | ASKED_FOR)[name]()


def _loops(arguments: list[str]) -> tuple[int, list[str]]:
    """Return how many busy loops to start, by `--busy N`, and the other arguments."""
    if "--busy" not in arguments:
        return 0, arguments
    at = arguments.index("--busy")
    return int(arguments[at + 1]), arguments[:at] + arguments[at + 2 :]


if __name__ == "__main__":  # processes that a benchmark starts import this file too
    main()
