"""Several servers with one PostgreSQL: what they add to a request, and what millions of originals cost."""

import asyncio
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Sequence
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from pathlib import Path

import psycopg
from timing import table

sys.path.append(str(Path(__file__).parents[2]))

from tests.conversations import Assistant, Call, Item, Result, User, body
from tests.outputs import pytest_log
from tests.replicas.fleet import PATH, SETTINGS, Provider, Replica
from tests.services.store.making import an_original
from tests.services.store.postgres_server import controlled, url_of

from kimi_proxy.core.chat import Wire
from kimi_proxy.services.store.postgres.store import PostgresStore

REQUESTS = int(os.environ.get("KIMI_PROXY_BENCH_REQUESTS", "30"))  # of 100 KB, for each of the layouts
PEOPLE, PER_MINUTE = 200, 5
SECONDS = int(os.environ.get("KIMI_PROXY_BENCH_SECONDS", "30"))  # of a team's traffic
ORIGINALS = int(os.environ.get("KIMI_PROXY_BENCH_ORIGINALS", "10000000"))
AT_ONCE = 500_000  # generated in one statement
EXPIRED = 20_000
TTL_S = 604_800.0
LARGE = ("shared_buffers=1GB", "max_wal_size=16GB", "checkpoint_timeout=1h")  # so that generating rows takes minutes

_FILL = """
WITH filled AS (
  INSERT INTO text (scope, hash, frame)
  SELECT 'local', sha256(convert_to('t' || n, 'UTF8')), decode(repeat(md5(n::text), 8), 'hex')
  FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS n RETURNING seq, hash)
INSERT INTO record (scope, id, key, text, size, about, created, last_used)
SELECT 'local', convert_to('gen_' || encode(substr(hash, 1, 10), 'hex'), 'UTF8'), hash, seq, 1300, '{}',
       %(now)s, %(now)s FROM filled
"""


