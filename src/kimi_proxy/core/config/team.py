"""Team mode: logins, sharing and budgets."""

from collections.abc import Mapping
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from kimi_proxy.core.addresses import NO_ADDRESS, Address
from kimi_proxy.core.config.sections import NAME
from kimi_proxy.core.section import SettingsSection

EACH = "*"
CALLBACK = "/api/login/callback"  # where an issuer sends a browser back to
LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")


class BudgetSettings(SettingsSection):
    """A limit per day or month. `*` gives each person, team or model its own; if omitted, all share one."""

    person: str = ""
    team: str = ""
    model: str = ""
    per: Literal["day", "month"] = "day"
    requests: int = Field(default=0, ge=0)
    usd: float = Field(default=0, ge=0)
    warn_at: float = Field(default=0.8, gt=0, le=1)
    hard: bool = True

    @model_validator(mode="after")
    def _limits_something(self) -> "BudgetSettings":
        if not self.requests and not self.usd:
            raise ValueError("set requests, usd, or both")
        return self


def is_private_address(url: str) -> bool:
    """Return whether nothing between us and this address can read along: https, or this machine."""
    parts = urlsplit(url)
    return bool(parts.hostname) and (
        parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK_HOSTS)
    )


class OidcSettings(SettingsSection):
    """Login to the dashboard at an OpenID Connect issuer. Off without an issuer.

    The client's secret is read from KIMI_PROXY_OIDC_CLIENT_SECRET; a public client has none.
    """

    issuer: Address = NO_ADDRESS
    client_id: str = ""
    public_url: Address = NO_ADDRESS
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    name_claim: str = Field(default="preferred_username", min_length=1)
    team_claim: str = ""
    team_values: tuple[str, ...] = ()
    admin_claim: str = ""
    admin_values: tuple[str, ...] = ()
    new_people: Literal["refuse", "member"] = "refuse"
    session_hours: int = Field(default=12, ge=1, le=720)

    @field_validator("issuer")
    @classmethod
    def _is_issuer(cls, url: Address) -> Address:
        text = url.get_secret_value()
        parts = urlsplit(text)
        if url and (not is_private_address(text) or parts.query or parts.fragment or "@" in parts.netloc):
            raise ValueError("must begin with https:// (http:// only on this machine), without a user and a query")
        return url

    @field_validator("public_url")
    @classmethod
    def _is_origin(cls, url: Address) -> Address:
        text = url.get_secret_value().rstrip("/")
        parts = urlsplit(text)
        is_origin = parts.scheme in ("http", "https") and parts.hostname and parts.path in ("", "/")
        if url and (not is_origin or parts.query or parts.fragment or "@" in parts.netloc):
            raise ValueError("must be the dashboard's address in browsers, such as https://kimi.example.org")
        return Address(text)

    @model_validator(mode="after")
    def _is_whole(self) -> "OidcSettings":
        if self.issuer and not (self.client_id and self.public_url):
            raise ValueError("an issuer also needs client_id and public_url")
        if "openid" not in self.scopes:
            raise ValueError('scopes need "openid"')
        if bool(self.admin_claim) != bool(self.admin_values):
            raise ValueError("set both admin_claim and admin_values, or neither")
        return self

    @property
    def redirect_uri(self) -> str:
        return self.public_url.get_secret_value() + CALLBACK

    @property
    def is_secure(self) -> bool:
        """Return whether browsers reach the dashboard by https."""
        return self.public_url.get_secret_value().startswith("https:")


class TeamSettings(SettingsSection):
    """Off by default: then there is one person, who needs no token on this machine."""

    enabled: bool = False
    share: Literal["person", "team"] = "person"
    audit_days: int = Field(default=365, ge=1, le=36_500)
    token_days: int = Field(default=90, ge=1, le=3660)
    budgets: Mapping[str, BudgetSettings] = Field(default_factory=dict)
    budgets_without_store: Literal["allow", "refuse"] = "refuse"
    oidc: OidcSettings = OidcSettings()

    @model_validator(mode="after")
    def _has_people(self) -> "TeamSettings":
        if self.oidc.issuer and not self.enabled:
            raise ValueError("login through oidc needs team mode: set enabled = true")
        return self

    @field_validator("budgets")
    @classmethod
    def _are_named(cls, given: Mapping[str, BudgetSettings]) -> Mapping[str, BudgetSettings]:
        for name in given:
            if not NAME.fullmatch(name):
                raise ValueError(f"{name!r} is not a budget's name: use letters, digits, '.', '_' and '-'")
        return given
