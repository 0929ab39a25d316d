"""What a hard budget in money does with a model whose price nobody knows."""

from pathlib import Path

import pytest
from tests.support.conversations import User, request
from tests.support.services.store.making import opened

from kimi_proxy.core.caller import Caller
from kimi_proxy.core.chat import Wire
from kimi_proxy.core.config import Config, parse
from kimi_proxy.core.errors import AccessDenied
from kimi_proxy.features.accounting import prices_of
from kimi_proxy.features.chat.pipeline import Draft
from kimi_proxy.features.chat.sessions import Session
from kimi_proxy.features.models import Models, Target
from kimi_proxy.team.budgets import Budgets

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


async def admit(home: Path, budget: str, provider: str, model: str) -> None:
    settings = config(home, budget)
    draft = Draft(request(Wire.CHAT, [User("hi")]), Target(provider, model), Session("s"), ADA, id="req_1")
    async with opened(home) as store:
        await Budgets(settings.team, store.team, Models.of(settings)).admit(draft, "counted")


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
        ("vertex", "claude-opus-5@20260101"),
    ],
)
def test_clouds_sell_anthropics_models_at_anthropics_prices(provider: str, model: str, tmp_path: Path):
    models = Models.of(config(tmp_path, "usd = 5"))
    direct = prices_of(models.model(Target("anthropic", "claude-opus-5")))

    assert direct is not None
    assert prices_of(models.model(Target(provider, model))) == direct
