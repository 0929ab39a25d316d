"""Settings over HTTP: switched at once, remembered by the file."""

from pathlib import Path

import pytest
from tests.support.api.proxy_world import proxy


async def test_the_sanitizer_is_switched_off_and_stays_so(tmp_path: Path):
    async with proxy(tmp_path, "") as p:
        before = (await p.http.get("/api/settings")).json()
        after = (await p.http.patch("/api/settings", json={"sanitizer.enabled": False})).json()

        assert before["switches"]["sanitizer.enabled"] is True
        assert after["switches"]["sanitizer.enabled"] is False
        assert p.runtime.sanitizer.is_on is False
        # Nobody named a file here: the change lasts until the next start, and that is told.
        assert (after["saved"], before["file"]) == (False, None)
        assert "configuration file" in after["problem"]


async def test_every_switch_of_the_product_can_be_switched(tmp_path: Path):
    async with proxy(tmp_path, "") as p:
        switches = (await p.http.get("/api/settings")).json()["switches"]
        turned = {name: not is_on for name, is_on in switches.items()}
        after = (await p.http.patch("/api/settings", json=turned)).json()

    assert {
        "sanitizer.enabled",
        "sanitizer.routing.heavy_duty_fallback",
        "reinjection.enabled",
        "compression.automatic",
    } <= set(switches)
    assert after["switches"] == turned


async def test_no_secret_is_shown(tmp_path: Path):
    toml = "[providers.kimi]\nenabled = true\n"
    async with proxy(tmp_path, toml, KIMI_API_KEY="sk-secret-1", DEEPINFRA_API_KEY="di-secret-2") as p:
        shown = (await p.http.get("/api/settings")).text

    assert "secret-1" not in shown
    assert "secret-2" not in shown
    assert '"KIMI_API_KEY":true' in shown


@pytest.mark.parametrize(
    "body", [[], {}, {"sanitizer.enabled": "no"}, {"sanitizer.enabled": 0}, {"proxy.port": True}, {"": True}]
)
async def test_anything_else_is_refused(tmp_path: Path, body: object):
    async with proxy(tmp_path, "") as p:
        assert (await p.http.patch("/api/settings", json=body)).status_code == 400
        assert p.runtime.sanitizer.is_on is True
