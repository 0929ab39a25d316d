"""What `kimi-proxy eval` does: mine cases, judge everybody on them, and report."""

from collections.abc import Sequence
from pathlib import Path

import click

from evaluation import used_cases
from evaluation.judging import Judged
from evaluation.mining import Repository, contestants, evaluate, from_command, mine, session_contestants
from evaluation.report import Report, as_html, as_json, as_text
from kimi_proxy import __version__
from kimi_proxy.cli.console import remark
from kimi_proxy.cli.progress import progress_bar

__all__ = ["as_html", "as_json", "as_text", "judge_repository", "judge_sessions"]

MIN_CASES = 5


def judge_repository(repo: Path, limit: int, seed: int, command: str, urls: Sequence[str]) -> Report:
    repository = Repository(repo)
    with progress_bar() as progress:
        cases = mine(repository, limit, seed, lambda what: progress(what, 0, 0))
        if command:
            progress(f"running {command}", 0, 0)
            cases += from_command(command, repo)
        if not cases:
            raise click.BadParameter(f"{repo} holds no commit, documentation or section to ask about")
        against = contestants(urls)
        judged: list[Judged] = []
        for done in evaluate(cases, against):
            judged.append(done)
            progress("judging", len(judged), len(cases) * len(against))
    if len(cases) < MIN_CASES:
        remark(f"only {len(cases)} cases were found: these figures say little")
    return Report(repository.name, repository.head, __version__, seed, judged)


def judge_sessions(folders: Sequence[Path], limit: int, seed: int) -> Report:
    with progress_bar() as progress:
        found = used_cases.sampled(folders, limit, seed, lambda done, of: progress("reading sessions", done, of))
        cases = [output.case for session in found for output in session if output.case.gold]
        if not cases:
            raise click.BadParameter("hold no long output of which a line was used", param_hint="--sessions")
        judged: list[Judged] = []
        against = session_contestants()
        for done in evaluate(cases, against):
            judged.append(done)
            progress("judging", len(judged), len(cases) * len(against))
        ranked = used_cases.used_recall(found, used_cases.engine_likelihoods)
    if len(cases) < MIN_CASES:
        remark(f"only {len(cases)} cases were found: these figures say little")
    name = ", ".join(folder.name for folder in folders)
    return Report(name, "", __version__, seed, judged, ranked)
