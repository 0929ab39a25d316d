"""See it alive: everything on free ports, a scripted model, and an agent that works through a day."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from kimi_proxy.cli.console import remark

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Coroutine, Mapping
    from pathlib import Path

    from kimi_proxy.core.config import Config
    from kimi_proxy.lab.scripted_provider import ScriptedModel


SEED = 1147
PIECE_S = 0.03  # between two pieces of an answer
NIGHT_S = 20.0  # from one day to the next


@dataclass(frozen=True, slots=True)
class Pace:
    """How the days go by."""

    speed: float
    once: bool
    days: int  # 0 is no end
    seed: int


def demo(
    speed: Annotated[
        float, typer.Option(min=0.1, max=1000, help="How fast the day goes by: 1 is the pace of a person.")
    ] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Play one day, or those of --days, then exit.")] = False,
    days: Annotated[
        int, typer.Option(min=0, help="Play as many days, then leave the dashboard to you; 0 is no end.")
    ] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the dashboard in a browser.")] = True,
    seed: Annotated[int, typer.Option(help="Another number is another day; the same is the same.")] = SEED,
) -> None:
    """Play an agent's working day through kimi-proxy, and watch it on the dashboard. No key, no network.

    Everything runs on free ports of this machine with a folder of its own, and is gone when you press Ctrl-C.
    """
    import tempfile
    from pathlib import Path

    from kimi_proxy.api.server import run

    with tempfile.TemporaryDirectory(prefix="kimi-proxy-demo-", ignore_cleanup_errors=True) as home:
        run(_life(Path(home), Pace(speed, once, days, seed), browser))
    remark("the demo is over; nothing of it is left")


async def _life(home: Path, pace: Pace, browser: bool) -> None:
    import asyncio

    from kimi_proxy.api.apps import listen, proxy_listener, pruner_listener
    from kimi_proxy.api.server import serve, stop_on_signals
    from kimi_proxy.core.logs import write_to_stderr
    from kimi_proxy.lab.demo_day import Script
    from kimi_proxy.lab.scripted_provider import ScriptedModel
    from kimi_proxy.services.runtime import running

    model = ScriptedModel(Script(()), PIECE_S / pace.speed)
    with stop_on_signals() as stop:
        asked: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        providing = asyncio.create_task(
            serve(model.app(), "127.0.0.1", 0, stop=stop, on_ready=lambda host, port: asked.set_result(port))
        )
        config = _config(home, await asked)
        write_to_stderr(config.log)
        async with running(config) as runtime:
            days: list[asyncio.Task[None]] = []

            def ready(addresses: Mapping[str, str]) -> None:
                _welcome(addresses["proxy"], browser)
                days.append(asyncio.create_task(_days(addresses, model, stop, pace)))

            await listen(runtime, (pruner_listener(config), proxy_listener(config)), stop, remark, ready)
            await asyncio.gather(*days)
        await providing


def _config(home: Path, model_port: int) -> Config:
    from kimi_proxy.core.config import parse
    from kimi_proxy.lab.demo import settings

    pruner_port, proxy_port = _free_ports(2)
    file = home / "config.toml"
    file.write_text(settings(model_port, pruner_port, proxy_port, sys.executable), "utf-8")
    return parse(file.read_text("utf-8"), {}, home).model_copy(update={"file": file})


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now; who takes one within the next second makes the start fail, and says so."""
    from contextlib import ExitStack

    from kimi_proxy.api.server import bind

    with ExitStack() as held:
        return [held.enter_context(bind("127.0.0.1", 0)).getsockname()[1] for _ in range(count)]


async def _days(addresses: Mapping[str, str], model: ScriptedModel, stop: asyncio.Event, pace: Pace) -> None:
    import asyncio
    from contextlib import aclosing
    from itertools import count

    from kimi_proxy.lab.demo import Agent
    from kimi_proxy.lab.demo_day import Script, day
    from kimi_proxy.proxy.http import JsonClient

    proxy, pruner = JsonClient(addresses["proxy"]), JsonClient(addresses["pruner"])
    async with aclosing(proxy), aclosing(pruner):
        agent = Agent(proxy, pruner, pace.speed, remark)
        try:
            for number in count(1):
                today = day(pace.seed, number)
                model.script = Script(today.conversations.values())
                await _unless(stop, agent.work(today))
                if stop.is_set() or (pace.once and number >= pace.days):
                    return
                remark(f"day {number} is over")
                if number == pace.days:
                    await stop.wait()
                    return
                await _unless(stop, asyncio.sleep(NIGHT_S / pace.speed))
        finally:
            stop.set()


async def _unless(stop: asyncio.Event, work: Coroutine[object, object, None]) -> None:
    """Do `work`, or as much of it as there is time for before `stop`."""
    import asyncio

    working, stopped = asyncio.create_task(work), asyncio.create_task(stop.wait())
    await asyncio.wait([working, stopped], return_when=asyncio.FIRST_COMPLETED)
    for task in (working, stopped):
        task.cancel()
    await asyncio.wait([working, stopped])
    if not working.cancelled():
        working.result()


def _welcome(address: str, browser: bool) -> None:
    remark("an agent works through its day; the dashboard shows what becomes of it")
    print(f"{address}/", flush=True)
    remark("Ctrl-C ends it")
    if browser and _has_screen():
        import webbrowser

        webbrowser.open(f"{address}/")


def _has_screen() -> bool:
    """Without one, a browser would open in this very terminal."""
    import os

    return sys.platform in ("win32", "darwin") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
