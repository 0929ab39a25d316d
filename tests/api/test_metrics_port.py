"""The port of its own for Prometheus: figures for whoever calls by address, and nothing else."""

from pathlib import Path

import httpx
import pytest
from tests.support import outputs
from tests.support.api.proxy_world import proxy
from tests.support.conversations import Assistant, Call, Result, User, body
from tests.support.evil import answering, evil, http

from kimi_proxy.assembly.apps import metrics_app
from kimi_proxy.core.chat import Wire

LOG = outputs.pytest_log(300)
SECRET = "the-token-of-this-server"


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("10.42.3.7:9464", 200),
        ("[fd00::7]:9464", 200),
        ("127.0.0.1", 200),
        ("metrics.example", 200),
        ("evil.example", 421),
        ("10.42.3.7.evil.example:9464", 421),
        ("a@10.42.3.7", 421),
        ("", 421),
    ],
)
async def test_a_scraper_calls_by_address_without_a_token_and_a_rebound_name_is_refused(
    host: str, status: int, tmp_path: Path
):
    settings = '[access]\nallowed_hosts = ["metrics.example"]\n'
    async with proxy(tmp_path, settings, KIMI_PROXY_TOKEN=SECRET) as p:
        app = httpx.ASGITransport(metrics_app(p.runtime), client=("10.42.0.1", 5))
        async with httpx.AsyncClient(transport=app, base_url="http://127.0.0.1:9464") as scraper:
            answer = await scraper.get("/metrics", headers={"host": host})

    assert answer.status_code == status
    assert ("kimi_proxy_chat_requests" in answer.text) is (status == 200)


async def test_it_serves_figures_and_no_text_of_anyone(tmp_path: Path):
    said = [User(f"my-secret-question {LOG.goal}"), Assistant("", (Call("call_a1"),)), Result("call_a1", LOG.text)]
    async with evil(answering(http(b'{"choices":[]}'))) as provider, proxy(tmp_path, provider.toml()) as p:
        headers = {"content-type": "application/json", "x-session-id": "my-session"}
        await p.http.post("/v1/chat/completions", content=body(Wire.CHAT, said), headers=headers)
        sessions = (await p.http.get("/api/sessions")).json()["sessions"]
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(metrics_app(p.runtime)), base_url="http://127.0.0.1:9464"
        ) as scraper:
            figures = (await scraper.get("/metrics")).text
            others = [(await scraper.get(path)).status_code for path in ("/api/sessions", "/", "/rpc", "/health")]

    assert sessions
    assert "kimi_proxy_chat_requests_total{" in figures
    assert [word for word in ("my-secret", "my-session", sessions[0]["title"], "prn_") if word in figures] == []
    assert others == [404] * 4
