"""The setting in which each client keeps its provider's address, and the change that makes it call the proxy."""

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from kimi_proxy.connect.agents import Agent
from kimi_proxy.connect.client_files import KeyPath, SettingsKeys, TextFormat
from kimi_proxy.core.chat import Wire
from kimi_proxy.core.config import Config
from kimi_proxy.core.config.providers import Provider
from kimi_proxy.core.json import JsonValue
from kimi_proxy.features.chat.safety_checks import CHECK_TOKENS
from kimi_proxy.features.editing import jsonc, toml
from kimi_proxy.features.models import Models

Api = Literal["anthropic", "openai"]
ANTHROPIC_HOST = "api.anthropic.com"
BASE_URL = "ANTHROPIC_BASE_URL"
FIRST_PARTY = "_CLAUDE_CODE_ASSUME_FIRST_PARTY_BASE_URL"
COMPACT_WINDOW = "CLAUDE_CODE_AUTO_COMPACT_WINDOW"
AUTO_MODE_SERVER = "CLAUDE_CODE_AUTO_MODE_SERVER"
TOOL_SEARCH = "ENABLE_TOOL_SEARCH"
UNLESS_SET = frozenset({TOOL_SEARCH})
_APIS: tuple[Api, ...] = ("anthropic", "openai")

_BARE = re.compile(r"[\w-]+", re.ASCII)

# Who may answer Claude Code: Anthropic itself, others, or both.
Answering = Literal["anthropic", "others", "both"]

Values = Mapping[KeyPath, Mapping[str, JsonValue]]


@dataclass(frozen=True, slots=True)
class ProxyTarget:
    """The proxy's address, without `/v1`; whether Claude Code may take it for Anthropic's own; which APIs are there."""

    url: str
    is_anthropic: bool = False
    apis: tuple[Api, ...] = ("anthropic", "openai")
    window: int = 0  # tokens that the smallest model behind it reads at once; 0 if that is not known
    answering: Answering = "anthropic"
    searches_tools: bool = False  # whoever answers in Anthropic's own form understands its tool search


def proxy_target(url: str, config: Config, env: Mapping[str, str]) -> ProxyTarget:
    """Return the target for a proxy with these settings; Anthropic is the default provider of its API."""
    on = _providers_on(config)
    apis = tuple(api for api in _APIS if any(provider.type == api for provider in on))
    anthropic = {provider.base_url.host for provider in on if provider.type == "anthropic"}
    models = Models.of(config)
    windows = (models.window(models.configured_target(key)) for key, _ in models.offered_models())
    may_sign = config.sanitizer.change_attested and has_anthropic_key(config, env)
    is_anthropic = anthropic == {ANTHROPIC_HOST} and may_sign
    window = min((size for size in windows if size), default=0)
    return ProxyTarget(
        url,
        is_anthropic=is_anthropic,
        apis=apis,
        window=window,
        answering=who_answers(config),
        # Translation describes all tools to other providers, whatever the client defers.
        searches_tools={each.base_url.host for each in _answering(config) if each.speaks_messages} == {ANTHROPIC_HOST},
    )


def _providers_on(config: Config) -> list[Provider]:
    on = [provider for provider in config.providers.values() if provider.enabled]
    # Where the file switches none on, known providers answer clients that bring their own key or login.
    return on or [config.providers[name] for name in config.on_demand]


def who_answers(config: Config) -> Answering:
    """Return whether Claude Code's requests reach Anthropic's own host, other providers, or both."""
    able = _answering(config)
    theirs = {each.type == "anthropic" and each.base_url.host == ANTHROPIC_HOST for each in able}
    return "both" if len(theirs) > 1 else "anthropic" if theirs == {True} else "others"


def _answering(config: Config) -> list[Provider]:
    """Return the providers that may answer requests of Claude Code."""
    on = [provider for provider in config.providers.values() if provider.enabled]
    # Where none is, Anthropic answers with the client's own key or login, and others for which we have a key.
    on = on or [config.providers[name] for name in config.on_demand if name in ("anthropic", *config.provider_keys)]
    return [each for each in on if each.speaks_messages or each.translates(Wire.MESSAGES)]


def explain_auto_mode(answering: Answering) -> str:
    """Return what auto mode needs, and what it costs; "" where Anthropic itself answers."""
    costs = f"about {CHECK_TOKENS:,} tokens for each checked action"
    if answering == "others":
        return (
            f"{AUTO_MODE_SERVER}=0 lets Claude Code's auto mode check actions by itself, with {costs}: only Anthropic "
            "checks them on its own servers, and without it auto mode stops at the first command"
        )
    if answering == "both":
        return (
            f"for a model that is not Anthropic's, start Claude Code with {AUTO_MODE_SERVER}=0: its auto mode then "
            f"checks actions by itself, with {costs}, and stops at the first command without it. Leave it unset for "
            "Anthropic's own models"
        )
    return ""


