"""What policies of cutting would have saved in agents' sessions, by source and in all. Fetches nothing.

    scripts/bench sessions FOLDER… [--without PATTERN] [--most N] [--versions]

A folder holds what agents write to disk, or is a git repository with entire.io's checkpoints or SWE-bench trajectories.
Sessions whose name matches PATTERN are left out; with N, about so many of each folder are taken; with --versions each
version of an agent has its table too.
"""

import argparse
import random
import re
import sys
import time
from pathlib import Path

from timing import table

from kimi_proxy.lab.audit import Audit, audit, name_source
from kimi_proxy.lab.savings import COMPARED
from kimi_proxy.lab.transcripts.places import TranscriptPlace, find

HEAD = (
    "policy",
    "net saved",
    "extra turns / 100",
    "used outputs harmed",
    "recoveries",
    "sessions lose",
    "over 1 %",
    "worst",
)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser("scripts/bench sessions")
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--without", default="")
    parser.add_argument("--most", type=int, default=0)
    parser.add_argument("--versions", action="store_true")
    given = parser.parse_args(arguments)
    places: list[TranscriptPlace] = []
    for folder in given.folders:
        found = find([name_source(folder)])
        if given.without:
            found = [one for one in found if not re.search(given.without, f"{one.path}/{one.name}")]
        random.Random(1).shuffle(found)
        places += found[: given.most or None]
    began = time.monotonic()
    done = audit(places, _show_progress, policies=COMPARED)
    print(f"\n{len(places)} files, {sum(one.size for one in places) / 1e6:.0f} MB, {time.monotonic() - began:.0f} s")
    for name, part in done.by_source().items():
        _show(name, part)
    for name, part in done.by_version().items() if given.versions else ():
        _show(name, part)
    if len(done.by_source()) > 1:
        _show("all", done)


def _show_progress(done: int, total: int) -> None:
    print(f"\r{done / max(total, 1):.0%} ", end="", file=sys.stderr)


def _show(name: str, part: Audit) -> None:
    rows = [
        (
            one.policy.title,
            f"{one.saved:.1%}",
            f"{one.extra_turns_per_100:.1f}",
            f"{one.harmed:.1%}",
            f"{one.recovery_usd / part.cost_usd:.1%}",
            f"{one.losing:.1%}",
            f"{one.losing_much:.1%}",
            f"{one.worst:.1%}",
        )
        for one in part.totals()
    ]
    spent = part.cost_by_part()
    where = ", ".join(
        f"{name} {usd / part.cost_usd:.0%}" for name, usd in spent.items() if usd / part.cost_usd >= 0.005
    )
    used, outputs = (sum(getattr(one, of) for one in part.sessions) for of in ("used_outputs", "outputs"))
    print(f"\n{name}: {where}")
    counted = f"{len(part.sessions)} sessions, {part.requests:,} requests, {used:,} of {outputs:,} outputs used"
    table(f"{name}, {counted}", HEAD, rows)
