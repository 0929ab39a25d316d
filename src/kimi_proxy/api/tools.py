"""The agent tools over HTTP, for the one program that started this server and has its token."""

from starlette.routing import Route
from starlette.types import ASGIApp

from kimi_proxy.api import health
from kimi_proxy.api.app import rules_of, tools_catalog
from kimi_proxy.api.guard import Refusal
from kimi_proxy.api.site import site
from kimi_proxy.core.errors import ConfigError
from kimi_proxy.services.runtime import Runtime

HOST = "127.0.0.1"


def tools_app(runtime: Runtime) -> ASGIApp:
    """read, grep, bash and recover_text; bash too, so nobody gets in without the token."""
    if runtime.config.token is None:
        raise ConfigError("bash runs commands for whoever reaches its port: set KIMI_PROXY_TOKEN, or use --stdio")
    routes = [Route("/health", health.endpoint(runtime), methods=["GET"])]
    return site(tools_catalog(runtime), rules_of(runtime.config, HOST), routes, _unheard)


def _unheard(refusal: Refusal) -> None:
    """The one client that matters has the token."""
