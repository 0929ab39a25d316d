"""Recordings of conversations, for `kimi-proxy replay`."""

from kimi_proxy.addons.recorder.recorder import Recorder, Recordings, recordings_folder
from kimi_proxy.addons.recorder.settings import RecordSettings
from kimi_proxy.api.addon import Addon, Built, Given, PersonalFiles
from kimi_proxy.core.config import Config


def build(given: Given) -> Built:
    settings = given.config.of(RecordSettings)
    recorder = Recorder(settings, given.config.home, given.models, is_erased=given.is_erased)
    return Built(observers=(given.end(recorder),))


def files(config: Config) -> PersonalFiles:
    return Recordings(recordings_folder(config.of(RecordSettings), config.home))


ADDON = Addon("recorder", RecordSettings, build=build, files=files)
