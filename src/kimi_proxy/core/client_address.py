"""The address from which a client asks, also behind proxies that the settings trust."""

import ipaddress
from collections.abc import Iterable, Sequence


def is_network(text: str) -> bool:
    """Return whether a setting names an address or a network, such as 10.0.0.0/8."""
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return True


def client_address(peer: str, forwarded: Iterable[str], trusted: Sequence[str]) -> str:
    """Return the address of a client; `forwarded` are the values of its X-Forwarded-For, in their order.

    What proxies say is read from the end, because each adds the address that it saw. It counts as long as a trusted
    one says it: everything before that is the client's own claim.
    """
    networks = [ipaddress.ip_network(each, strict=False) for each in trusted]
    address = peer
    hops = [hop.strip() for value in forwarded for hop in value.split(",")]
    while hops and _is_in(address, networks):
        try:
            address = str(ipaddress.ip_address(hops.pop()))
        except ValueError:
            return address
    return address


def _is_in(address: str, networks: Sequence[ipaddress.IPv4Network | ipaddress.IPv6Network]) -> bool:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return any((mapped or parsed) in network for network in networks)
