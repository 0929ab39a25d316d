"""What policies of cutting would have saved in agents' sessions, by source and in all. Fetches nothing.

    scripts/bench sessions FOLDER… [--without PATTERN] [--most N] [--versions] [--parts]

A folder holds what agents write to disk, or is a git repository with entire.io's checkpoints or SWE-bench trajectories.
Sessions whose name matches PATTERN are left out; with N, about so many of each folder are taken; with --versions each
version of an agent has its table too. --parts compares what is done for the prompt cache, each part on and off, with a
table of its own for Claude Code from 2.1.150 on.
"""

import argparse
import random
import re
import sys
import time
from pathlib import Path

from timing import table

from kimi_proxy.lab.audit import Audit, audit, name_source
from kimi_proxy.lab.savings import COMPARED, PARTS
from kimi_proxy.lab.transcripts.claude_code import AGENT as CLAUDE_CODE
from kimi_proxy.lab.transcripts.places import TranscriptPlace, find

NEW = (2, 1, 150)  # versions of Claude Code whose rows of files have a tab in place of an arrow
HEAD = (
    "policy",
    "net saved",
    "median",
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
    parser.add_argument("--parts", action="store_true")
    given = parser.parse_args(arguments)
    places: list[TranscriptPlace] = []
    for folder in given.folders:
        found = find([name_source(folder)])
        if given.without:
            found = [one for one in found if not re.search(given.without, f"{one.path}/{one.name}")]
        random.Random(1).shuffle(found)
        places += found[: given.most or None]
    began = time.monotonic()
    done = audit(places, _show_progress, policies=PARTS if given.parts else COMPARED)
    print(f"\n{len(places)} files, {sum(one.size for one in places) / 1e6:.0f} MB, {time.monotonic() - began:.0f} s")
    for name, part in done.by_source().items():
        _show(name, part)
    for name, part in done.by_version().items() if given.versions else ():
        _show(name, part)
    if len(done.by_source()) > 1:
        _show("all", done)
    newer = [one for one in done.sessions if one.agent == CLAUDE_CODE and _version(one.version) >= NEW]
    if given.parts and newer:
        _show("Claude Code from 2.1.150 on", Audit(newer, done.policies))


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())


def _show_progress(done: int, total: int) -> None:
    print(f"\r{done / max(total, 1):.0%} ", end="", file=sys.stderr)


def _show(name: str, part: Audit) -> None:
    rows = [
        (
            one.policy.title,
            f"{one.saved:.1%}",
            f"{one.median:.1%}",
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
    whole = f"{len(part.whole_sessions())} sessions and {part.sub_agents} sub-agents"
    counted = f"{whole}, {part.requests:,} requests, {used:,} of {outputs:,} outputs used"
    table(f"{name}, {counted}", HEAD, rows)
