"""Settings of earlier versions that no longer exist: they are ignored, with a warning that says what to do instead."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

_KEEP_WARM = "kimi-proxy sends no requests of its own to keep a prompt cache warm; remove the setting"

_RESPONSES_SOCKET = "clients of the Responses API send POST requests, Codex by itself; remove the setting"
_REPORTS = "lists, reports and exports are read from the database itself; remove the setting"
_OBJECTS = "originals are in the database; remove the setting (`kimi-proxy start` refuses a store with texts elsewhere)"
_ENCRYPTION = "texts are stored as they are: encrypt the disk or the database (docs/team-deployment.md); unset it"
_AUDIT_EXPORT = "the audit log is in the store; pipe `kimi-proxy team audit-log` to your log system; remove the setting"
_UPGRADE = "kimi-proxy asks no package index; use `pip index versions kimi-proxy`; remove the section"

# A setting, or a whole section → what to do instead. Settings with the same advice share a warning.
REMOVED: Mapping[str, str] = {
    "cache.keep_warm": _KEEP_WARM,
    "cache.keep_warm_pings": _KEEP_WARM,
    "cache.keep_warm_usd_per_day": _KEEP_WARM,
    "cache.keep_warm_plans": _KEEP_WARM,
    "proxy.responses_websocket": _RESPONSES_SOCKET,
    "store.report_url": _REPORTS,
    "team.audit_file": _AUDIT_EXPORT,
    "team.audit_syslog": _AUDIT_EXPORT,
    "upgrade": _UPGRADE,
    "store.key_command": _ENCRYPTION,
    "store.object_storage": _OBJECTS,
    "store.object_endpoint": _OBJECTS,
    "store.object_min_bytes": _OBJECTS,
}
REMOVED_VARIABLES: Mapping[str, str] = {
    "KIMI_PROXY_DATABASE_REPORT_URL": _REPORTS,
    "KIMI_PROXY_STORE_KEY": _ENCRYPTION,
}


@dataclass(frozen=True, slots=True)
class IgnoredSettings:
    """Settings that have no effect, and what to do instead."""

    names: str
    advice: str

    @property
    def warning(self) -> str:
        return f"ignored: {self.names}: {self.advice}"


def without_removed(
    settings: Mapping[str, object], env: Mapping[str, str], where: Callable[[str], str]
) -> tuple[dict[str, object], tuple[IgnoredSettings, ...]]:
    """Return the settings that exist, and those that no longer do; `where` says where a setting was found."""
    left = dict(settings)
    found: dict[str, list[str]] = {}
    for name, advice in REMOVED.items():
        if _take_out(left, name.split(".")):
            found.setdefault(advice, []).append(f"{name}{where(name)}")
    for name, advice in REMOVED_VARIABLES.items():
        if env.get(name):
            found.setdefault(advice, []).append(name)
    return left, tuple(IgnoredSettings(", ".join(names), advice) for advice, names in found.items())


def _take_out(settings: dict[str, object], path: list[str]) -> bool:
    """Remove one setting, in copies of the tables around it; return whether it was there."""
    *sections, key = path
    table = settings
    for name in sections:
        inner = table.get(name)
        if not isinstance(inner, Mapping):
            return False
        table[name] = inner = dict(inner)
        table = inner
    return table.pop(key, None) is not None
