"""What was left out of chat requests can be looked at, read back and switched off."""

from pathlib import Path

import pytest
from tests.support import outputs
from tests.support.api.proxy_world import Proxy, proxy
from tests.support.conversations import Assistant, Call, Item, Result, User, body
from tests.support.evil import Evil, evil, http
from tests.support.evil import answering as answers

from kimi_proxy.core.chat import Wire

LOG = outputs.pytest_log(300)
ITEMS: list[Item] = [User(LOG.goal), Assistant("", (Call("call_a1"),)), Result("call_a1", LOG.text)]
SETTINGS = "[sanitizer]\nbudget_ms = 60000\n"


async def ask(p: Proxy, items: list[Item] = ITEMS) -> None:
    sent = await p.http.post(
        "/v1/chat/completions", content=body(Wire.CHAT, items), headers={"content-type": "application/json"}
    )
    assert sent.status_code == 200


@pytest.fixture
def script():
    return answers(http(b'{"choices":[]}'))


async def test_what_was_left_out_is_counted_listed_and_read_back(tmp_path: Path, script):
    async with evil(script) as provider, proxy(tmp_path, provider.toml() + SETTINGS) as p:
        await ask(p)
        await ask(p, [*ITEMS, Assistant("ok"), User("next")])
        stats = (await p.http.get("/api/sanitizer/stats")).json()
        (mask,) = (await p.http.get("/api/mask")).json()["masks"]
        whole = (await p.http.get(f"/api/mask/{mask['id']}")).json()
        some = (await p.http.get(f"/api/mask/{mask['id']}?lines=2-3")).json()

    assert stats["enabled"] is True
    assert stats["outputs"] == {"pruned": 1}
    assert stats["tokens_saved"] == stats["tokens_before"] - stats["tokens_after"] > 1000
    assert stats["since_start"]["requests"] == stats["since_start"]["cut"] == 2
    assert stats["since_start"]["tokens_saved"] == 2 * stats["tokens_saved"]
    assert (stats["since_start"]["cut_now"], stats["since_start"]["tool_tokens"] > 0) == (1, True)
    assert (mask["why"], mask["tokens_before"]) == ("pruned", stats["tokens_before"])
    assert LOG.text.startswith(mask["preview"])
    assert whole["text"] == LOG.text
    assert some["text"] == "\n".join(LOG.text.split("\n")[1:3])


def carries(provider: Evil) -> list[bool]:
    """Of each request, whether it carried all of the output."""
    return [LOG.text.split("\n")[40].encode() in heard.body for heard in provider.heard]


async def test_it_can_be_switched_off_and_on(tmp_path: Path, script):
    other: list[Item] = [User("another"), *ITEMS[1:]]
    async with evil(script) as provider, proxy(tmp_path, provider.toml() + SETTINGS) as p:
        toggles = [
            (await p.http.post("/api/sanitizer/toggle", json=value)).json() for value in ({"enabled": False}, {})
        ]
        again = (await p.http.post("/api/sanitizer/toggle", json={"enabled": False})).json()
        await ask(p)
        await p.http.post("/api/sanitizer/toggle", json={})
        await ask(p, other)

    assert [*toggles, again] == [{"enabled": False}, {"enabled": True}, {"enabled": False}]
    assert carries(provider) == [True, False]


async def test_the_settings_can_leave_it_off(tmp_path: Path, script):
    async with evil(script) as provider, proxy(tmp_path, provider.toml() + "[sanitizer]\nenabled = false\n") as p:
        await ask(p)
        stats = (await p.http.get("/api/sanitizer/stats")).json()

    assert provider.heard[0].body == body(Wire.CHAT, ITEMS)
    assert (stats["enabled"], stats["outputs"]) == (False, {})


@pytest.mark.parametrize(
    ("method", "path", "content"),
    [
        ("POST", "/api/sanitizer/toggle", b"[]"),
        ("POST", "/api/sanitizer/toggle", b'{"enabled": "yes"}'),
        ("POST", "/api/sanitizer/toggle", b"{"),
        ("GET", "/api/mask?limit=0", b""),
        ("GET", "/api/mask?limit=many", b""),
    ],
)
async def test_nonsense_is_refused(tmp_path: Path, method: str, path: str, content: bytes):
    async with proxy(tmp_path, "") as p:
        headers = {"content-type": "application/json"} if content else {}
        answer = await p.http.request(method, path, content=content, headers=headers)

    assert answer.status_code == 400, answer.text
