"""Which headers pass, whatever their names and values are."""

from hypothesis import given
from hypothesis import strategies as st

from kimi_proxy.proxy.headers import CREDENTIALS, to_client, to_provider

HOP_BY_HOP = (
    b"connection",
    b"keep-alive",
    b"proxy-authenticate",
    b"proxy-authorization",
    b"te",
    b"trailer",
    b"transfer-encoding",
    b"upgrade",
)
NAMES = st.sampled_from([*HOP_BY_HOP, *CREDENTIALS, b"x-one", b"x-two", b"host", b"content-length", b"user-agent"])
VALUES = st.sampled_from([b"a", b"x-one, X-Two", b"close", b"Bearer t0ken", b"t0ken", b"Bearer other", b""])
HEADERS = st.lists(st.tuples(NAMES, VALUES), max_size=8)


@given(HEADERS)
def test_what_speaks_of_a_connection_stays_on_it(headers: list[tuple[bytes, bytes]]):
    named = {word.strip().lower() for name, value in headers if name == b"connection" for word in value.split(b",")}

    for passed in (list(to_provider(headers, None, None)), to_client(headers)):
        assert not {name for name, _ in passed} & ({*HOP_BY_HOP} | named)


@given(HEADERS)
def test_our_token_never_reaches_a_provider(headers: list[tuple[bytes, bytes]]):
    passed = [(name, value) for name, value in to_provider(headers, None, "t0ken") if name in CREDENTIALS]

    assert not any(b"t0ken" in value for _, value in passed)


@given(HEADERS)
def test_with_a_key_of_ours_it_is_the_only_one(headers: list[tuple[bytes, bytes]]):
    key = (b"authorization", b"Bearer key")

    assert [header for header in to_provider(headers, key, None) if header[0] in CREDENTIALS] == [key]


def test_the_rest_passes_in_its_order_with_its_repetitions():
    headers = [(b"b", b"1"), (b"a", b"2"), (b"b", b"3"), (b"accept", b"*/*")]

    assert list(to_provider(headers, None, None)) == headers


def test_a_provider_cannot_speak_to_the_browser_in_our_name():
    headers = [
        (b"Content-Type", b"text/plain"),
        (b"Access-Control-Allow-Origin", b"*"),
        (b"Content-Security-Policy", b"x"),
        (b"Clear-Site-Data", b"*"),
        (b"Location", b"http://x"),
        (b"Set-Cookie", b"a=b"),
        (b"Server", b"x"),
        (b"Date", b"x"),
        (b"X-Content-Type-Options", b"x"),
        (b"X-Kimi-Proxy-Model", b"x"),
        (b"X-RateLimit-Limit", b"5"),
    ]

    assert to_client(headers) == [(b"content-type", b"text/plain"), (b"x-ratelimit-limit", b"5")]
