"""A command in a process of its own, on the store of servers that run in this one."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

from tests.support.api.team import TEAM

PATIENCE_S = 60


async def command(home: Path, url: str, *arguments: str, settings: str = "") -> bytes:
    """Run `kimi-proxy` as an admin on the machine does, beside the running servers; return what it prints."""
    environment = {
        **os.environ,
        "KIMI_PROXY_HOME": str(home),
        "KIMI_PROXY_CONFIG": str(_write_config(home, TEAM + settings)),
        "KIMI_PROXY_DATABASE_URL": url,
    }
    environment.pop("KIMI_PROXY_TOKEN", None)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "kimi_proxy", *arguments), env=environment, stdout=PIPE, stderr=PIPE
    )
    output, remarks = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    assert process.returncode == 0, remarks
    return output


def _write_config(home: Path, toml: str) -> Path:
    home.mkdir(parents=True, exist_ok=True)
    config = home / "team.toml"
    config.write_text(toml)
    return config
