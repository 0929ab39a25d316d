"""`kimi-proxy demo`: everything on free ports, a scripted model, and an agent that works through a day."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from kimi_proxy.cli.console import remark

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping
    from pathlib import Path

    from kimi_proxy.lab.demo import Pace


SEED = 1147
PIECE_S = 0.03  # between two chunks of a response


@click.command(context_settings={"show_default": True})
@click.option(
    "--speed",
    type=click.FloatRange(0.1, 1000),
    default=1.0,
    help="Playback speed: at 1, a day takes about a minute.",
)
@click.option("--once", is_flag=True, help="Play one day, or --days days, then exit.")
@click.option(
    "--days",
    type=click.IntRange(0),
    default=0,
    help="Play this many days, then keep the dashboard open; 0 is unlimited.",
)
@click.option("--browser/--no-browser", default=True, help="Open the dashboard in a browser.")
@click.option("--seed", default=SEED, help="The same seed plays the same day.")
def demo(speed: float, once: bool, days: int, browser: bool, seed: int) -> None:
    """Play a scripted working day of an agent, to watch on the dashboard. Needs no key and no network.

    Everything runs on free ports of this machine in a temporary folder, which is deleted when you press Ctrl-C.
    """
    import tempfile
    from pathlib import Path

    from kimi_proxy.api.server import run
    from kimi_proxy.lab.demo import Pace

    with tempfile.TemporaryDirectory(prefix="kimi-proxy-demo-", ignore_cleanup_errors=True) as home:
        run(_run(Path(home), Pace(speed, once, days, seed), browser))
    remark("the demo has ended, and its data is deleted")


async def _run(home: Path, pace: Pace, browser: bool) -> None:
    import asyncio

    from kimi_proxy.api.server import serve, stop_on_signals
    from kimi_proxy.assembly.apps import listen, proxy_listener, pruner_listener
    from kimi_proxy.assembly.runtime import running
    from kimi_proxy.core.caller import LOCAL
    from kimi_proxy.core.logs import write_to_stderr
    from kimi_proxy.features.accounting import outcome, sum_lines
    from kimi_proxy.lab.demo import configure, play_days
    from kimi_proxy.lab.demo_day import Script
    from kimi_proxy.lab.scripted_provider import ScriptedModel

    model = ScriptedModel(Script(()), PIECE_S / pace.speed)
    with stop_on_signals() as stop:
        listening: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        provider = asyncio.create_task(
            serve(model.app(), "127.0.0.1", 0, stop=stop, on_ready=lambda host, port: listening.set_result(port))
        )
        config = configure(home, await listening)
        write_to_stderr(config.log)
        async with running(config) as runtime:
            days: list[asyncio.Task[None]] = []

            async def outcomes() -> list[str]:
                await runtime.sessions.caught_up()
                lines = await runtime.store.sessions.accounts(LOCAL, 0.0)
                titles = dict.fromkeys(line.title for line in lines)
                return [f"{title}: {outcome(sum_lines(x for x in lines if x.title == title))}" for title in titles]

            def ready(addresses: Mapping[str, str]) -> None:
                _welcome(addresses["proxy"], browser)
                days.append(asyncio.create_task(play_days(addresses, model, stop, pace, remark, outcomes)))

            await listen(runtime, (pruner_listener(config), proxy_listener(config)), stop, remark, ready)
            await asyncio.gather(*days)
        await provider


def _welcome(address: str, browser: bool) -> None:
    remark("an agent is working through its day; watch it on the dashboard")
    print(f"{address}/", flush=True)
    remark("press Ctrl-C to stop")
    # Without a display, a text browser would take over this terminal.
    has_screen = sys.platform in ("win32", "darwin") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if browser and has_screen:
        import webbrowser

        webbrowser.open(f"{address}/")
