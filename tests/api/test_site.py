"""What a route lets escape becomes an answer, once, in one table."""

from collections.abc import Iterator

import pytest
from starlette.requests import Request
from starlette.responses import Response
from tests.support.api import wire, world

from kimi_proxy.api.guard import Rules
from kimi_proxy.api.routing import Access, PageRoute
from kimi_proxy.assembly.apps import mcp_app
from kimi_proxy.core.errors import InvalidRange, KimiProxyError, PruneIdNotFound, StoreUnavailable, UpstreamError

ERRORS: dict[str, Exception] = {
    "/unknown": PruneIdNotFound("prn_0", "unknown"),
    "/range": InvalidRange("there are 3 lines", 3),
    "/store": StoreUnavailable("the disk is full"),
    "/upstream": UpstreamError("it answered in rhyme"),
    "/ours": KimiProxyError("something of ours"),
    "/bug": ZeroDivisionError("a secret of the inside"),
}


async def fail(request: Request) -> Response:
    raise ERRORS[request.url.path]


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    routes = [PageRoute(path, fail, Access.PEOPLE) for path in ERRORS]
    with world.listening(mcp_app(world.catalog(), Rules(), routes, lambda refusal: None)) as port:
        yield port


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/unknown", 404, "prune_id_not_found"),
        ("/range", 400, "invalid_range"),
        ("/store", 503, "recovery_unavailable"),
        ("/upstream", 502, "upstream_error"),
        ("/ours", 500, "internal_error"),
        ("/bug", 500, "internal_error"),
    ],
)
def test_an_error_has_one_status_and_one_code(port: int, path: str, status: int, code: str):
    heard = wire.ask(port, "GET", path)

    assert (heard.status, heard.error_code) == (status, code)
    assert heard.headers["content-type"] == "application/json"
    assert b"secret" not in heard.body
