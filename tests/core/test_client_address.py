"""Whose address counts behind proxies."""

import pytest

from kimi_proxy.core.client_address import client_address

PROXIES = ("10.0.0.0/8", "::1")


@pytest.mark.parametrize(
    ("peer", "forwarded", "address"),
    [
        ("203.0.113.9", ["198.51.100.7"], "203.0.113.9"),
        ("10.0.0.2", [], "10.0.0.2"),
        ("10.0.0.2", ["198.51.100.7"], "198.51.100.7"),
        ("::ffff:10.0.0.2", ["198.51.100.7"], "198.51.100.7"),
        ("10.0.0.2", ["6.6.6.6, 198.51.100.7, 10.0.0.3"], "198.51.100.7"),
        ("10.0.0.2", ["6.6.6.6", "198.51.100.7"], "198.51.100.7"),
        ("10.0.0.2", ["198.51.100.7, unknown"], "10.0.0.2"),
        ("::1", ["2001:db8::7"], "2001:db8::7"),
        ("", ["198.51.100.7"], ""),
    ],
)
def test_only_what_a_trusted_proxy_says_counts(peer: str, forwarded: list[str], address: str):
    assert client_address(peer, forwarded, PROXIES) == address
