"""Whether a newer version is out: asked only by this command, and only after the user allowed it in the settings."""

import re

import typer

from kimi_proxy import __version__
from kimi_proxy.cli.console import load, remark, write
from kimi_proxy.core.errors import ConfigError

EXIT_NEWER = 10
TIMEOUT_S = 20.0
MAX_BYTES = 32 * 1024**2

_VERSION = re.compile(r"\d+(?:\.\d+)*")


def upgrade_check() -> None:
    """Ask the package index whether a newer version is out.

    Off by default: nothing leaves this machine unless the settings say so with [upgrade] check = true, and then only
    when this command is run. The request names the package and nothing else. Exit code 10 if there is a newer version.

    Example: kimi-proxy upgrade-check
    """
    import asyncio

    settings = load().config.upgrade
    if not settings.check:
        raise ConfigError(f"this would ask {settings.url}: allow it with check = true in [upgrade], and run it again")
    newest = asyncio.run(_newest(settings.url))
    if _numbers(newest) <= _numbers(__version__):
        write(f"kimi-proxy {__version__} is the newest version\n")
        return
    write(f"kimi-proxy {newest} is out; this is {__version__}\n")
    remark("upgrade as you installed it, such as with: pip install --upgrade kimi-proxy")
    raise typer.Exit(EXIT_NEWER)


async def _newest(url: str) -> str:
    """Return the version that the index names. Raise UpstreamUnreachable or UpstreamUnreadable."""
    from kimi_proxy.core import json
    from kimi_proxy.core.errors import ParseError, UpstreamUnreachable, UpstreamUnreadable
    from kimi_proxy.proxy.http import FAILURES, get

    try:
        status, body = await get(url, {"accept": "application/json"}, TIMEOUT_S, MAX_BYTES)
    except FAILURES as e:
        raise UpstreamUnreachable(f"{url} does not answer: {type(e).__name__}") from e
    try:
        match json.decode(body) if status == 200 else None:
            case {"info": {"version": str(version)}} if _VERSION.match(version):
                return version[:40]
    except ParseError:
        pass
    raise UpstreamUnreadable(f"{url} was answered with {status} and no version")


def _numbers(version: str) -> tuple[int, ...]:
    found = _VERSION.match(version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()
