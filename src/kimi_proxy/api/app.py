"""The pruner's HTTP application."""

from dataclasses import replace

from starlette.routing import Route
from starlette.types import ASGIApp

from kimi_proxy import __version__
from kimi_proxy.api import health, metrics, prune
from kimi_proxy.api.catalog import Catalog, Observe, unobserved
from kimi_proxy.api.guard import LOOPBACK, Rules
from kimi_proxy.api.site import site
from kimi_proxy.core.config import Config
from kimi_proxy.services.runtime import Runtime
from kimi_proxy.services.tools.agent import over_http

INSTRUCTIONS = (
    "prune_text keeps the lines of a long text that matter for your goal and puts a marker "
    "⟦PRUNÉ: prune_id=… lignes a-b …⟧ where others were. Nothing is lost: recover_text returns the "
    "original lines behind a marker, by its prune_id and line numbers."
)
TOOLS_INSTRUCTIONS = (
    "read, grep and bash take a context_focus_question: a full question, and they print only the lines that matter "
    "for it, with markers ⟦PRUNÉ: prune_id=… lignes a-b …⟧ for the rest. Locate with grep, read with a question, "
    "and when a marker hides what you need, call recover_text with its prune_id and line numbers."
)
EVERYWHERE = ("0.0.0.0", "::", "")  # noqa: S104 - named to be left out of the hosts we answer to


def pruner_app(runtime: Runtime) -> ASGIApp:
    traffic = metrics.Traffic(runtime.metrics.registry)
    routes = [
        Route("/health", health.endpoint(runtime), methods=["GET"]),
        Route("/metrics", metrics.endpoint(runtime), methods=["GET"]),
        Route("/prune", prune.endpoint(runtime), methods=["POST"]),
    ]
    rules = rules_of(runtime.config, runtime.config.mcp_pruner.host)
    catalog = pruner_catalog(runtime, traffic.called)
    more = {**catalog.tools, **over_http(runtime.agent_tools, runtime.config.tools)}
    return site(catalog, rules, routes, traffic.refused, replace(catalog, tools=more, ends_with_caller="bash" in more))


def pruner_catalog(runtime: Runtime, observe: Observe = unobserved) -> Catalog:
    return Catalog("mcp-pruner", __version__, INSTRUCTIONS, runtime.tools, observe)


def tools_catalog(runtime: Runtime) -> Catalog:
    """What an agent gets that wants tools, and the way back from their markers."""
    offered = {**runtime.agent_tools, "recover_text": runtime.tools["recover_text"]}
    return Catalog("kimi-proxy-tools", __version__, TOOLS_INSTRUCTIONS, offered)


def rules_of(config: Config, host: str) -> Rules:
    """The guard's rules for a server that is bound to `host`."""
    name = f"[{host}]" if ":" in host else host
    own = () if host in EVERYWHERE or name in LOOPBACK else (name,)
    return Rules(
        hosts=(*own, *config.access.allowed_hosts),
        token=config.token.get_secret_value() if config.token else None,
        max_body_bytes=config.access.max_body_bytes,
    )
