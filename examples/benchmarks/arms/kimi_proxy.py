"""kimi-proxy as an arm of code-compression-bench: copy this file into its `arms/`, and add it to `arms/__init__.py`.

Claude Code talks to kimi-proxy, which talks to the run's usage gateway, where real usage is counted. Start it before
the run, with that gateway as its provider (README.md beside this folder has the lines), and export KIMI_PROXY_BASE_URL.
"""

import json
import os
from typing import ClassVar
from urllib.request import urlopen

from bench.arm import ProxyArm, register

DEFAULT = "http://127.0.0.1:8000"


@register("kimi-proxy")
class KimiProxyArm(ProxyArm):
    name = "kimi-proxy"
    needs: ClassVar = ["KIMI_PROXY_BASE_URL"]

    def model_base_url(self) -> str:
        return os.environ.get("KIMI_PROXY_BASE_URL", DEFAULT).rstrip("/")

    def ready(self) -> tuple[bool, str]:
        """Say whether a kimi-proxy answers that acts: one that only observes would measure the baseline."""
        ok, reason = super().ready()
        if not ok:
            return ok, reason
        try:
            health = _get(f"{self.model_base_url()}/health")
            stats = _get(f"{self.model_base_url()}/api/sanitizer/stats")
        except (OSError, ValueError) as e:
            return False, f"no kimi-proxy answers at {self.model_base_url()}: {e}"
        if health.get("server") != "kimi-proxy":
            return False, f"{self.model_base_url()} is not kimi-proxy"
        if stats.get("mode") != "on" or not stats.get("enabled"):
            return False, "kimi-proxy is switched off, or only observes"
        return True, "ok"


def _get(url: str) -> dict[str, object]:
    with urlopen(url, timeout=5) as answer:  # noqa: S310 - of this machine
        found = json.load(answer)
    return found if isinstance(found, dict) else {}
