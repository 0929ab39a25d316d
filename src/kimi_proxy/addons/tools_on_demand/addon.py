"""Tools on demand: descriptions of rarely used tools are left out, and found when the model needs them."""

from kimi_proxy.addons.tools_on_demand.settings import DeferralSettings
from kimi_proxy.addons.tools_on_demand.stage import NativeSearch, ToolDeferral
from kimi_proxy.api.addon import Addon, Built, Given


def build(given: Given) -> Built:
    stage = ToolDeferral(
        given.config.of(DeferralSettings),
        given.lists["deferred_tools.tools"],
        given.facts,
        given.now,
        NativeSearch(given.models, given.memory),
    )
    return Built(stage=stage.change)


ADDON = Addon("tools_on_demand", DeferralSettings, build=build)
