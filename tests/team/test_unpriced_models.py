"""What a hard budget in money does with a model whose price nobody knows."""

from pathlib import Path

import pytest
from tests.support.conversations import User, request
from tests.support.services.store.making import opened

from kimi_proxy.core import json
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.chat import Wire
from kimi_proxy.core.chat.request import Request
from kimi_proxy.core.config import Config, parse
from kimi_proxy.core.errors import AccessDenied
from kimi_proxy.core.json import JsonObject
from kimi_proxy.features.accounting import Prices, prices_of
from kimi_proxy.features.chat.pipeline import Draft
from kimi_proxy.features.chat.sessions import Session
from kimi_proxy.features.models import Models, Target
from kimi_proxy.team.budgets import Budgets
from kimi_proxy.team.tables import team_tables

ADA = Caller("person/ada", "ada", is_admin=False, person_id="psn_1")
CLOUDS = """
[providers.bedrock]
type = "bedrock"
base_url = "https://bedrock-runtime.us-east-1.amazonaws.com"
[providers.vertex]
type = "vertex"
base_url = "https://us-east5-aiplatform.googleapis.com"
[providers.here]
type = "openai"
base_url = "http://127.0.0.1:9/v1"
[providers.far]
type = "openai"
base_url = "https://llm.example.org/v1"
[models."far/free"]
provider = "far"
model = "free"
max_context_size = 100_000
input_usd_per_million = 0
"""


def config(home: Path, budget: str) -> Config:
    env = {"KIMI_PROXY_TOKEN": "t" * 40}
    return parse(f'{CLOUDS}[team]\nenabled = true\n[team.budgets.each]\nperson = "*"\n{budget}\n', env, home)


def object_in(body: bytes) -> JsonObject:
    value = json.decode(body)
    assert isinstance(value, dict)
    return dict(value)


async def admit(
    home: Path, budget: str, provider: str, model: str, wire: Wire = Wire.CHAT, extra: JsonObject | None = None
) -> None:
    settings = config(home, budget)
    asked = json.encode({**object_in(request(wire, [User("hi")]).body), **(extra or {})})
    draft = Draft(Request(wire, asked), Target(provider, model), Session("s"), ADA, id="req_1")
    async with opened(home) as store:
        await Budgets(settings.team, team_tables(store), Models.of(settings)).admit(draft, "counted")


@pytest.mark.parametrize("provider", ["far", "bedrock"])
async def test_a_hard_budget_in_money_refuses_what_it_cannot_price(provider: str, tmp_path: Path):
    with pytest.raises(AccessDenied, match=r"no price of .*brand-new.* is known: ask an admin to set input_usd"):
        await admit(tmp_path, "usd = 5", provider, "brand-new")


@pytest.mark.parametrize(
    ("budget", "provider", "model"),
    [
        ("usd = 5\nhard = false", "far", "brand-new"),
        ("requests = 5", "far", "brand-new"),
        ("usd = 5", "here", "brand-new"),
        ("usd = 5", "far", "free"),
        ("usd = 5", "bedrock", "us.anthropic.claude-opus-5-v1:0"),
    ],
)
async def test_other_budgets_and_known_prices_admit_it(budget: str, provider: str, model: str, tmp_path: Path):
    await admit(tmp_path, budget, provider, model)


@pytest.mark.parametrize(
    ("provider", "model"),
    [
        ("bedrock", "anthropic.claude-opus-5-v1:0"),
        ("bedrock", "eu.anthropic.claude-opus-5-20260101-v1:0"),
        ("bedrock", "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.claude-opus-5-v1:0"),
        ("bedrock", "us-gov.anthropic.claude-opus-5-20260101-v1:0"),
        ("bedrock", "anthropic.claude-opus-5-v1:0:48k"),
        ("bedrock", "anthropic.claude-opus-5-v1[1m]"),
        ("vertex", "claude-opus-5@20260101"),
        ("vertex", "claude-opus-5-v2@20260101"),
    ],
)
def test_clouds_sell_anthropics_models_at_anthropics_prices(provider: str, model: str, tmp_path: Path):
    models = Models.of(config(tmp_path, "usd = 5"))
    direct = prices_of(models.model(Target("anthropic", "claude-opus-5")))

    assert direct is not None
    assert prices_of(models.model(Target(provider, model))) == direct


