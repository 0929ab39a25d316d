"""`/metrics` as Prometheus reads it: a real one, where it is installed, answers every query of the dashboard."""

import asyncio
import json
import math
import shutil
import socket
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.support import outputs
from tests.support.api.app import OPTIONS, lines
from tests.support.api.gateway import call, serve, toml
from tests.support.api.proxy_world import Proxy, proxy
from tests.support.api.watching import completion
from tests.support.conversations import Assistant, Call, Result, User, body
from tests.support.deep import deep
from tests.support.evil import answering, evil, http
from tests.support.upstream import scripted

from kimi_proxy.api.server import serve as listen
from kimi_proxy.assembly.apps import pruner_app
from kimi_proxy.core.chat import Wire

BOARD = Path(__file__).parents[2] / "deploy" / "grafana.json"
LOG = outputs.pytest_log(300)
SETTINGS = "[sanitizer]\nbudget_ms = 60000\n[hooks]\nbudget_ms = 10000\n"
VARIABLES = {"$__range": "5m", "$__rate_interval": "1m"}  # as Grafana fills them in
CONFIG = """
global: {{ scrape_interval: 1s, scrape_timeout: 1s }}
scrape_configs:
  - job_name: kimi-proxy
    static_configs: [{{ targets: ["127.0.0.1:{port}"] }}]
"""


def queries() -> list[str]:
    panels = json.loads(BOARD.read_text("utf-8"))["panels"]
    found = [target["expr"] for panel in panels for target in panel["targets"]]
    for name, value in VARIABLES.items():
        found = [query.replace(name, value) for query in found]
    return found


async def work(p: Proxy, pruner: httpx.AsyncClient, turn: int) -> None:
    """A bit of everything that is counted: a chat with a cut, a hook, a prune, a recovery and an MCP call."""
    said = [User(f"{LOG.goal} ({turn})"), Assistant("", (Call("call_a1"),)), Result("call_a1", LOG.text)]
    kind = {"content-type": "application/json"}
    chat = await p.http.post("/v1/chat/completions", content=body(Wire.CHAT, said), headers=kind)
    assert chat.status_code == 200, chat.text
    ran = {"stdout": LOG.text, "stderr": "", "interrupted": False, "isImage": False}
    event = {"hook_event_name": "PostToolUse", "session_id": f"s{turn}", "tool_name": "Bash", "tool_use_id": f"t{turn}"}
    hook = await p.http.post(
        "/api/hooks/claude", json={**event, "tool_input": {"command": "pytest"}, "tool_response": ran}
    )
    assert hook.json() != {}, hook.text
    question = {"text": f"{turn}\n{LOG.text}", "goal_hint": LOG.goal, "source_type": "logs", "options": OPTIONS}
    pruned = await rpc(pruner, "prune_text", question)
    await rpc(pruner, "recover_text", lines(pruned["prune_id"], (1, 3)))
    assert (await p.rpc("s", call("echo", text="hello"))).status_code == 200


async def rpc(pruner: httpx.AsyncClient, tool: str, arguments: dict[str, object]) -> dict[str, str]:
    message = {"jsonrpc": "2.0", "id": 1, "method": tool, "params": arguments}
    answer = (await pruner.post("/rpc", json=message)).json()
    assert "result" in answer, answer
    found: dict[str, str] = answer["result"]
    return found


@asynccontextmanager
async def servers(home: Path) -> AsyncIterator[tuple[Proxy, httpx.AsyncClient]]:
    """The proxy, and a client of the pruner's port, where the metrics are."""
    stop = asyncio.Event()
    ports: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    async with (
        evil(answering(http(completion()))) as provider,
        scripted(serve) as upstream,
        proxy(home, provider.toml() + toml(upstream.port) + SETTINGS) as p,
    ):

        def on_ready(host: str, port: int) -> None:
            ports.set_result(port)

        app = pruner_app(p.runtime)
        listening = asyncio.create_task(listen(app, "127.0.0.1", 0, stop=stop, token=True, on_ready=on_ready))
        try:
            address = f"http://127.0.0.1:{await ports}"
            async with httpx.AsyncClient(base_url=address, timeout=60, trust_env=False) as pruner:
                yield p, pruner
        finally:
            stop.set()
            await listening


async def test_every_kind_of_work_is_counted_under_the_names_of_the_dashboard(tmp_path: Path):
    async with servers(tmp_path) as (p, pruner):
        await work(p, pruner, 1)
        families = list(text_string_to_metric_families((await pruner.get("/metrics")).text))

    counted = {sample.name for family in families for sample in family.samples if sample.value}
    assert {
        query for query in queries() if "faults" not in query and not any(name in query for name in counted)
    } == set()


def a_free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@asynccontextmanager
async def prometheus(folder: Path, target: str) -> AsyncIterator[httpx.AsyncClient]:
    """A real Prometheus that scrapes `target`; the test is skipped where there is none."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("prometheus is not installed (Debian: apt install prometheus)")
    config, port = folder / "prometheus.yml", a_free_port()
    config.write_text(CONFIG.format(port=target.rpartition(":")[2]))
    places = [f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}"]
    address = f"127.0.0.1:{port}"
    process = await asyncio.create_subprocess_exec(program, *places, f"--web.listen-address={address}", stderr=DEVNULL)
    try:
        async with httpx.AsyncClient(base_url=f"http://{address}", timeout=60, trust_env=False) as client:
            yield client
    finally:
        process.terminate()
        await process.wait()


async def answers(prometheus: httpx.AsyncClient, query: str) -> bool:
    """Whether a query is answered with a number now."""
    try:
        said = (await prometheus.get("/api/v1/query", params={"query": query})).json()
    except httpx.TransportError:  # it has not begun to listen
        return False
    assert said["status"] == "success", said
    return any(math.isfinite(float(row["value"][1])) for row in said["data"]["result"])


@deep("it starts a real Prometheus; the figures themselves always run")
async def test_a_real_prometheus_answers_every_query_of_the_dashboard(tmp_path: Path):
    waiting = set(queries())
    async with (
        servers(tmp_path / "home") as (p, pruner),
        prometheus(tmp_path, str(pruner.base_url).rstrip("/")) as real,
    ):
        async with asyncio.timeout(240):
            turn = 0
            while waiting:
                turn += 1
                await work(p, pruner, turn)  # rates need numbers that grow between two scrapes
                await asyncio.sleep(1)
                waiting -= {query for query in waiting if await answers(real, query)}
        targets = (await real.get("/api/v1/targets")).json()["data"]["activeTargets"]

    assert [(target["health"], target["lastError"]) for target in targets] == [("up", "")]


@deep("it starts a real Prometheus; the figures themselves always run")
async def test_promtool_finds_nothing_to_complain_of(tmp_path: Path):
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (it comes with Debian's prometheus)")
    async with servers(tmp_path) as (p, pruner):
        await work(p, pruner, 1)
        text = (await pruner.get("/metrics")).content
    command = (promtool, "check", "metrics")
    checking = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=STDOUT)
    said, _ = await checking.communicate(text)

    assert (checking.returncode, said) == (0, b"")
