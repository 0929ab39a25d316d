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
PIECE_S = 0.03  # between two pieces of an answer


@click.command(context_settings={"show_default": True})
@click.option(
    "--speed",
    type=click.FloatRange(0.1, 1000),
    default=1.0,
    help="How fast the day goes by: 1 is the pace of a person.",
)
@click.option("--once", is_flag=True, help="Play one day, or those of --days, then exit.")
@click.option(
    "--days",
    type=click.IntRange(0),
    default=0,
    help="Play as many days, then leave the dashboard to you; 0 is no end.",
)
@click.option("--browser/--no-browser", default=True, help="Open the dashboard in a browser.")
@click.option("--seed", default=SEED, help="Another number is another day; the same is the same.")
def demo(speed: float, once: bool, days: int, browser: bool, seed: int) -> None:
    """Play an agent's working day through kimi-proxy, and watch it on the dashboard. No key, no network.

    Everything runs on free ports of this machine with a folder of its own, and is gone when you press Ctrl-C.
    """
    import tempfile
    from pathlib import Path

    from kimi_proxy.api.server import run
    from kimi_proxy.lab.demo import Pace

    with tempfile.TemporaryDirectory(prefix="kimi-proxy-demo-", ignore_cleanup_errors=True) as home:
        run(_run(Path(home), Pace(speed, once, days, seed), browser))
    remark("the demo is over; nothing of it is left")


async def _run(home: Path, pace: Pace, browser: bool) -> None:
    import asyncio

    from kimi_proxy.api.apps import listen, proxy_listener, pruner_listener
    from kimi_proxy.api.server import serve, stop_on_signals
    from kimi_proxy.core.caller import LOCAL
    from kimi_proxy.core.logs import write_to_stderr
    from kimi_proxy.features.accounting import outcome, sum_lines
    from kimi_proxy.lab.demo import configure, play_days
    from kimi_proxy.lab.demo_day import Script
    from kimi_proxy.lab.scripted_provider import ScriptedModel
    from kimi_proxy.services.runtime import running

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
    remark("an agent works through its day; the dashboard shows what becomes of it")
    print(f"{address}/", flush=True)
    remark("Ctrl-C ends it")
    # Without a screen, a browser would open in this very terminal.
    has_screen = sys.platform in ("win32", "darwin") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if browser and has_screen:
        import webbrowser

        webbrowser.open(f"{address}/")
