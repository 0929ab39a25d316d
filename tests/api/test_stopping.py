"""Stopping: programs that do not want to end are ended while the last requests still run."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from kimi_proxy.assembly.apps import PROGRAMS_END_S, Listener, listen
from kimi_proxy.assembly.runtime import Runtime, running
from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.config import parse
from kimi_proxy.proxy.process import born

# Answers as an MCP server does, ignores all that asks it to end, and notes that it was asked.
STUBBORN = """
import json, os, pathlib, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
here = pathlib.Path(sys.argv[1])
(here / "pid").write_text(str(os.getpid()))
about = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = about if message["method"] == "initialize" else {"tools": []}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
(here / "asked").touch()
time.sleep(600)
"""


async def test_a_stubborn_program_is_asked_to_end_before_the_last_request_is_cut_off(tmp_path: Path) -> None:
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    server = f'[mcp.servers.s]\ncommand = "{sys.executable}"\nargs = ["{tmp_path}/stubborn.py", "{tmp_path}"]\n'
    config = parse(f"[shutdown]\ndrain_s = {PROGRAMS_END_S}\n{server}", {}, tmp_path)
    streaming, stop = asyncio.Event(), asyncio.Event()

    async def pieces() -> AsyncIterator[bytes]:
        streaming.set()
        while not (tmp_path / "asked").exists():
            yield b"x"
            await asyncio.sleep(0.02)

    async def stream(request: Request) -> StreamingResponse:
        return StreamingResponse(pieces())

    def app(runtime: Runtime) -> Starlette:
        return Starlette(routes=[Route("/", stream)])

    ready: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()
    async with running(config) as runtime:
        await runtime.gateway.answer(LOCAL, "s", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        pid = int((tmp_path / "pid").read_text())
        listener = Listener("pruner", "127.0.0.1", 0, app, "", "")
        serving = asyncio.create_task(
            listen(runtime, [listener], stop, lambda _: None, lambda a: ready.set_result(dict(a)))
        )
        async with httpx.AsyncClient(base_url=(await ready)["pruner"], timeout=60) as client:
            reading = asyncio.create_task(client.get("/"))
            await streaming.wait()
            stop.set()
            answer = await reading
            await serving

    assert answer.status_code == 200  # it ended by itself, because the program had been asked
    assert born(pid) == ""
