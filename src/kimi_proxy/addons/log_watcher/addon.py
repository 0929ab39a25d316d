"""The token counts in the logs of agents, beside those of the proxy."""

from kimi_proxy.addons.log_watcher.log_watcher import LogWatcher
from kimi_proxy.addons.log_watcher.settings import LogWatcherSettings
from kimi_proxy.api.addon import Addon, Built, Given


def build(given: Given) -> Built:
    watcher = given.end(LogWatcher(given.config.of(LogWatcherSettings), given.publish))
    return Built(observers=(watcher,), newer_count=watcher.newer_count)


ADDON = Addon("log_watcher", LogWatcherSettings, build=build)
