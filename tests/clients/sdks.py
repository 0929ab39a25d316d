"""Libraries that clients use. Their imports cost four seconds of CPU, so only a process that tests them pays for it."""

import importlib
from types import ModuleType

LIBRARIES = ("anthropic", "mcp", "openai")


def __getattr__(name: str) -> ModuleType:
    if name in LIBRARIES:
        return importlib.import_module(name)
    raise AttributeError(name)
