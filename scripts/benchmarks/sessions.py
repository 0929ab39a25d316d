"""What policies of cutting would have saved in agents' sessions, by source and in all. Fetches nothing.

    scripts/bench sessions FOLDER… [--without PATTERN] [--most N] [--versions] [--parts] [--leave-out]

A folder holds what agents write to disk, or is a git repository with entire.io's checkpoints or SWE-bench trajectories.
Sessions whose name matches PATTERN are left out; with N, about so many of each folder are taken. --versions adds a
table for each version of an agent, and one for current and for older versions of Claude Code. --parts compares each
part of the default, on and off; --leave-out all sources without one of them. Intervals are of 95 % (bootstrap over
whole sessions, sub-agents with their parent).
"""

import argparse
import random
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from timing import table

from kimi_proxy.lab.audit import Audit, SessionAudit, WholeSession, audit, name_source, numbers_of
from kimi_proxy.lab.savings import COMPARED, DEFAULT, PARTS
from kimi_proxy.lab.transcripts.claude_code import AGENT as CLAUDE_CODE
from kimi_proxy.lab.transcripts.places import TranscriptPlace, find

NEW = (2, 1, 64)  # the first version of Claude Code whose rows of files have a tab in place of an arrow
DRAWS = 2000
HEAD = (
    "policy",
    "net saved",
    "95 %",
    "median",
    "extra turns / 100",
    "used outputs harmed",
    "95 %",
    "recoveries",
    "sessions lose",
    "over 1 %",
    "worst",
    "compactions put off",
)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser("scripts/bench sessions")
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--without", default="")
    parser.add_argument("--most", type=int, default=0)
    parser.add_argument("--versions", action="store_true")
    parser.add_argument("--parts", action="store_true")
    parser.add_argument("--leave-out", action="store_true")
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
    for name, part in _tables(done, given.versions, given.leave_out):
        _show(name, part)


def _tables(done: Audit, by_version: bool, leaves_out: bool) -> Iterator[tuple[str, Audit]]:
    yield from done.by_source().items()
    if by_version:
        yield from done.by_version().items()
        yield "Claude Code, current (rows of files have a tab)", _only(done, _is_current)
        yield "Claude Code, older", _only(done, lambda one: one.agent == CLAUDE_CODE and not _is_current(one))
    for agent in sorted({one.agent for one in done.sessions}):
        yield f"all of {agent}", _only(done, lambda one, agent=agent: one.agent == agent)
    for left_out in done.by_source() if leaves_out else ():
        yield f"all without {left_out}", _only(done, lambda one, out=left_out: f"{one.source}: {one.agent}" != out)
    yield "all", done


def _only(done: Audit, wants: Callable[[SessionAudit], bool]) -> Audit:
    return Audit([one for one in done.sessions if wants(one)], done.policies)


def _is_current(session: SessionAudit) -> bool:
    return session.agent == CLAUDE_CODE and numbers_of(session.version) >= NEW


def _show_progress(done: int, total: int) -> None:
    print(f"\r{done / max(total, 1):.0%} ", end="", file=sys.stderr)


def _show(name: str, part: Audit) -> None:
    if not part.sessions:
        return
    whole = part.whole_sessions()
    rows = [
        (
            one.policy.name,
            f"{one.saved:.1%}",
            _interval(whole, lambda each, policy=one.policy.name: (each.saved_usd(policy), each.cost_usd)),
            f"{one.median:.1%}",
            f"{one.extra_turns_per_100:.1f}",
            f"{one.harmed:.1%}",
            _interval(
                whole, lambda each, policy=one.policy.name: (each.policies[policy].harmed, float(each.used_outputs))
            ),
            f"{one.recovery_usd / part.cost_usd:.1%}",
            f"{one.losing:.1%}",
            f"{one.losing_much:.1%}",
            f"{one.worst:.1%}",
            f"{one.put_off} of {one.compactions}",
        )
        for one in part.totals()
    ]
    spent = part.cost_by_part()
    where = ", ".join(
        f"{name} {usd / part.cost_usd:.0%}" for name, usd in spent.items() if usd / part.cost_usd >= 0.005
    )
    used, outputs = (sum(getattr(one, of) for one in part.sessions) for of in ("used_outputs", "outputs"))
    print(f"\n{name}: {where}")
    counted = f"{len(whole)} sessions and {part.sub_agents} sub-agents, {part.requests:,} requests"
    spent_usd = f"{part.cost_usd:,.0f} USD, {used:,} of {outputs:,} outputs used"
    harmed = sum(one.policies[DEFAULT.name].harmed for one in part.sessions)
    table(f"{name}, {counted}, {spent_usd}, {harmed} harmed by {DEFAULT.name}", HEAD, rows)


def _interval(whole: list[WholeSession], share: Callable[[SessionAudit], tuple[float, float]]) -> str:
    """Return the interval of a share of sums, drawn anew over whole sessions."""
    pairs = [tuple(map(sum, zip(*map(share, one.parts), strict=True))) for one in whole]
    draw = random.Random(7)
    found: list[float] = []
    for _ in range(DRAWS if len(pairs) > 1 else 0):
        drawn = draw.choices(pairs, k=len(pairs))
        below = sum(pair[1] for pair in drawn)
        found.append(sum(pair[0] for pair in drawn) / below if below else 0.0)
    if not found:
        return ""
    found.sort()
    return f"{found[int(0.025 * DRAWS)]:.1%} to {found[int(0.975 * DRAWS)]:.1%}"
