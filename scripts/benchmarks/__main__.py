"""Run the benchmarks that are named on the command line, or all of them."""

import sys

import pruning
import relay
import server

BENCHMARKS = {"pruning": pruning.main, "server": server.main, "relay": relay.main}


def main() -> None:
    chosen = sys.argv[1:] or list(BENCHMARKS)
    unknown = [name for name in chosen if name not in BENCHMARKS]
    if unknown:
        raise SystemExit(f"no benchmark {', '.join(unknown)}: choose from {', '.join(BENCHMARKS)}")
    for name in chosen:
        BENCHMARKS[name]()


main()
