"""The settings of the demo: a provider on this machine, its models with small windows and prices, one MCP server."""

import json

from kimi_proxy.features.demo.day import DESK, LARGE, OTHER, SMALL
from kimi_proxy.features.demo.outgrowing import FERRY, LARGER_WINDOW, LINER, PROVIDER, WINDOW

# A small window fills up while somebody watches.
_MODELS = (
    (SMALL, "workshop", 20_800, 0.6, 0.15, 2.5),
    (LARGE, "foundry", 131_072, 0.6, 0.15, 2.5),
    (OTHER, "scriptorium", 65_536, 3.0, 0.3, 15.0),
    # Two of one provider: what outgrows the smaller goes to the larger.
    (FERRY, PROVIDER, WINDOW, 0.1, 0.02, 0.4),
    (LINER, PROVIDER, LARGER_WINDOW, 0.6, 0.15, 2.5),
)
_TURNED_OFF = ("sequential-thinking", "fast-filesystem", "json-query", "shrimp-task-manager")


def settings(model_port: int, pruner_port: int, proxy_port: int, python: str) -> str:
    """The text of a configuration file."""
    address = f"http://127.0.0.1:{model_port}"
    parts = [
        f'[mcp_pruner]\nhost = "127.0.0.1"\nport = {pruner_port}\n',
        f'[proxy]\nhost = "127.0.0.1"\nport = {proxy_port}\n',
        '[log]\nlevel = "warning"\n',
        "[sanitizer]\nbudget_ms = 10000\n",  # the same day on every machine, however slow
        f'[providers.workshop]\nbase_url = "{address}/v1"\n',
        f'[providers.foundry]\nbase_url = "{address}/v1"\n',
        f'[providers.{PROVIDER}]\nbase_url = "{address}/v1"\n',
        f'[providers.scriptorium]\ntype = "anthropic"\nbase_url = "{address}"\n',
        *(_model(*model) for model in _MODELS),
        f'[mcp.servers.{DESK}]\ncommand = {json.dumps(python)}\nargs = ["-m", "kimi_proxy.cli.ticket_desk"]\n',
        *(f"[mcp.servers.{name}]\nenabled = false\n" for name in _TURNED_OFF),
    ]
    return "\n".join(parts)


def _model(name: str, provider: str, window: int, read: float, cached: float, written: float) -> str:
    return (
        f'[models."{name}"]\nprovider = "{provider}"\nmax_context_size = {window}\n'
        f"input_usd_per_million = {read}\ncached_usd_per_million = {cached}\noutput_usd_per_million = {written}\n"
    )
