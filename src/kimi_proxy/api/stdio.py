"""The pruner's door for a client that is our parent process."""

from io import FileIO

from kimi_proxy.api.app import pruner_catalog
from kimi_proxy.api.conversation import converse
from kimi_proxy.services.runtime import Runtime


async def serve_stdio(runtime: Runtime, stdin: FileIO, stdout: FileIO) -> None:
    """Answer the client on `stdout` until `stdin` ends; `pipes.standard_streams` gives both."""
    await converse(pruner_catalog(runtime), stdin, stdout)
