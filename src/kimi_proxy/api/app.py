"""The pruner's HTTP application."""

from starlette.routing import Route
from starlette.types import ASGIApp

from kimi_proxy import __version__
from kimi_proxy.api import health, metrics
from kimi_proxy.api.catalog import Catalog, Observe, unobserved
from kimi_proxy.api.guard import LOOPBACK, Rules
from kimi_proxy.api.site import site
from kimi_proxy.core.config import Config
from kimi_proxy.services.runtime import Runtime

INSTRUCTIONS = (
    "prune_text keeps the lines of a long text that matter for your goal and puts a marker "
    "⟦PRUNÉ: prune_id=… lignes a-b …⟧ where others were. Nothing is lost: recover_text returns the "
    "original lines behind a marker, by its prune_id and line numbers."
)
EVERYWHERE = ("0.0.0.0", "::", "")  # noqa: S104 - named to be left out of the hosts we answer to


def pruner_app(runtime: Runtime) -> ASGIApp:
    traffic = metrics.Traffic(runtime.metrics.registry)
    routes = [
        Route("/health", health.endpoint(runtime), methods=["GET"]),
        Route("/metrics", metrics.endpoint(runtime), methods=["GET"]),
    ]
    rules = rules_of(runtime.config, runtime.config.mcp_pruner.host)
    return site(pruner_catalog(runtime, traffic.called), rules, routes, traffic.refused)


def pruner_catalog(runtime: Runtime, observe: Observe = unobserved) -> Catalog:
    return Catalog("mcp-pruner", __version__, INSTRUCTIONS, runtime.tools, observe)


def rules_of(config: Config, host: str) -> Rules:
    """The guard's rules for a server that is bound to `host`."""
    name = f"[{host}]" if ":" in host else host
    own = () if host in EVERYWHERE or name in LOOPBACK else (name,)
    return Rules(
        hosts=(*own, *config.access.allowed_hosts),
        token=config.token.get_secret_value() if config.token else None,
        max_body_bytes=config.access.max_body_bytes,
    )
