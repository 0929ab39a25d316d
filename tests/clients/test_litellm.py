"""LiteLLM's proxy itself, from PyPI, with us as its compressor: tokens are cut, and the model reads them back.

It weighs 300 MB, so it is installed and run with ./test.sh --deep only.
"""

import asyncio
import json
import os
import re
import secrets
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from tests.support.api.proxy_world import proxy
from tests.support.clients.servers import installed

PACKAGE = "litellm[proxy]==1.108.4"
INSTALL_S = 600
PATIENCE_S = 300.0
MASTER_KEY = f"sk-{secrets.token_hex(24)}"
LOG = "\n".join(f"2026-01-01 12:00:{n % 60:02} INFO item {n} of batch {n % 17} was stored" for n in range(400))
CALL = {"id": "call_1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "cat app.log"}'}}
TOOL = {"type": "function", "function": {"name": "bash", "parameters": {"type": "object", "properties": {}}}}
REQUEST = {
    "model": "gpt-x",
    "tools": [TOOL],
    "messages": [
        {"role": "user", "content": "read app.log"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": LOG},
        {"role": "assistant", "content": "I have read it."},
        {"role": "user", "content": "what happened to batch 3?"},
    ],
}

pytestmark = [
    pytest.mark.timeout(INSTALL_S + 600),
    pytest.mark.skipif(not os.environ.get("KIMI_PROXY_DEEP"), reason="./test.sh --deep runs LiteLLM itself"),
]


def program() -> list[str]:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    place = installed(f"litellm-1.108.4-{version}", _install)
    run = "import sys; from litellm import run_server; sys.exit(run_server())"
    return [str(place / "bin" / "python"), "-c", run]


def _install(place: Path) -> None:
    python = str(place / "bin" / "python")
    for step in (
        [sys.executable, "-m", "venv", str(place)],
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", PACKAGE],
    ):
        subprocess.run(step, check=True, capture_output=True, timeout=INSTALL_S)


class _Model(BaseHTTPRequestHandler):
    """A model that wants to read what a hash hides, and then answers."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        requests: list[str] = self.server.requests  # type: ignore[attr-defined]
        requests.append(raw.decode())
        found = re.search(r"hash=([0-9a-f]{20})", raw.decode())
        message: dict[str, object] = {"role": "assistant", "content": "batch 3 was stored"}
        if found and len(requests) == 1:
            arguments = json.dumps({"hash": found[1]})
            function = {"name": "headroom_retrieve", "arguments": arguments}
            message |= {"content": None, "tool_calls": [{"id": "call_2", "type": "function", "function": function}]}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if "tool_calls" in message else "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        answer = {"id": "x", "object": "chat.completion", "created": 1, "model": "gpt-x", "choices": [choice]}
        body = json.dumps({**answer, "usage": usage}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """The requests are kept."""


@contextmanager
def model() -> Iterator[tuple[str, list[str]]]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Model) as server:
        requests = server.requests = list[str]()  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", requests
        server.shutdown()
        thread.join()


@asynccontextmanager
async def litellm(folder: Path, provider: str, compressor: str) -> AsyncIterator[str]:
    command = await asyncio.to_thread(program)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    asked = {"model": "openai/gpt-x", "api_base": provider, "api_key": "none"}
    rail = {"guardrail": "headroom", "mode": "pre_call", "api_base": compressor, "default_on": True}
    config = {
        "model_list": [{"model_name": "gpt-x", "litellm_params": asked}],
        "guardrails": [{"guardrail_name": "kimi-proxy", "litellm_params": rail}],
    }
    (folder / "litellm.yaml").write_text(json.dumps(config))  # JSON is YAML
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_MASTER_KEY": MASTER_KEY,
    }
    options = ["--config", str(folder / "litellm.yaml"), "--host", "127.0.0.1", "--port", str(port)]
    log = (folder / "litellm.log").open("wb")
    process = await asyncio.create_subprocess_exec(*command, *options, cwd=folder, env=env, stdout=log, stderr=log)
    try:
        async with asyncio.timeout(PATIENCE_S), httpx.AsyncClient(trust_env=False) as http:
            while True:
                assert process.returncode is None, (folder / "litellm.log").read_text()[-2000:]
                try:
                    if (await http.get(f"http://127.0.0.1:{port}/health/liveliness")).status_code == 200:
                        break
                except httpx.TransportError:
                    await asyncio.sleep(0.2)
        yield f"http://127.0.0.1:{port}"
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        log.close()


async def test_a_conversation_through_litellm_is_cut_by_us_and_read_back_by_the_model(tmp_path: Path):
    with model() as (provider, requests):
        async with (
            proxy(tmp_path / "state", "[sanitizer]\nbudget_ms = 60000\n") as p,
            litellm(tmp_path, provider, f"http://127.0.0.1:{p.port}") as url,
            httpx.AsyncClient(trust_env=False, timeout=PATIENCE_S) as http,
        ):
            await p.runtime.pruner.warm()
            answer = await http.post(
                f"{url}/v1/chat/completions", json=REQUEST, headers={"Authorization": f"Bearer {MASTER_KEY}"}
            )

    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"][0]["message"]["content"] == "batch 3 was stored"
    first, second = (json.loads(request) for request in requests)
    assert len(first["messages"][2]["content"]) < len(LOG) / 2
    assert {"bash", "headroom_retrieve"} == {tool["function"]["name"] for tool in first["tools"]}
    assert second["messages"][-1]["content"] == LOG