def conversation(name: str, chars: int) -> bytes:
    """Return a request with one new tool result of about so many characters."""
    text = pytest_log(chars // 80, sum(name.encode())).text[:chars]
    items: list[Item] = [User(f"{name}: why does it fail?"), Assistant("", (Call("call_1"),))]
    return body(Wire.CHAT, [*items, Result("call_1", f"{name}\n{text}")])


def post(url: str, raw: bytes) -> float:
    """Return the milliseconds that an answer took, on a connection of its own."""
    connection = HTTPConnection("127.0.0.1", int(url.rpartition(":")[2]), timeout=120)
    with closing(connection):
        began = time.perf_counter()
        connection.request("POST", PATH, raw, {"content-type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        took = (time.perf_counter() - began) * 1000
    assert answer.status == 200, answer.status
    return took


def one_after_the_other(urls: Sequence[str], name: str) -> list[float]:
    for at in range(2 * len(urls)):
        post(urls[at % len(urls)], conversation(f"{name} warm {at}", 100_000))
    return [post(urls[at % len(urls)], conversation(f"{name} {at}", 100_000)) for at in range(REQUESTS)]


def as_a_team(urls: Sequence[str], name: str) -> list[float]:
    """Return the milliseconds of requests that come as those of the team do, each at its time."""
    gap, took = 60 / (PEOPLE * PER_MINUTE), []
    bodies = [conversation(f"{name} {number}", 20_000) for number in range(round(SECONDS / gap))]

    def ask(number: int) -> None:
        took.append(post(urls[number % len(urls)], bodies[number]))

    threads = []
    began = time.perf_counter()
    for number in range(len(bodies)):
        time.sleep(max(0.0, began + number * gap - time.perf_counter()))
        threads.append(threading.Thread(target=ask, args=(number,)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    return took


def servers() -> None:
    direct = "no proxy"
    rows = []
    with ExitStack() as alive, tempfile.TemporaryDirectory() as folder:
        home, postgres, provider = Path(folder), alive.enter_context(controlled()), Provider()
        alive.callback(provider.close)
        settings = home / "config.toml"
        settings.write_text(SETTINGS.format(port=provider.port, balancer=1))
        own = f"http://127.0.0.1:{provider.port}"
        layouts = {direct: [], "SQLite, 1 server": [""], "PostgreSQL, 1 server": [postgres.url]}
        layouts["PostgreSQL, 3 servers"] = [postgres.url] * 3
        base: dict[str, float] = {}
        for name, urls in layouts.items():
            with ExitStack() as started:
                replicas = [Replica(home / f"{name} {at}", settings, url) for at, url in enumerate(urls)]
                for replica in replicas:
                    started.callback(replica.close)
                    replica.start()
                for replica in replicas:
                    replica.wait()
                asked = [replica.url for replica in replicas] or [own]
                long, team = one_after_the_other(asked, name), as_a_team(asked, name)
            figures = {"long": statistics.median(long), "team": statistics.median(team)}
            base = base or figures
            p99 = sorted(team)[int(0.99 * (len(team) - 1))] - base["team"]
            added = [f"{figures[key] - base[key]:.1f}" for key in ("long", "team")]
            rows.append([name, f"{figures['long']:.1f}", *added, f"{p99:.1f}", len(team)])
    head = ("layout", "100 KB result, ms", "added, ms", f"{PEOPLE} people: added, ms", "p99 added, ms", "requests")
    table(f"Servers, on {os.cpu_count()} cores with a load of {os.getloadavg()[0]:.1f}", head, rows)


async def originals(url: str) -> None:
    store = await PostgresStore.open(url, ttl_s=TTL_S, max_bytes=1 << 50, timeout_s=120.0)
    try:
        real = [an_original(pytest_log(300, n).text.encode()) for n in range(50)]
        began = time.perf_counter()
        with psycopg.connect(url, autocommit=True) as connection:
            for first in range(0, ORIGINALS, AT_ONCE):
                last = min(ORIGINALS, first + AT_ONCE) - 1
                connection.execute(_FILL.encode(), {"first": first, "last": last, "now": time.time()})
                for original in real[first * 50 // ORIGINALS : (last + 1) * 50 // ORIGINALS]:
                    await store.originals.keep(original)
            connection.execute("ANALYZE")
            filled = time.perf_counter() - began
            size = connection.execute("SELECT pg_database_size(current_database())").fetchone()
            reads = [await _timed(store.originals.get("local", one.id)) for one in real * 4]
            keeps = [await _timed(store.originals.keep(an_original(os.urandom(20_000)))) for _ in range(100)]
            connection.execute(
                "UPDATE record SET last_used = 0 WHERE seq IN (SELECT seq FROM record ORDER BY seq LIMIT %s)",
                (EXPIRED,),
            )
        sweeps, gone = [], 1
        while gone:
            took = time.perf_counter()
            gone = await store.originals.expire()
            sweeps.append((time.perf_counter() - took) * 1000)
        usage = await _timed(store.usage())
    finally:
        await store.close()
    rows = [
        ["filled, s", f"{filled:.0f}", ""],
        ["size, GB", f"{int(str(size[0] if size else 0)) / 1e9:.1f}", ""],
        *(
            [name, f"{statistics.median(values):.1f}", f"{max(values):.1f}"]
            for name, values in (
                ("recover by id, ms", reads),
                ("keep 20 KB, ms", keeps),
                ("a batch of the sweep, ms", sweeps),
            )
        ),
        ["how full it is, ms", f"{usage:.1f}", ""],
    ]
    table(f"{ORIGINALS:,} originals, {EXPIRED:,} of them expired", ("", "median", "most"), rows)


async def _timed(work: Awaitable[object]) -> float:
    began = time.perf_counter()
    await work
    return (time.perf_counter() - began) * 1000


def main() -> None:
    if REQUESTS:
        servers()
    with controlled(*LARGE) as postgres, tempfile.TemporaryDirectory() as home:
        asyncio.run(originals(url_of(postgres.url, Path(home))))
