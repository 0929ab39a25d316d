"""`kimi-proxy eval` measures pruning on a repository; `kimi-proxy replay` simulates recorded conversations."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import click

from kimi_proxy.cli.console import PATH, html_option, json_option, remark, write, write_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kimi_proxy.core.config import Config
    from kimi_proxy.core.json import JsonObject
    from kimi_proxy.lab.replay import PlayedConversation, ReplayOutcome


@click.command("eval")
@click.argument("repo", type=PATH, default=".", help="A local git repository.  [default: .]")
@click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    default=120,
    show_default=True,
    help="Maximum number of cases to extract.",
)
@click.option("--seed", default=7, show_default=True, help="The same seed gives the same cases and figures.")
@click.option(
    "--cmd",
    "command",
    default="",
    metavar="COMMAND",
    help="A failing command in REPO: each failure in its log is a case.",
)
@click.option(
    "--sessions",
    multiple=True,
    type=PATH,
    metavar="FOLDER",
    help="Evaluate on agents' past sessions instead of REPO. Repeatable.",
)
@click.option(
    "--url",
    "urls",
    multiple=True,
    metavar="URL",
    help="Also evaluate another pruner, by its /prune or /rpc. Repeatable.",
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
    """Measure how well pruning chooses lines, with questions extracted from a git repository.

    Questions come from commit messages and the lines they changed, comments and the code under them, headings and
    their sections, and with --cmd failures and their reports. The result is the share of answering lines that stay
    when 50, 30 or 15 % of the tokens stay. With --sessions it is the share of tool result lines that agents used
    later. Nothing leaves the machine, except to an address given with --url. Runs in a clone of kimi-proxy.

    Example: kimi-proxy eval . --html report.html
    """
    command_module = _load_judging()
    if html is not None and (html.is_dir() or not html.parent.is_dir()):
        problem = "it is a directory" if html.is_dir() else f"there is no directory {html.parent}"
        raise click.BadParameter(f"cannot write {html}: {problem}", param_hint="--html")
    report = (
        command_module.judge_sessions(sessions, limit, seed)
        if sessions
        else command_module.judge_repository(repo, limit, seed, command, urls)
    )
    if html is not None:
        try:
            html.write_text(command_module.as_html(report), "utf-8")
        except OSError as e:
            raise click.BadParameter(f"cannot write {html}: {e.strerror}", param_hint="--html") from e
        remark(f"the report is in {html}")
    write_json(command_module.as_json(report)) if as_json else write(command_module.as_text(report))


def _load_judging() -> ModuleType:
    """Import the evaluation code from the clone that this package is installed from; the wheel does not include it."""
    scripts = Path(__file__).resolve().parents[3] / "scripts"
    if not (scripts / "evaluation").is_dir():
        raise click.ClickException(
            "the evaluation code is not part of the package: run `kimi-proxy eval` in a clone of kimi-proxy, "
            "after its scripts/setup"
        )
    if str(scripts) not in sys.path:
        sys.path.insert(0, str(scripts))
    return import_module("evaluation.command")


@click.command()
@click.argument(
    "paths",
    nargs=-1,
    required=True,
    type=PATH,
    metavar="PATH...",
    help="Recordings written by `[record]`, or anything that `audit` reads.",
)
@click.option(
    "--model", default="", metavar="NAME", help="Use the context window and prices of this model in [models]."
)
@json_option
def replay(paths: tuple[Path, ...], model: str, as_json: bool) -> None:
    """Simulate recorded conversations: with nothing cut, with the sanitizer, and with compression too.

    Reads recordings of kimi-proxy and anything that `audit` reads, and applies the policies of your settings to each
    request. Calls no provider, and sends nothing anywhere. docs/replay.md explains the figures.

    Example: kimi-proxy replay tests/recordings/debugging.jsonl
    """
    from kimi_proxy.cli.console import load
    from kimi_proxy.lab.replay import play, table

    config = load().config
    total: list[ReplayOutcome] = []
    listed: list[JsonObject] = []
    for conversation in _conversations(paths, config, model):
        outcomes = play(conversation, config)
        if conversation.window is None:
            remark(f"{conversation.name}: the window's size is not known, so nothing is compressed; name a --model")
        listed.append(_to_json(conversation, outcomes))
        if not as_json:
            write("\n".join([_describe(conversation), *table(outcomes)]) + "\n")
        total = [before.plus(now) for before, now in zip(total, outcomes, strict=True)] if total else outcomes
    if not listed:
        raise click.BadParameter("no sessions found: give a recording, or a folder with sessions", param_hint="PATH")
    if len(listed) == 1:
        write_json(listed[0]) if as_json else None
    elif as_json:
        write_json({"sessions": list(listed), "policies": [outcome.to_json(total[0]) for outcome in total]})
    else:
        write("\n".join([f"all {len(listed)}", *table(total)]) + "\n")


def _conversations(paths: Sequence[Path], config: Config, model: str) -> Iterator[PlayedConversation]:
    """Yield the conversations in files and folders, one at a time, with the requested model."""
    from kimi_proxy.lab.replay import conversations

    if model and model not in config.models:
        raise click.BadParameter(
            f"there is no [models.{model!r}] in the settings; KIMI_PROXY_CONFIG selects their file",
            param_hint="--model",
        )
    for path in paths:
        if not path.exists():
            raise click.BadParameter(f"{path} does not exist", param_hint="PATH")
        try:
            for conversation in conversations(path):
                if conversation.transcript.requests:
                    yield conversation.with_model(model, config.models[model]) if model else conversation
        except OSError as e:
            raise click.BadParameter(f"cannot read {path}: {e.strerror or e}", param_hint="PATH") from e


def _to_json(conversation: PlayedConversation, outcomes: list[ReplayOutcome]) -> JsonObject:
    counts = [request.usage for request in conversation.transcript.requests if request.usage is not None]
    return {
        "file": conversation.name,
        "model": conversation.model,
        "max_context": conversation.window,
        "requests": len(conversation.transcript.requests),
        "recorded": {
            "input_tokens": sum(usage.prompt for usage in counts),
            "cached_tokens": sum(usage.cache_read for usage in counts),
            "cache_write_tokens": sum(usage.cache_write_5m + usage.cache_write_1h for usage in counts),
            "output_tokens": sum(usage.output for usage in counts),
        },
        "policies": [outcome.to_json(outcomes[0]) for outcome in outcomes],
    }


def _describe(conversation: PlayedConversation) -> str:
    count = len(conversation.transcript.requests)
    window = f", window of {conversation.window:,}" if conversation.window else ""
    return f"{conversation.name}: {count} requests in {conversation.minutes:.0f} minutes, {conversation.model}{window}"
