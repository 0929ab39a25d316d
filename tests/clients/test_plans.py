"""Logins of a plan pass through: to the provider as they came, beside our own token, and nowhere else.

Claude Code and Codex are used where they are installed; ./test.sh --deep installs them (see test_coding_agents.py).
"""

import asyncio
import json
import time
from pathlib import Path

import pytest
from tests.support import model
from tests.support.api.proxy_world import proxy
from tests.support.clients.coding_agents import program, run
from tests.support.clients.plans import LOGIN, jwt
from tests.support.clients.provider import Coder
from tests.support.clients.servers import INSTALL_S
from tests.support.core.chat.streams import event
from tests.support.evil import Heard, evil, streaming

from kimi_proxy.core.chat import Wire
from kimi_proxy.core.json import JsonObject

pytestmark = pytest.mark.timeout(INSTALL_S + 600)

TOKEN = "a-token-that-is-long-enough"
OAUTH = "sk-ant-oat01-a-login-that-nobody-has"
RECORDED = "[record]\nenabled = true\n"


def write_chatgpt_login(home: Path) -> str:
    """Log Codex in with a plan; return the token."""
    plan: JsonObject = {"chatgpt_plan_type": "plus", "chatgpt_user_id": "u", "chatgpt_account_id": "acc_1"}
    login = jwt({"email": "a@example.org", "exp": int(time.time()) + 10**6, "https://api.openai.com/auth": plan})
    tokens = {"id_token": login, "access_token": login, "refresh_token": "r", "account_id": "acc_1"}
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    home.mkdir(parents=True)
    auth = {"auth_mode": "chatgpt", "OPENAI_API_KEY": None, "tokens": tokens, "last_refresh": now}
    (home / "auth.json").write_text(json.dumps(auth))
    return login


def written(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def check(heard: list[Heard], login: str, state: Path) -> None:
    assert {each.header("authorization") for each in heard} == {f"Bearer {login}"}
    assert {each.header("x-kimi-proxy-token") for each in heard} == {None}
    assert {each.header("x-api-key") for each in heard} == {None}
    stored = written(state)
    assert stored and login.encode() not in stored and TOKEN.encode() not in stored


async def test_claude_code_with_the_login_of_a_plan(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    claude = await asyncio.to_thread(program, "claude")
    (tmp_path / "hello.txt").write_text("a needle in a file\n")
    async with evil(Coder()) as provider:
        known = f"anthropic=http://127.0.0.1:{provider.port}"
        environment = {"KIMI_PROXY_UPSTREAMS": known, "KIMI_PROXY_TOKEN": TOKEN, "ANTHROPIC_API_KEY": "sk-ant-ours"}
        async with proxy(tmp_path / "state", RECORDED, **environment) as p:
            said = await run(
                tmp_path,
                *(claude, "-p", "read hello.txt", "--allowedTools", "Read", "--output-format", "json"),
                ANTHROPIC_BASE_URL=f"http://127.0.0.1:{p.port}",
                CLAUDE_CODE_OAUTH_TOKEN=OAUTH,
                ANTHROPIC_CUSTOM_HEADERS=f"X-Kimi-Proxy-Token: {TOKEN}",
                CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
            )

    assert json.loads(said)["result"] == Coder.DONE
    check(provider.heard, OAUTH, tmp_path / "state")
    assert OAUTH not in caplog.text


async def test_codex_with_the_login_of_a_plan(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """It compresses what it sends, asks for a WebSocket first, and names an account."""
    codex = await asyncio.to_thread(program, "codex")
    login = write_chatgpt_login(tmp_path / "home" / ".codex")
    async with evil(Coder()) as provider:
        known = f"chatgpt=http://127.0.0.1:{provider.port}/backend-api/codex"
        environment = {"KIMI_PROXY_UPSTREAMS": known, "OPENAI_API_KEY": "sk-ours"}
        async with proxy(tmp_path / "state", RECORDED, **environment) as p:
            settings = [f'openai_base_url="http://127.0.0.1:{p.port}/v1"', 'chatgpt_base_url="http://127.0.0.1:9"']
            overrides = [word for setting in settings for word in ("-c", setting)]
            began = time.monotonic()
            said = await run(tmp_path, codex, "exec", "-m", "gpt-5.2", *overrides, "--skip-git-repo-check", "run echo")
            took = time.monotonic() - began

    assert Coder.DONE in said and b"a needle in an output" in provider.heard[-1].body
    check(provider.heard, login, tmp_path / "state")
    assert {heard.target for heard in provider.heard} == {"/backend-api/codex/responses"}
    assert {heard.header("chatgpt-account-id") for heard in provider.heard} == {"acc_1"}
    assert login not in caplog.text and took < 60


async def test_a_login_goes_to_its_plan_also_where_the_file_names_others(tmp_path: Path):
    answer = event("response.completed", response={"id": "r", "output": [], "usage": None}).encode()
    said = b"".join(model.events(Wire.CHAT, model.Says("hi")))  # its requests are translated
    async with evil(streaming(answer)) as plan, evil(streaming(said)) as other:
        toml = (
            f'[providers.kimi]\nbase_url = "{other.url}"\napi_key = ""\n[providers.chatgpt]\nbase_url = "{plan.url}"\n'
        )
        async with proxy(tmp_path, toml) as p:
            for credential in (LOGIN, jwt({"iss": "a gateway of a company"}), "a-key-of-the-client"):
                headers = {"authorization": f"Bearer {credential}"}
                asked = {"model": "gpt-5.2", "stream": True, "input": "hi"}
                await p.http.post("/v1/responses", json=asked, headers=headers)

    assert [heard.header("authorization") for heard in plan.heard] == [f"Bearer {LOGIN}"]
    theirs = jwt({"iss": "a gateway of a company"}), "a-key-of-the-client"
    assert [heard.header("authorization") for heard in other.heard] == [f"Bearer {each}" for each in theirs]