def has_anthropic_key(config: Config, env: Mapping[str, str]) -> bool:
    """Return whether Claude Code's requests are paid with an API key: the user's own, or one of the proxy."""
    keyed = config.provider_keys
    ours = any(provider.type == "anthropic" and name in keyed for name, provider in config.providers.items())
    return ours or bool(env.get("ANTHROPIC_API_KEY"))


@dataclass(frozen=True, slots=True)
class BaseUrl:
    """A file with the address of a client's provider. Paths are relative as those of `ClientApp`.

    A project's file is one that is not shared with others, because the address is this machine's.
    """

    apis: tuple[Api, ...]
    format: TextFormat
    values: Callable[[ProxyTarget], Values]
    user: str
    project: str = ""

    def keys(self, target: ProxyTarget) -> SettingsKeys:
        return SettingsKeys(self.format, self.values(target), UNLESS_SET)


def claude_environment(target: ProxyTarget) -> dict[str, str | None]:
    """Return the variables that make Claude Code use the proxy and keep its first-party features; None: unset.

    With an unknown address it turns off tool search (so every MCP tool is in every request) and more
    (docs/claude-code-gateway.md). If Anthropic answers, we may claim to be first party, because we relay its responses;
    with another provider we do not. The client then signs its requests, which are shortened only if the settings allow
    it: we make the claim only in that case, and never for the login of a plan.
    """
    found = {
        BASE_URL: target.url,
        FIRST_PARTY: "1" if target.is_anthropic else None,
        # It takes a model that it does not know for one that reads a million tokens, and compacts too late.
        COMPACT_WINDOW: str(target.window) if target.window and "anthropic" not in target.apis else None,
    }
    if target.searches_tools:
        # Without it, 2.1.197 describes 24 tools in every request in place of 9.
        found[TOOL_SEARCH] = "true"
    # With models of both, it depends on the session: what the user has set stays.
    if target.answering != "both":
        found[AUTO_MODE_SERVER] = "0" if target.answering == "others" else None
    return found


def proxied_run(agent: Agent, target: ProxyTarget, codex_provider: str = "") -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the variables and the arguments that send one run of an agent through the proxy; none if it has none.

    `codex_provider` is the one that the user's own settings of Codex choose in place of OpenAI.
    """
    if agent == "claude":
        found = claude_environment(target)
        return {name: value for name, value in found.items() if value is not None}, ()
    if agent == "codex":
        key = f"model_providers.{codex_provider}.base_url" if codex_provider else "openai_base_url"
        return {}, ("-c", f'{key}="{target.url}/v1"')
    if agent == "copilot":
        return {"COPILOT_PROVIDER_BASE_URL": f"{target.url}/v1"}, ()
    return {}, ()


def chosen_codex_provider(settings: str) -> str:
    """Return the provider that settings of Codex name in place of OpenAI; "" if they name none, or are unreadable."""
    try:
        name = tomllib.loads(settings).get("model_provider")
    except tomllib.TOMLDecodeError:
        return ""
    return name if isinstance(name, str) and name != "openai" and _BARE.fullmatch(name) else ""


def _claude(target: ProxyTarget) -> Values:
    return {("env",): claude_environment(target)}


def _codex(target: ProxyTarget) -> Values:
    # A separate model provider would hide the sessions that Codex started with `openai`.
    return {(): {"openai_base_url": f"{target.url}/v1"}}


def _opencode(target: ProxyTarget) -> Values:
    return {("provider", api, "options"): {"baseURL": f"{target.url}/v1"} for api in target.apis}


def _pi(target: ProxyTarget) -> Values:
    # Its client for Anthropic adds the version of the API itself.
    return {("providers", api): {"baseUrl": target.url + ("" if api == "anthropic" else "/v1")} for api in target.apis}


def _qwen(target: ProxyTarget) -> Values:
    return {("env",): {"OPENAI_BASE_URL": f"{target.url}/v1", "ANTHROPIC_BASE_URL": target.url}}


CLAUDE = BaseUrl(("anthropic",), jsonc, _claude, ".claude/settings.json", ".claude/settings.local.json")
CODEX = BaseUrl(("openai",), toml, _codex, ".codex/config.toml")
OPENCODE = BaseUrl(("anthropic", "openai"), jsonc, _opencode, ".config/opencode/opencode.json")
KILO = BaseUrl(("anthropic", "openai"), jsonc, _opencode, ".config/kilo/kilo.json")
PI = BaseUrl(("anthropic", "openai"), jsonc, _pi, ".pi/agent/models.json")
QWEN = BaseUrl(("openai", "anthropic"), jsonc, _qwen, ".qwen/settings.json")
