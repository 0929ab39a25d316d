"""`GET /metrics` for Prometheus: on the pruner's port with its token, or on a separate port without one."""

from dataclasses import replace

from starlette.requests import Request
from starlette.responses import Response

from kimi_proxy.api.routing import Access, DescribedRoute, RouteSpec
from kimi_proxy.services.metrics import Metrics
from kimi_proxy.services.store.protocols import Store

TEXT = "text/plain; version=0.0.4"
SPEC = RouteSpec("Show counters and histograms for Prometheus", media_type="text/plain", access=Access.ADMINS)


def route(counted: Metrics, store: Store, access: Access = Access.ADMINS) -> DescribedRoute:
    async def metrics(request: Request) -> Response:
        usage = await store.usage()
        counted.store_originals.set(usage.originals)
        counted.store_bytes.set(usage.bytes_on_disk)
        counted.store_degraded.set(usage.state != "ok")
        counted.store_pool_size.set(usage.pool.size)
        counted.store_pool_idle.set(usage.pool.idle)
        counted.store_pool_waiting.set(usage.pool.waiting)
        return Response(counted.text(), media_type=TEXT)

    return DescribedRoute("GET", "/metrics", metrics, replace(SPEC, access=access))
