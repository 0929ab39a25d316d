"""More clients than usual: streams at once, an overload, and a stop in the middle of it all."""

import asyncio
import contextlib
import os
import signal
import time
import urllib.request

import relay
import uvloop
from timing import median, p95, table

STREAMS, CHUNKS = 200, 100
OVERLOAD = 3_000  # connections that ask at once; a server takes 1,000
STOPPED_STREAMS = 20
FAST_STREAMS, FAST_CHUNKS, HEALTH_CALLS = (
    (30, 100),
    3_000_000,
    10,
)  # as many chunks as they can take, until they are left
READY = b"HTTP/1.1 200"


def main() -> None:
    with relay.provider() as direct_url:
        with relay.kimi_proxy(direct_url) as (base_url, pid):
            rows = uvloop.run(_loaded(base_url))
            rows.append(("memory afterwards", f"{relay.rss_mb(pid):.0f} MB"))
        with contextlib.suppress(ProcessLookupError), relay.kimi_proxy(direct_url) as (base_url, pid):
            rows.append((f"stop with {STOPPED_STREAMS} streams", f"{uvloop.run(_stopped(base_url, pid)):.1f} s"))
    table("Load", ("what", "measured"), rows)


async def _loaded(base_url: str) -> list[tuple[str, str]]:
    streams = await asyncio.gather(*(_stream(base_url) for _ in range(STREAMS)))
    took = [ms for ms in streams if ms is not None]
    answers = await asyncio.gather(*(_status(base_url) for _ in range(OVERLOAD)))
    began = time.perf_counter()
    while await _status(base_url) != "answered":
        pass
    recovered = time.perf_counter() - began
    kinds = {kind: answers.count(kind) for kind in sorted(set(answers))}
    fast = [
        (f"/health beside {n} fast streams", f"median {await _health_beside(base_url, n):.0f} ms") for n in FAST_STREAMS
    ]
    return [
        *fast,
        (f"{STREAMS} streams at once", f"{STREAMS - len(took)} failed, p95 {p95(took):.0f} ms"),
        (f"{OVERLOAD} connections at once", ", ".join(f"{count} {kind}" for kind, count in kinds.items())),
        ("answers again after", f"{recovered:.1f} s"),
    ]


async def _health_beside(base_url: str, streams: int) -> float:
    """Return the median milliseconds of a health check while streams come as fast as they are read."""
    readers = [asyncio.create_task(_read_fast(base_url)) for _ in range(streams)]
    await asyncio.sleep(2)
    took = []
    for _ in range(HEALTH_CALLS):
        began = time.perf_counter()
        await asyncio.to_thread(urllib.request.urlopen, base_url.removesuffix("/v1") + "/health")
        took.append((time.perf_counter() - began) * 1000)
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*readers, return_exceptions=True)
    return median(took)


async def _read_fast(base_url: str) -> None:
    async with relay.Line(base_url) as line:
        line._writer.write(line.request(relay.stream_body(FAST_CHUNKS).replace(b'"stream"', b'"fast":true,"stream"')))
        while await line._reader.read(1 << 20):
            pass


async def _stream(base_url: str) -> float | None:
    try:
        async with asyncio.timeout(120), relay.Line(base_url) as line:
            return await line.ask(line.request(relay.stream_body(CHUNKS)))
    except (OSError, asyncio.IncompleteReadError, SystemExit):
        return None


async def _status(base_url: str) -> str:
    """Return how a short request fared: answered, refused with a time to come back, or otherwise."""
    line = relay.Line(base_url)
    try:
        async with asyncio.timeout(60):
            await line.__aenter__()
            line._writer.write(line.request(relay.body(1_000)))
            head = await line._reader.readuntil(b"\r\n\r\n")
    except (OSError, asyncio.IncompleteReadError):
        return "dropped"
    finally:
        with contextlib.suppress(AttributeError):
            line._writer.close()
    if head.startswith(READY):
        return "answered"
    is_polite = head.startswith(b"HTTP/1.1 503") and b"retry-after:" in head.lower()
    return "told to come back" if is_polite else "refused otherwise"


async def _stopped(base_url: str, pid: int) -> float:
    """Return the seconds that a server takes to stop with streams under way."""
    streams = [asyncio.create_task(_long_stream(base_url)) for _ in range(STOPPED_STREAMS)]
    await asyncio.sleep(2)
    began = time.perf_counter()
    os.kill(pid, signal.SIGTERM)
    await asyncio.gather(*streams)
    return time.perf_counter() - began


async def _long_stream(base_url: str) -> None:
    with contextlib.suppress(OSError, asyncio.IncompleteReadError, SystemExit):
        async with relay.Line(base_url) as line:
            await line.ask(line.request(relay.stream_body(60_000)))
