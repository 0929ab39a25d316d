"""`python -m tests.fuzz [TARGET …] [--seconds 60] [--seed 1]`: fuzz until the time is over, or a promise is broken."""

import argparse

from tests.fuzz.explore import explore, seeds
from tests.fuzz.targets import TARGETS


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m tests.fuzz")
    options.add_argument("targets", nargs="*", choices=[*TARGETS, []], default=[])
    options.add_argument("--seconds", type=float, default=60.0, help="for each target")
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    for name in given.targets or TARGETS:
        tried, kept, lines = explore(TARGETS[name], seeds(name), given.seconds, given.seed)
        print(f"{name}: {tried} texts tried, {kept} kept, {lines} steps of our source reached")


if __name__ == "__main__":
    main()
