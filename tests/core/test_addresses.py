"""An address of the settings shows its scheme, host and port, and nothing that may be a secret."""

import json
import logging
import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_proxy.core.addresses import HIDDEN, Address, hide_secrets, secrets_in, show_address
from kimi_proxy.core.config.sections import SettingsSection

SECRET = "p4ss-w0rd"


class Server(SettingsSection):
    """A section with an address."""

    url: Address = Address("")


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("", ""),
        ("https://example.org", "https://example.org"),
        ("https://example.org/", "https://example.org"),
        ("http://127.0.0.1:8003/rpc", "http://127.0.0.1:8003/…"),
        (f"https://ann:{SECRET}@example.org/mcp", "https://example.org/…"),
        (f"https://{SECRET}@example.org", "https://example.org"),
        (f"https://example.org?key={SECRET}", "https://example.org/…"),
        (f"https://example.org/{SECRET}", "https://example.org/…"),
        (f"https://example.org#{SECRET}", "https://example.org/…"),
        (
            f"postgresql://ann:{SECRET}@a.example.org:5432,b.example.org/db",
            "postgresql://a.example.org:5432,b.example.org/…",
        ),
        (f"postgresql://ann:{SECRET}@/db?host=/run", "postgresql:///…"),
        (f"postgresql:///db?password={SECRET}", "postgresql:///…"),
        ("http://[::1]:8000/rpc", "http://[::1]:8000/…"),
        ("unix:///dev/log", "unix:///…"),
        # A password with characters that end a host: where it ends cannot be known.
        (f"https://ann:{SECRET}/x@example.org/mcp", "https://example.org/…"),
        (f"https://ann:{SECRET}@x@example.org/mcp", HIDDEN),
        (f"https://ann:9/{SECRET}?@example.org", "https://example.org"),
        (f"ann:{SECRET}@example.org", HIDDEN),
        (SECRET, HIDDEN),
        (f"http://{SECRET} x/", HIDDEN),
    ],
)
def test_an_address_is_shown_by_its_scheme_host_and_port(address: str, shown: str):
    assert show_address(Address(address)) == shown


@given(st.text(alphabet="@:/?#[]%&=,. \\\n", max_size=12), st.text(alphabet="@:/?#[]%&=,. \\\n", max_size=12))
def test_no_password_is_shown_whatever_stands_around_it(before: str, after: str):
    address = Address(f"https://ann:{before}{SECRET}{after}@example.org/mcp")

    assert SECRET not in show_address(address)


def test_an_address_is_in_no_repr_dump_json_error_or_log(caplog: pytest.LogCaptureFixture):
    server = Server.model_validate({"url": f"https://ann:{SECRET}@example.org/{SECRET}"})

    try:
        raise ValueError(f"cannot reach {server.url}, {server!r}")
    except ValueError as e:
        said = "".join(traceback.format_exception(e))
    logging.getLogger("test").warning("cannot reach %s", server.url, extra={"where": server.url})
    logged = "".join(str(vars(record)) + record.getMessage() for record in caplog.records)
    dumped = f"{server.model_dump()} {server.model_dump_json()} {json.dumps(server.model_dump(mode='json'))}"

    assert SECRET not in said + logged + dumped
    assert "example.org" not in said + logged + dumped
    assert server.url.get_secret_value() == f"https://ann:{SECRET}@example.org/{SECRET}"


def test_an_address_that_is_not_set_is_none():
    assert not Server().url
    assert Server.model_validate({"url": "https://example.org"}).url


@pytest.mark.parametrize(
    ("address", "secrets"),
    [
        ("production", ()),
        ("/home/ann/work", ()),
        ("http://localhost:3000", ()),
        ("http://localhost:3000/v1", ("http://localhost:3000/v1",)),
        (f"https://ann:{SECRET}@example.org/mcp", (f"https://ann:{SECRET}@example.org/mcp", SECRET)),
        (f"https://example.org?key={SECRET}", (f"https://example.org?key={SECRET}", f"key={SECRET}")),
        (f"https://example.org/in/{SECRET}", (f"https://example.org/in/{SECRET}",)),
        (f"https://example.org/hooks/x/{SECRET}", (f"https://example.org/hooks/x/{SECRET}", f"/hooks/x/{SECRET}")),
        (f"https://[{SECRET}", (f"https://[{SECRET}",)),
    ],
)
def test_what_may_be_secret_in_an_address_is_known(address: str, secrets: tuple[str, ...]):
    assert secrets_in(address) == secrets


def test_secrets_are_taken_out_of_a_text_the_longest_first_and_short_ones_stay():
    text = f"GET https://ann:{SECRET}@example.org/mcp as ann:{SECRET}, mode x"

    assert hide_secrets(text, (SECRET, f"https://ann:{SECRET}@example.org/mcp", "x")) == "GET … as ann:…, mode x"
