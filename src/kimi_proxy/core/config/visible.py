"""The settings that people may see: members of a team those in a list, admins and owners all but secrets."""

from collections.abc import Callable, Iterable, Mapping

from pydantic import BaseModel, SecretStr

from kimi_proxy.core.addresses import HIDDEN, Address, show_address
from kimi_proxy.core.json import JsonObject, JsonValue

# Every setting that a member of a team may see anywhere, by the reason why. All others are hidden from members: a new
# setting too, until it stands here. `*` is any name of a table; a table alone stands for the names in it. Members see
# these names, and the addresses of a login, where they are used, and not among the settings.
FOR_MEMBERS: Mapping[str, tuple[str, ...]] = {
    "decides how their tool results are shortened": (
        "sanitizer.enabled",
        "sanitizer.mode",
        "sanitizer.policy",
        "sanitizer.threshold_tokens",
        "sanitizer.preview_length",
        "sanitizer.budget_ms",
        "sanitizer.recover_tool",
        "sanitizer.recover_rounds",
        "sanitizer.change_attested",
        "hooks.enabled",
        "hooks.budget_ms",
    ),
    "decides which larger model may answer them": (
        "sanitizer.routing.fallback_threshold",
        "sanitizer.routing.fallback_models",
        "sanitizer.routing.heavy_duty_fallback",
    ),
    "decides when their conversations are compressed": (
        "compression.automatic",
        "compression.threshold_percentage",
        "compression.keep_exchanges",
        "compression.ask_provider",
        "compression.summary_tokens",
        "compression.cooldown_s",
        "compression.max_in_a_row",
        "compaction.enabled",
        "compaction.threshold_percentage",
        "compaction.max_preserved_messages",
    ),
    "decides what is added to their conversations": (
        "memory.inject",
        "memory.max_bytes",
        "reinjection.enabled",
        "reinjection.threshold",
        "reinjection.max_tokens",
    ),
    "decides how the provider caches their conversations": (
        "cache.marks",
        "cache.anchor",
        "cache.cut_after_change",
        "cache.clear_thinking",
    ),
    "decides which of their own tools their requests leave out": (
        "deferred_tools.clients",
        "deferred_tools.tools",
        "deferred_tools.always",
    ),
    "says where their texts go, and for how long they are kept": (
        "mcp_pruner.backend",
        "mcp_pruner.prune_id_ttl_s",
        "record.enabled",
        "telemetry.content",
        "team.share",
        "team.audit_days",
    ),
    "limits what they may send": (
        "mcp_pruner.max_input_chars",
        "access.max_body_bytes",
        "team.token_days",
    ),
    "is the port that their programs call": ("mcp_pruner.port", "proxy.port"),
    "is the currency of their own figures": ("display.currency", "display.currency_per_usd"),
    "is what their requests ask for": ("providers", "models", "models.*.provider", "models.*.model"),
    "is what their agents call": ("mcp.servers",),
    "is the folder outside of which a server refuses their agents": ("mcp.servers.*.root",),
    "is named by the error of a request that a budget refuses": ("team.budgets",),
    "is in the address to which a browser goes to log in": (
        "team.oidc.issuer",
        "team.oidc.client_id",
        "team.oidc.public_url",
        "team.oidc.scopes",
    ),
}
_FOR_MEMBERS = frozenset(name for names in FOR_MEMBERS.values() for name in names)


def visible_settings(settings: BaseModel, sections: Iterable[str], is_admin: bool) -> JsonObject:
    """Return the settings in force of these sections, as an admin (or an owner) or a member may see them."""

    def may_see(name: str, value: object) -> bool:
        return is_admin or (name in _FOR_MEMBERS and not isinstance(value, Mapping | Address))

    found = _visible(settings, "", may_see)
    return {name: found[name] for name in sections if name in found}


def _visible(section: BaseModel, path: str, may_see: Callable[[str, object], bool]) -> JsonObject:
    shown: JsonObject = {}
    for name in type(section).model_fields:
        value = getattr(section, name)
        place = f"{path}{name}"
        if isinstance(value, BaseModel):
            inner = _visible(value, f"{place}.", may_see)
            shown |= {name: inner} if inner else {}
        elif may_see(place, value):
            shown[name] = show(value)
    return shown


def show(value: object) -> JsonValue:
    """Return a setting's value without its secrets, for an admin or an owner."""
    match value:
        case Address():
            return show_address(value)
        case SecretStr():
            return HIDDEN if value else ""
        case BaseModel():
            return _visible(value, "", lambda name, value: True)
        case Mapping():
            return {str(name): show(one) for name, one in value.items()}
        case tuple():
            return [show(one) for one in value]
        case str() | bool() | int() | float():
            return value
    return HIDDEN  # of an unknown type: it may be a secret
