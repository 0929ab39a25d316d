"""The MCP catalogs of the pruner and the agent tools, for every transport."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from kimi_proxy import __version__
from kimi_proxy.api.mcp import Catalog, Observe, observe_nothing
from kimi_proxy.features.tool import AnyTool

PRUNER_INSTRUCTIONS = (
    "prune_text keeps the lines of a long text that matter for your goal and puts a marker "
    "⟦PRUNÉ: prune_id=… lignes a-b …⟧ where others were. Nothing is lost: recover_text returns the "
    "original lines behind a marker, by its prune_id and line numbers."
)
TOOLS_INSTRUCTIONS = (
    "read, grep and bash take a context_focus_question: a full question, and they print only the lines that matter "
    "for it, with markers ⟦PRUNÉ: prune_id=… lignes a-b …⟧ for the rest. Locate with grep, read long files with a "
    "question, and when a marker hides what you need, call recover_text with its prune_id and line numbers."
)

# As they introduce themselves, before their tools are loaded.
PRUNER = Catalog("mcp-pruner", __version__, PRUNER_INSTRUCTIONS, {})
TOOLS = Catalog("kimi-proxy-tools", __version__, TOOLS_INSTRUCTIONS, {})


class Offered(Protocol):
    """The tools of a runtime."""

    @property
    def tools(self) -> Mapping[str, AnyTool]: ...
    @property
    def agent_tools(self) -> Mapping[str, AnyTool]: ...


def pruner_catalog(runtime: Offered, observe: Observe = observe_nothing) -> Catalog:
    """Return the pruner's tools."""
    return replace(PRUNER, tools=runtime.tools, observe=observe)


def tools_catalog(runtime: Offered) -> Catalog:
    """Return the agent tools, and recover_text for their markers."""
    tools = {**runtime.agent_tools, "recover_text": runtime.tools["recover_text"]}
    return replace(TOOLS, tools=tools)
