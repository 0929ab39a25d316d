"""Doors for a client that is our parent process."""

from io import FileIO

from kimi_proxy.api.app import pruner_catalog, tools_catalog
from kimi_proxy.api.conversation import converse
from kimi_proxy.api.pipes import private
from kimi_proxy.services.runtime import Runtime


async def serve_stdio(runtime: Runtime, stdin: FileIO, stdout: FileIO) -> None:
    """Answer the client on `stdout`, where nothing else is ever written, until `stdin` ends."""
    with private(stdin, stdout) as (source, target):
        await converse(pruner_catalog(runtime), source, target)


async def serve_tools_stdio(runtime: Runtime, stdin: FileIO, stdout: FileIO) -> None:
    """The same for an agent that wants read, grep and bash."""
    with private(stdin, stdout) as (source, target):
        await converse(tools_catalog(runtime), source, target)
