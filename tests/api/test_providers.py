"""Whom the proxy can ask, as it tells: everything but the keys."""

from dataclasses import asdict
from pathlib import Path

from tests.support.api.watching import MODEL, models, world

from kimi_proxy.core import json
from kimi_proxy.features.models.known import table

KEY = "sk-a-key-that-nobody-has"


async def test_providers_are_told_without_their_keys(tmp_path: Path):
    toml = models() + "[providers.kimi]\n[providers.ollama]\n[providers.openai]\nenabled = false\n"
    async with world(tmp_path, toml, KIMI_API_KEY=KEY) as w:
        answer = await w.proxy.http.get("/api/providers")
    found = {each["name"]: each for each in answer.json()["providers"]}
    assert found["openai-evil"] == {
        "name": "openai-evil",
        "enabled": True,
        "on_demand": False,
        "type": "openai",
        "base_url": w.provider.url.replace("/v1", "/…"),
        "key": "client",
        "models": [MODEL],
    }
    assert [(found[name]["enabled"], found[name]["key"]) for name in ("kimi", "ollama", "openai")] == [
        (True, "configured"),
        (True, "client"),
        (False, "missing"),
    ]
    assert KEY not in answer.text
    assert KEY[-4:] not in answer.text


async def test_models_are_told_with_their_windows_and_prices(tmp_path: Path):
    async with world(tmp_path) as w:
        assert (await w.get("/api/models"))["models"] == [
            {
                "id": MODEL,
                "provider": "openai-evil",
                "model": "m",
                "enabled": True,
                "max_context_size": 1000,
                "input_usd_per_million": 1.0,
                "cached_usd_per_million": 0.1,
                "cache_write_usd_per_million": None,
                "output_usd_per_million": 2.0,
            }
        ]


async def test_the_table_of_known_models_is_sent_only_on_demand(tmp_path: Path):
    async with world(tmp_path) as w:
        short, whole = await w.get("/api/models"), await w.get("/api/models?all=true")
        refused = await w.proxy.http.get("/api/models?all=perhaps")

    assert short.keys() == {"models", "unknown"}
    assert whole.pop("known") == [
        json.decode(json.encode({key: value for key, value in asdict(row).items() if value is not None}))
        for row in table()
    ]
    assert whole == short
    assert refused.status_code == 400


async def test_a_limit_that_is_reached_says_how_long_to_wait(tmp_path: Path):
    toml = "requests_per_minute = 1\n" + models()
    async with world(tmp_path, toml) as w:
        (before,) = (await w.get("/api/rate-limit"))["providers"]  # type: ignore[misc, union-attr]
        await w.ask("hi")
        (after,) = (await w.get("/api/rate-limit"))["providers"]  # type: ignore[misc, union-attr]
    assert before == {"provider": "openai-evil", "requests_per_minute": 1, "wait_s": 0.0}
    assert isinstance(after, dict)
    assert 30 < after["wait_s"] <= 60
