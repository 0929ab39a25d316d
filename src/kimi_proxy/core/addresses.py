"""Addresses of the settings: no repr, dump, JSON, error or log holds one, and one function shows one."""

import re
from collections.abc import Iterable
from urllib.parse import urlsplit

from pydantic import SecretStr

HIDDEN = "…"  # stands for the parts of an address that may be a secret
MIN_SECRET_CHARS = 6  # a shorter text is in many others by chance
MIN_SECRET_PATH_CHARS = 16  # `/v1/models` is none

_HOST = r"(?:\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+)(?::\d{1,5})?"
# A user and a password, then one or more hosts, then anything without another @, which a password may hold too.
_ADDRESS = re.compile(rf"([A-Za-z][A-Za-z0-9+.-]*)://(?:[^@]*@)?((?:{_HOST}(?:,{_HOST})*)?)(?=[/?#]|$)([^@]*)")


class Address(SecretStr):
    """The address of a server. It may hold a user, a password or a key; `get_secret_value` is for connecting alone."""

    @property
    def host(self) -> str:
        """Return the name of its host in small letters; "" if there is none."""
        return urlsplit(self.get_secret_value()).hostname or ""


NO_ADDRESS = Address("")


def show_address(address: Address) -> str:
    """Return the scheme, the host and the port of an address, for an admin or its owner: `https://host:443/…`.

    Anything else may be a secret: a password, a key in the query, a token in the path.
    """
    text = address.get_secret_value()
    found = _ADDRESS.fullmatch(text)
    if found is None:
        return HIDDEN if text else ""
    scheme, hosts, rest = found.groups()
    return f"{scheme}://{hosts}" + (f"/{HIDDEN}" if rest.strip("/") else "")


def secrets_in(address: str) -> tuple[str, ...]:
    """Return the parts of an address that may be secrets and that a program may repeat; none of what is no address."""
    if show_address(Address(address)) == address or "://" not in address:
        return ()
    try:
        parts = urlsplit(address)
    except ValueError:
        return (address,)
    path = parts.path if len(parts.path) >= MIN_SECRET_PATH_CHARS else ""
    return tuple(each for each in (address, parts.password, path, parts.query, parts.fragment) if each)


def hide_secrets(text: str, secrets: Iterable[str]) -> str:
    """Return a text with `…` in place of these secrets, the longest first."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= MIN_SECRET_CHARS:
            text = text.replace(secret, HIDDEN)
    return text
