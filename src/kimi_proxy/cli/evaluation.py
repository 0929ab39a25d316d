"""`kimi-proxy eval` judges the choice of lines on a repository; `kimi-proxy replay` plays a recording again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kimi_proxy import __version__
from kimi_proxy.cli.console import PATH, html_option, json_option, remark, write, write_json
from kimi_proxy.cli.progress import progress_bar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kimi_proxy.core.config import Config
    from kimi_proxy.core.json import JsonObject
    from kimi_proxy.features.recording import RecordedRequest, Recording, RecordingHead
    from kimi_proxy.lab.judging import Judged
    from kimi_proxy.lab.replay import ReplayOutcome
    from kimi_proxy.lab.report import Report


MIN_CASES = 5


@click.command("eval")
@click.argument("repo", type=PATH, default=".", help="A local git repository.  [default: .]")
@click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    default=120,
    show_default=True,
    help="How many cases to mine, at most.",
)
@click.option("--seed", default=7, show_default=True, help="The same seed gives the same cases and figures.")
@click.option(
    "--cmd", "command", default="", metavar="COMMAND", help="A command that fails in REPO: its log makes cases too."
)
@click.option(
    "--sessions",
    multiple=True,
    type=PATH,
    metavar="FOLDER",
    help="Agents' past sessions to judge on instead of REPO. May be repeated.",
)
@click.option(
    "--url",
    "urls",
    multiple=True,
    metavar="URL",
    help="Another pruner to judge, by its /prune or /rpc. May be repeated.",
)
@html_option
@json_option
def evaluate(
    repo: Path,
    limit: int,
    seed: int,
    command: str,
    sessions: tuple[Path, ...],
    urls: tuple[str, ...],
    html: Path | None,
    as_json: bool,
) -> None:
    """Judge how well lines are chosen, on questions mined from a git repository.

    A commit's message and the lines it changed, documentation and the code under it, a heading and its section, and
    with --cmd a failure and its report: what share of the lines that answer stays, when only 50, 30 or 15 % of the
    tokens do? With --sessions it is judged on what agents' tools printed, and which lines of it the agents used later.
    Nothing leaves the machine, except to an address given with --url.

    Example: kimi-proxy eval . --html report.html
    """
    from kimi_proxy.lab.report import as_html, as_text
    from kimi_proxy.lab.report import as_json as to_json

    if html is not None:
        _check_place(html)
    report = _session_report(sessions, limit, seed) if sessions else _report(repo, limit, seed, command, urls)
    if html is not None:
        _write_page(html, as_html(report))
        remark(f"the report is in {html}")
    write_json(to_json(report)) if as_json else write(as_text(report))


def _check_place(html: Path) -> None:
    """Refuse a bad place before the work of minutes, rather than after it."""
    if html.is_dir() or not html.parent.is_dir():
        problem = "it is a directory" if html.is_dir() else f"there is no directory {html.parent}"
        raise click.BadParameter(f"cannot write {html}: {problem}", param_hint="--html")


def _write_page(html: Path, page: str) -> None:
    try:
        html.write_text(page, "utf-8")
    except OSError as e:
        raise click.BadParameter(f"cannot write {html}: {e.strerror}", param_hint="--html") from e


def _report(repo: Path, limit: int, seed: int, command: str, urls: Sequence[str]) -> Report:
    from kimi_proxy.lab.evaluation import Repository, contestants, evaluate, from_command, mine
    from kimi_proxy.lab.report import Report

    repository = Repository(repo)
    with progress_bar() as progress:
        cases = mine(repository, limit, seed, lambda what: progress(what, 0, 0))
        if command:
            progress(f"running {command}", 0, 0)
            cases += from_command(command, repo)
        if not cases:
            raise click.BadParameter("holds no commit, documentation or section to ask about", param_hint="REPO")
        against = contestants(urls)
        judged: list[Judged] = []
        for done in evaluate(cases, against):
            judged.append(done)
            progress("judging", len(judged), len(cases) * len(against))
    if len(cases) < MIN_CASES:
        remark(f"only {len(cases)} cases were found: these figures say little")
    return Report(repository.name, repository.head, __version__, seed, judged)


def _session_report(folders: Sequence[Path], limit: int, seed: int) -> Report:
    from kimi_proxy.lab import used_cases
    from kimi_proxy.lab.evaluation import evaluate, session_contestants
    from kimi_proxy.lab.report import Report

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


@click.command()
@click.argument(
    "paths",
    nargs=-1,
    required=True,
    type=PATH,
    metavar="PATH...",
    help="Recordings, as `[record]` writes them, or what `audit` reads.",
)
@click.option(
    "--model", default="", metavar="NAME", help="A model of the settings, whose window and prices are taken instead."
)
@json_option
def replay(paths: tuple[Path, ...], model: str, as_json: bool) -> None:
    """Play conversations again, with nothing cut, with the sanitizer, and with compression too.

    Recordings of kimi-proxy are played as they were. From what agents keep of their sessions the requests are rebuilt.
    The steps are those of the proxy, with your settings. The provider is a model of one, with its prompt
    cache. No provider is asked, and nothing leaves the machine. docs/replay.md explains how it counts.

    Example: kimi-proxy replay tests/recordings/debugging.jsonl
    """
    import asyncio

    from kimi_proxy.cli.console import load
    from kimi_proxy.core.config import LogSettings
    from kimi_proxy.core.logs import write_to_stderr
    from kimi_proxy.lab.replay import table

    write_to_stderr(LogSettings(level="error"))
    config = load().config
    total: list[ReplayOutcome] = []
    played: list[JsonObject] = []
    for name, recording in _recordings(paths):
        head = _head(recording, config, model)
        outcomes = asyncio.run(_played(recording, config, head))
        if head.max_context is None:
            remark("the recording does not name the size of the window, so nothing is compressed: name a --model")
        played.append(_to_json(name, recording, head, outcomes))
        if not as_json:
            write("\n".join([_about(name, recording, head), *table(outcomes)]) + "\n")
        total = [before.plus(now) for before, now in zip(total, outcomes, strict=True)] if total else outcomes
    if not played:
        raise click.BadParameter("no session was found: name a recording, or a folder of sessions", param_hint="PATH")
    if len(played) == 1:
        write_json(played[0]) if as_json else None
    elif as_json:
        write_json({"sessions": list(played), "policies": [outcome.to_json(total[0]) for outcome in total]})
    else:
        write("\n".join([f"all {len(played)}", *table(total)]) + "\n")


def _recordings(paths: Sequence[Path]) -> Iterator[tuple[str, Recording]]:
    """Yield the conversations in files and folders, one at a time, each with its name."""
    from kimi_proxy.features.recording import read
    from kimi_proxy.lab.audit import sourced
    from kimi_proxy.lab.session_requests import recording_of
    from kimi_proxy.lab.transcripts.places import find, load
    from kimi_proxy.lab.transcripts.recordings import AGENT

    for path in paths:
        try:
            places = find([sourced(path)]) if path.exists() else []
            if path.is_file() and (not places or _is_recording(path)):
                with path.open("rb") as lines:
                    yield path.name, read(lines)
                continue
        except OSError as e:
            raise click.BadParameter(f"cannot read {path}: {e.strerror}", param_hint="PATH") from e
        if not path.exists():
            raise click.BadParameter(f"{path} does not exist", param_hint="PATH")
        for place in places:
            if place.form == "lines" and _is_recording(Path(place.path)):
                with Path(place.path).open("rb") as lines:
                    yield Path(place.path).name, read(lines)
                continue
            for transcript in load(place):
                if transcript.agent != AGENT:
                    yield f"{transcript.agent} {transcript.id}", recording_of(transcript)


def _is_recording(file: Path) -> bool:
    with file.open("rb") as opened:
        return b'"recording"' in opened.read(200)


def _head(recording: Recording, config: Config, model: str) -> RecordingHead:
    from kimi_proxy.features.accounting import prices_of
    from kimi_proxy.features.recording import RecordingHead

    if not model:
        return recording.head
    if model not in config.models:
        raise click.BadParameter(
            f"the settings have no [models.{model!r}]; KIMI_PROXY_CONFIG names their file", param_hint="--model"
        )
    return RecordingHead(model, config.models[model].max_context_size, prices_of(config.models[model]))


async def _played(recording: Recording, config: Config, head: RecordingHead) -> list[ReplayOutcome]:
    from kimi_proxy.lab.replay import POLICIES, Replay

    replay = Replay(recording, config)
    return [await replay.under(policy, head.prices, head.max_context) for policy in POLICIES]


def _answered(recording: Recording) -> list[RecordedRequest]:
    return [taken for taken in recording.requests if taken.status == 200]


def _to_json(name: str, recording: Recording, head: RecordingHead, outcomes: list[ReplayOutcome]) -> JsonObject:
    answered = _answered(recording)
    counted = [taken.usage for taken in answered if taken.usage is not None]
    names = ("input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens")
    return {
        "file": name,
        "model": head.model,
        "max_context": head.max_context,
        "requests": len(answered),
        "recorded": {name: sum(getattr(usage, name) for usage in counted) for name in names},
        "policies": [outcome.to_json(outcomes[0]) for outcome in outcomes],
    }


def _about(name: str, recording: Recording, head: RecordingHead) -> str:
    minutes = (recording.requests[-1].at - recording.requests[0].at) / 60
    window = f", window of {head.max_context:,}" if head.max_context else ""
    return f"{name}: {len(_answered(recording))} requests in {minutes:.0f} minutes, {head.model}{window}"
