"""A recorded conversation under another policy: what it would have come to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kimi_proxy.cli.streams import remark, write, write_json

if TYPE_CHECKING:
    from kimi_proxy.core.config import Config
    from kimi_proxy.features.recording import Head, Recording
    from kimi_proxy.features.replay.outcome import Outcome


def replay(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A recording, as `[record]` writes it.")],
    model: Annotated[
        str, typer.Option(metavar="NAME", help="A model of the settings, whose window and prices are taken instead.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead, for programs.")] = False,
) -> None:
    """Play a recorded conversation again, with nothing cut, with the sanitizer, and with compression too.

    The steps are those of the proxy, with your settings. The provider is a model of one, with its prompt
    cache. Nobody is asked, and nothing leaves the machine. docs/replay.md tells how it counts.

    Example: kimi-proxy replay tests/recordings/debugging.jsonl
    """
    import asyncio

    from kimi_proxy.cli.settings import load
    from kimi_proxy.core.config import Log
    from kimi_proxy.core.logs import write_to_stderr

    write_to_stderr(Log(level="error"))
    config, recording = load().config, _recording(file)
    head = _head(recording, config, model)
    outcomes = asyncio.run(_played(recording, config, head))
    if head.max_context is None:
        remark("the recording does not tell the size of the window, so nothing is compressed: name a --model")
    _tell(file, recording, head, outcomes, as_json)


def _recording(file: Path) -> Recording:
    from kimi_proxy.features.recording import read

    try:
        with file.open("rb") as lines:
            return read(lines)
    except OSError as e:
        raise typer.BadParameter(f"cannot read {file}: {e.strerror}", param_hint="FILE") from e


def _head(recording: Recording, config: Config, model: str) -> Head:
    from kimi_proxy.features.pricing import prices_of
    from kimi_proxy.features.recording import Head

    if not model:
        return recording.head
    if model not in config.models:
        raise typer.BadParameter(
            f"the settings have no [models.{model!r}]; KIMI_PROXY_CONFIG names their file", param_hint="--model"
        )
    return Head(model, config.models[model].max_context_size, prices_of(config.models[model]))


async def _played(recording: Recording, config: Config, head: Head) -> list[Outcome]:
    from kimi_proxy.services.replay import POLICIES, Replay

    replay = Replay(recording, config)
    return [await replay.under(policy, head.prices, head.max_context) for policy in POLICIES]


def _tell(file: Path, recording: Recording, head: Head, outcomes: list[Outcome], as_json: bool) -> None:
    from kimi_proxy.features.replay.outcome import table, told

    answered = [taken for taken in recording.requests if taken.status == 200]
    counted = [taken.usage for taken in answered if taken.usage is not None]
    if as_json:
        known = {
            "input_tokens": sum(usage.input_tokens for usage in counted),
            "cached_tokens": sum(usage.cached_tokens for usage in counted),
            "cache_write_tokens": sum(usage.cache_write_tokens for usage in counted),
            "output_tokens": sum(usage.output_tokens for usage in counted),
        }
        about = {"file": file.name, "model": head.model, "max_context": head.max_context, "requests": len(answered)}
        write_json({**about, "recorded": known, "policies": [told(outcome, outcomes[0]) for outcome in outcomes]})
        return
    minutes = (recording.requests[-1].at - recording.requests[0].at) / 60
    window = f", window of {head.max_context:,}" if head.max_context else ""
    about_it = f"{file.name}: {len(answered)} requests in {minutes:.0f} minutes, {head.model}{window}"
    write("\n".join([about_it, *table(outcomes)]) + "\n")