FUNCTION: JsonObject = {"type": "function", "name": "f", "parameters": {}}
SEARCH: JsonObject = {"type": "web_search_20250305", "name": "web_search"}


@pytest.mark.parametrize(
    ("wire", "extra", "named"),
    [
        (Wire.RESPONSES, {"background": True}, "background"),
        (Wire.RESPONSES, {"background": 1}, "background"),
        (Wire.RESPONSES, {"prompt": {"id": "pmpt_1"}}, "prompt"),
        (Wire.RESPONSES, {"service_tier": "priority"}, "service_tier"),
        (Wire.RESPONSES, {"tools": [FUNCTION, {"type": "image_generation"}]}, "tools.image_generation"),
        (Wire.RESPONSES, {"tools": [{"type": "code_interpreter"}]}, "tools.code_interpreter"),
        (Wire.CHAT, {"service_tier": "priority"}, "service_tier"),
        (Wire.CHAT, {"web_search_options": {}}, "web_search_options"),
        (Wire.CHAT, {"modalities": ["text", "audio"]}, "modalities"),
        (Wire.CHAT, {"tools": [{"type": "builtin_function"}]}, "tools.builtin_function"),
        (Wire.MESSAGES, {"speed": "fast"}, "speed"),
        (Wire.MESSAGES, {"tools": [{"type": "code_execution_20250825", "name": "x"}]}, "tools.code_execution_20250825"),
        (Wire.GEMINI, {"tools": [{"googleSearch": {}}]}, "tools.googleSearch"),
        (Wire.GEMINI, {"generationConfig": {"responseModalities": ["TEXT", "IMAGE"]}}, "responseModalities"),
        (Wire.CHAT, {"x": [1] * 300_000}, "a body of too many values"),
    ],
)
async def test_a_hard_budget_in_money_refuses_what_the_answer_does_not_count(
    wire: Wire, extra: JsonObject, named: str, tmp_path: Path
):
    with pytest.raises(AccessDenied, match=rf"the cost of .*{named}.* is unknown when a request is sent"):
        await admit(tmp_path, "usd = 5", "bedrock", "claude-opus-5", wire, extra)
    await admit(tmp_path, "usd = 5\nhard = false", "bedrock", "claude-opus-5", wire, extra)
    await admit(tmp_path, "usd = 5", "far", "free", wire, extra)


@pytest.mark.parametrize(
    ("wire", "extra"),
    [
        (Wire.RESPONSES, {"background": False, "service_tier": "auto", "tools": [FUNCTION, {"type": "web_search"}]}),
        (Wire.CHAT, {"service_tier": "flex", "modalities": ["text"], "tools": [{"type": "function"}]}),
        (Wire.MESSAGES, {"speed": "standard", "tools": [SEARCH, {"type": "bash_20250124"}, {"name": "mine"}]}),
        (Wire.GEMINI, {"tools": [{"functionDeclarations": []}], "generationConfig": {"responseModalities": ["TEXT"]}}),
    ],
)
async def test_a_hard_budget_in_money_admits_what_the_answer_counts(wire: Wire, extra: JsonObject, tmp_path: Path):
    await admit(tmp_path, "usd = 5", "bedrock", "claude-opus-5", wire, extra)


@pytest.mark.parametrize(
    ("wire", "answer"),
    [
        (Wire.MESSAGES, {"usage": {"input_tokens": 9, "server_tool_use": {"web_search_requests": 3}}}),
        (
            Wire.RESPONSES,
            {
                "status": "completed",
                "usage": {"input_tokens": 9},
                "output": [
                    *[{"type": "web_search_call", "action": {"type": "search"}}] * 3,
                    {"type": "web_search_call", "action": {"type": "open_page"}},
                ],
            },
        ),
    ],
)
def test_searches_of_the_provider_are_charged(wire: Wire, answer: JsonObject):
    usage = wire.format.facts_of(json.encode(answer)).usage

    assert usage is not None and usage.web_searches == 3
    assert Prices(1, 1, 1, 1).cost_usd(usage) == pytest.approx(0.03, abs=0.0001)
