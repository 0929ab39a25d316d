"""Libraries that clients use. Their imports cost four seconds of CPU, so only a process that tests them pays for it."""

import importlib
import warnings
from types import ModuleType

LIBRARIES = {"anthropic": "anthropic", "genai": "google.genai", "mcp": "mcp", "ollama": "ollama", "openai": "openai"}


def __getattr__(name: str) -> ModuleType:
    if name in LIBRARIES:
        with warnings.catch_warnings(action="ignore"):  # of their own code
            return importlib.import_module(LIBRARIES[name])
    raise AttributeError(name)
