"""Several servers with one PostgreSQL: what they add to a request, and what millions of originals cost.

Some figures have a bar, and the last table says which of them held. On a quiet machine with two cores it takes twelve
minutes, and 10 GB of disk below /tmp while it runs. The bare relay shows what HTTP alone costs on this machine.
"""

import asyncio
import hashlib
import json
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection
from pathlib import Path

import psycopg
from relay import bare_relay
from timing import table

sys.path.append(str(Path(__file__).parents[2]))

from tests.support.conversations import Assistant, Call, Item, Result, User, body
from tests.support.outputs import pytest_log
from tests.support.replicas.fleet import PATH, Provider, Replica
from tests.support.services.store.making import an_original
from tests.support.services.store.postgres_server import controlled, url_of

from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.chat import Wire
from kimi_proxy.team.store.postgres.store import PostgresStore

REQUESTS = int(os.environ.get("KIMI_PROXY_BENCH_REQUESTS", "60"))  # of 100 KB, for each of the layouts
PEOPLE, PER_MINUTE = 200, 5
GAP_S = 60 / (PEOPLE * PER_MINUTE)
SECONDS = int(os.environ.get("KIMI_PROXY_BENCH_SECONDS", "24"))  # of a team's traffic
WARM_S = 14  # everybody's conversation has begun by then, and worker processes have started
SETTLE_S = 2.5  # what a request leaves to be written comes a second after it
TURNS = 2  # of the conversation of a short request at first
SERVER_TOKEN = "the-server's-own-token"
TEAM_SETTINGS = """
[team]
enabled = true
[providers.openai-evil]
type = "openai"
base_url = "http://127.0.0.1:{port}/v1"
"""
ORIGINALS = int(os.environ.get("KIMI_PROXY_BENCH_ORIGINALS", "10000000"))
KEPT, READS = 100, 500
EXPIRED = ORIGINALS // 10  # the first ones, each last used at a time of its own
TTL_S = 604_800.0
# Rows that are added after a TRUNCATE need no log of their own then, and indexes are made by two processes.
LARGE = (
    *("shared_buffers=1GB", "maintenance_work_mem=1GB", "max_wal_size=16GB", "checkpoint_timeout=1h"),
    *("wal_level=minimal", "max_wal_senders=0"),
)

DIRECT, BARE, SQLITE = "no proxy", "a bare relay", "SQLite, 1 server"
ONE, THREE = "PostgreSQL, 1 server", "PostgreSQL, 3 servers"
BEYOND_SQLITE_MS, TEAM_P99_MS, RECOVER_MS, SWEEP_MS = 5.0, 150.0, 10.0, 100.0
SHORT_CPU_MS, SHORT_DATABASE_MS, CONNECTIONS = 5.0, 2.0, 28

# Texts of 128 characters, in a zstd frame of one block that is not compressed.
_TEXTS = """
INSERT INTO text (seq, scope, hash, frame) OVERRIDING SYSTEM VALUE
  SELECT n, 'local', sha256(raw), '\\x28b52ffd2080010400'::bytea || raw
  FROM generate_series(1, %(rows)s) AS n, LATERAL (SELECT convert_to(repeat(md5(n::text), 4), 'UTF8') AS raw) AS made
"""
_RECORDS = """
INSERT INTO record (seq, scope, id, key, text, size, about, created, last_used) OVERRIDING SYSTEM VALUE
  SELECT n, 'local', convert_to('gen_' || md5(n::text), 'UTF8'), sha256(int8send(n)), n, 1300, '{}', %(now)s,
    CASE WHEN n <= %(expired)s THEN n / 1e6 ELSE %(now)s END
  FROM generate_series(1, %(rows)s) AS n
"""
# Each with what makes it again. Primary keys come before the references to them.
_CONSTRAINTS = """
SELECT conrelid::regclass::text, 'ALTER TABLE ' || conrelid::regclass || ' DROP CONSTRAINT ' || conname,
  'ALTER TABLE ' || conrelid::regclass || ' ADD CONSTRAINT ' || conname || ' ' || pg_get_constraintdef(oid)
    || CASE contype WHEN 'f' THEN ' NOT VALID' ELSE '' END
FROM pg_constraint WHERE conrelid IN ('text'::regclass, 'record'::regclass) ORDER BY contype = 'f'
"""
_INDEXES = """
SELECT indrelid::regclass::text, 'DROP INDEX ' || indexrelid::regclass, pg_get_indexdef(indexrelid)
FROM pg_index WHERE indrelid IN ('text'::regclass, 'record'::regclass)
"""


@dataclass(frozen=True, slots=True)
class Layout:
    """Servers that share a store, or what they are compared with."""

    name: str
    urls: Sequence[str]
    pids: Sequence[int] = ()
    database: str = ""
    tokens: Sequence[str] = ("",)  # of its people

    def url_of(self, number: int) -> str:
        return self.urls[number % len(self.urls)]

    def token_of(self, number: int) -> str:
        return self.tokens[number % len(self.tokens)]


@dataclass(frozen=True, slots=True)
class Cost:
    """What a layout has used so far."""

    servers_s: float
    database_s: float
    size: int
    connections: int


def long_request(name: str, number: int, chars: int) -> bytes:
    """Return a request with one new tool result of about so many characters, the same for every layout but its name."""
    text = pytest_log(chars // 80, number).text[:chars]
    items: list[Item] = [User(f"{name} {number}: why does it fail?"), Assistant("", (Call("call_1"),))]
    return body(Wire.CHAT, [*items, Result("call_1", f"{name} {number}\n{text}")])


def short_request(name: str, number: int) -> bytes:
    """Return a request of a conversation that goes on, one for each person; its new result has 450 characters."""
    items: list[Item] = []
    for turn in range(TURNS + number // PEOPLE):
        call = f"call_{number % PEOPLE}_{turn}"
        text = "".join(f"src/module_{turn}.py:{row}: found\n" for row in range(18))
        items += [User(f"{name}: step {turn}?"), Assistant("", (Call(call),)), Result(call, text)]
    return body(Wire.CHAT, items)


def post(url: str, raw: bytes, token: str = "", path: str = PATH) -> tuple[float, bytes]:
    """Return the milliseconds that an answer took, on a connection of its own, and the answer."""
    headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {token}"} if token else {})
    with closing(HTTPConnection("127.0.0.1", int(url.rpartition(":")[2]), timeout=120)) as connection:
        began = time.perf_counter()
        connection.request("POST", path, raw, headers)
        answer = connection.getresponse()
        said = answer.read()
        took = (time.perf_counter() - began) * 1000
    assert answer.status in (200, 201), (answer.status, said)
    return took, said


def one_after_the_other(layouts: Sequence[Layout]) -> dict[str, float]:
    """Return the median milliseconds of long requests; the layouts take turns, so that all see the same machine."""
    took: dict[str, list[float]] = {layout.name: [] for layout in layouts}
    for number in range(-6, REQUESTS):
        for layout in layouts:
            raw = long_request(layout.name, number, 100_000)
            spent, _ = post(layout.url_of(number), raw, layout.token_of(number))
            if number >= 0:  # the first ones only warm the servers up
                took[layout.name].append(spent)
    return {name: statistics.median(each) for name, each in took.items()}


def as_a_team(layout: Layout, bodies: Sequence[bytes], first: int = 0) -> list[float]:
    """Return the milliseconds of requests that come as those of the team do, each at its time."""
    took: list[float] = []

    def ask(number: int) -> None:
        spent, _ = post(layout.url_of(number), bodies[number - first], layout.token_of(number))
        took.append(spent)

    threads = []
    began = time.perf_counter()
    for number in range(first, first + len(bodies)):
        time.sleep(max(0.0, began + (number - first) * GAP_S - time.perf_counter()))
        threads.append(threading.Thread(target=ask, args=(number,)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    return took


def measure(layout: Layout, make: Callable[[int], bytes]) -> tuple[list[float], Sequence[object]]:
    """Return the milliseconds of a team's requests and what each cost, once all conversations and workers are there."""
    warming, counted = round(WARM_S / GAP_S), round(SECONDS / GAP_S)
    bodies = [make(number) for number in range(warming + counted)]
    as_a_team(layout, bodies[:warming])
    time.sleep(SETTLE_S)
    before = cost(layout)
    took = as_a_team(layout, bodies[warming:], first=warming)
    time.sleep(SETTLE_S)
    after = cost(layout)
    figures = (after.servers_s - before.servers_s, after.database_s - before.database_s)
    each = [f"{seconds * 1000 / counted:.1f}" for seconds in figures]
    return took, [*each, f"{(after.size - before.size) / counted:.0f}", after.connections]


def cpu_s(roots: Sequence[int]) -> float:
    """Return the CPU seconds of processes and all below them, ended ones included."""
    parents, spent = dict[int, int](), dict[int, float]()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        parents[int(stat.parent.name)] = int(fields[1])
        spent[int(stat.parent.name)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    family = set(roots)
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(spent.get(pid, 0.0) for pid in family)


def cost(layout: Layout) -> Cost:
    """Return what a layout has used so far, of a machine and of PostgreSQL."""
    if not layout.database:
        return Cost(cpu_s(layout.pids), 0.0, 0, 0)
    with psycopg.connect(layout.database) as connection:
        backend, size, connections = connection.execute(
            """SELECT pg_backend_pid(), pg_database_size(current_database()),
                 (SELECT count(*) FROM pg_stat_activity
                  WHERE application_name = 'kimi-proxy' AND datname = current_database())"""
        ).fetchone() or (0, 0, 0)
        return Cost(cpu_s(layout.pids), postgres_s(backend), size, connections)


def postgres_s(backend: int) -> float:
    """Return the CPU seconds of the PostgreSQL that a connection's process belongs to."""
    return cpu_s([int(Path(f"/proc/{backend}/stat").read_text().rpartition(")")[2].split()[1])])


@contextmanager
def running(home: Path) -> Iterator[Sequence[Layout]]:
    """Start every layout beside the others."""
    with ExitStack() as alive:
        postgres, provider = alive.enter_context(controlled()), Provider()
        alive.callback(provider.close)
        direct = f"http://127.0.0.1:{provider.port}"
        bare, bare_pid = alive.enter_context(bare_relay(f"{direct}/v1"))
        settings = home / "config.toml"
        settings.write_text(TEAM_SETTINGS.format(port=provider.port))
        layouts = [Layout(DIRECT, [direct]), Layout(BARE, [bare.removesuffix("/v1")], [bare_pid])]
        for name, count in {SQLITE: 1, ONE: 1, THREE: 3}.items():
            database = "" if name == SQLITE else _database(postgres.url, f"servers_{count}")
            env = {"KIMI_PROXY_TOKEN": SERVER_TOKEN}
            replicas = [Replica(home / f"{name} {at}", settings, database, env) for at in range(count)]
            for replica in replicas:
                alive.callback(replica.close)
                replica.start()
            for replica in replicas:
                replica.wait()
            urls, pids = [replica.url for replica in replicas], [replica.pid for replica in replicas]
            layouts.append(Layout(name, urls, pids, database, [_person(urls[0], at) for at in range(PEOPLE)]))
        yield layouts


def _database(url: str, name: str) -> str:
    """Return the address of a new database of the server at `url`."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return url.replace("/postgres?", f"/{name}?")


def _person(url: str, number: int) -> str:
    """Return the token of a new person."""
    _, said = post(url, json.dumps({"name": f"person-{number}"}).encode(), SERVER_TOKEN, "/api/team/people")
    return str(json.loads(said)["token"])


def servers() -> list[Sequence[object]]:
    """Measure the layouts beside each other; return the figures that have a bar."""
    with tempfile.TemporaryDirectory() as folder, running(Path(folder)) as layouts:
        long = one_after_the_other(layouts)
        short = {one.name: measure(one, partial(short_request, one.name)) for one in layouts}
        team = {
            one.name: measure(one, lambda number, name=one.name: long_request(name, number, 20_000)) for one in layouts
        }
    for title, found in (("short request", short), ("request with a new result of 20 KB", team)):
        _show_cost(title, found)
    middle = {name: statistics.median(took) for name, (took, _) in team.items()}
    p99 = {name: _spread(took)[1] - middle[DIRECT] for name, (took, _) in team.items()}
    rows = [
        [
            *(name, f"{long[name]:.1f}", f"{long[name] - long[DIRECT]:.1f}"),
            *(f"{middle[name] - middle[DIRECT]:.1f}", f"{p99[name]:.1f}", len(team[name][0])),
        ]
        for name in long
    ]
    head = ("layout", "100 KB result, ms", "added, ms", f"{PEOPLE} people: added, ms", "p99 added, ms", "requests")
    table(f"Servers, on {os.cpu_count()} cores with a load of {os.getloadavg()[0]:.1f}", head, rows)
    cpu, database_cpu, _, connections = map(float, map(str, short[THREE][1]))
    return [
        _bar("100 KB, median: PostgreSQL beyond SQLite, ms", long[ONE] - long[SQLITE], BEYOND_SQLITE_MS),
        *(_bar(f"{PEOPLE} people, p99 added, {name}, ms", p99[name], TEAM_P99_MS) for name in (ONE, THREE)),
        _bar("short request, CPU of 3 servers, ms", cpu, SHORT_CPU_MS),
        _bar("short request, CPU of PostgreSQL, ms", database_cpu, SHORT_DATABASE_MS),
        _bar("connections of 3 servers", connections, CONNECTIONS),
        ["100 KB, median: 3 servers against 1, ms", f"{long[THREE] - long[ONE]:+.1f}", "", ""],
    ]


def _show_cost(title: str, found: Mapping[str, tuple[Sequence[float], Sequence[object]]]) -> None:
    direct = statistics.median(found[DIRECT][0])
    rows = [
        [name, *costs, *(f"{value - direct:.1f}" for value in _spread(took)[:2])]
        for name, (took, costs) in found.items()
    ]
    head = (
        "layout",
        "CPU of servers, ms",
        "of PostgreSQL, ms",
        "bytes in PostgreSQL",
        "connections",
        "added, ms",
        "p99",
    )
    table(f"For each {title}", head, rows)


def fill(url: str, rows: int) -> None:
    """Add generated originals, two tables at a time; indexes are made afterwards, which is several times as fast."""
    with psycopg.connect(url, autocommit=True) as connection:
        named = connection.execute(_CONSTRAINTS.encode()).fetchall()
        for _, drop, _ in reversed(named):
            connection.execute(str(drop).encode())
        indexes = connection.execute(_INDEXES.encode()).fetchall()
        for _, drop, _ in indexes:
            connection.execute(str(drop).encode())
        made_again = [(str(one[0]), str(one[2])) for one in (*named, *indexes)]
        later = [statement for _, statement in made_again if "FOREIGN KEY" in statement]

        def load(statement: str, name: str) -> None:
            with psycopg.connect(url) as own:
                own.execute(f"TRUNCATE {name}".encode())
                own.execute(statement.encode(), {"rows": rows, "now": time.time(), "expired": EXPIRED})
                own.execute(f"SELECT setval(pg_get_serial_sequence('{name}', 'seq'), {rows})".encode())
            with psycopg.connect(url, autocommit=True) as own:
                for of, statement in made_again:
                    if of.split(".")[-1] == name and statement not in later:
                        own.execute(statement.encode())
                own.execute(f"VACUUM (ANALYZE) {name}".encode())

        with ThreadPoolExecutor(2) as both:
            for done in [both.submit(load, _TEXTS, "text"), both.submit(load, _RECORDS, "record")]:
                done.result()
        for statement in later:
            connection.execute(statement.encode())
        connection.execute("UPDATE kept SET originals = %s, bytes = %s WHERE shard = 0", (rows, 1300 * rows))


async def originals(url: str) -> list[Sequence[object]]:
    """Fill the store, read, keep and sweep; return the figures that have a bar."""
    store = await PostgresStore.open(url, ttl_s=TTL_S, max_bytes=1 << 50, timeout_s=120.0)
    try:
        await store.usage()  # the tables are there now
        began = time.perf_counter()
        await asyncio.to_thread(fill, url, ORIGINALS)
        filled = time.perf_counter() - began
        keeps = [await _timed(store.originals.keep(an_original(os.urandom(20_000)))) for _ in range(KEPT)]
        chosen = random.Random(7).choices(range(EXPIRED + 1, ORIGINALS + 1), k=READS)  # from all over the table
        connection = psycopg.connect(url, autocommit=True)
        backend = connection.info.backend_pid
        before = postgres_s(backend)
        reads = [await _timed(store.originals.get(LOCAL, id)) for id in map(_generated, chosen)]
        read = postgres_s(backend) - before
        size = connection.execute("SELECT pg_database_size(current_database())").fetchone()
        began, sweeps, before = time.perf_counter(), list[float](), postgres_s(backend)
        while await asyncio.to_thread(_has_expired, url):
            gone = 1
            while gone:
                took = time.perf_counter()
                gone = await store.originals.expire()
                sweeps.append((time.perf_counter() - took) * 1000)
        swept, deleted = time.perf_counter() - began, postgres_s(backend) - before
        connection.close()
        usage = await _timed(store.usage())
    finally:
        await store.close()
    timed = {"recover by id, ms": reads, "keep 20 KB, ms": keeps, "a transaction of the sweep, ms": sweeps}
    rows = [
        ["filled, s", f"{filled:.0f}", "", ""],
        ["size, GB", f"{int(str(size[0] if size else 0)) / 1e9:.1f}", "", ""],
        *([name, *(f"{value:.1f}" for value in _spread(values))] for name, values in timed.items()),
        ["all that expired deleted, s", f"{swept:.0f}", "", ""],
        ["CPU of PostgreSQL for a recovery, ms", f"{read * 1000 / READS:.2f}", "", ""],
        ["CPU of PostgreSQL for a transaction of the sweep, ms", f"{deleted * 1000 / len(sweeps):.1f}", "", ""],
        ["how full it is, ms", f"{usage:.1f}", "", ""],
    ]
    table(f"{ORIGINALS:,} originals, {EXPIRED:,} of them expired", ("", "median", "p99", "most"), rows)
    return [
        _bar(f"{ORIGINALS:,} originals: recover by id, p99, ms", _spread(reads)[1], RECOVER_MS),
        # The whole transaction: no lock of it is held for longer.
        _bar(f"{ORIGINALS:,} originals: longest transaction of the sweep, ms", max(sweeps), SWEEP_MS),
    ]


def _has_expired(url: str) -> bool:
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT 1 FROM record WHERE last_used < 1e6 LIMIT 1").fetchone() is not None


def _generated(number: int) -> str:
    """Return the id of a generated original."""
    return f"gen_{hashlib.md5(str(number).encode(), usedforsecurity=False).hexdigest()}"


def _spread(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the median, the 99th percentile and the most."""
    return statistics.median(values), sorted(values)[int(0.99 * (len(values) - 1))], max(values)


def _bar(what: str, measured: float, bar: float) -> Sequence[object]:
    return [what, f"{measured:.1f}", f"{bar:g}", "yes" if measured <= bar else "NO"]


async def _timed(work: Awaitable[object]) -> float:
    began = time.perf_counter()
    await work
    return (time.perf_counter() - began) * 1000


def main() -> None:
    bars = servers() if REQUESTS else []
    if ORIGINALS:
        with controlled(*LARGE) as postgres, tempfile.TemporaryDirectory() as home:
            bars += asyncio.run(originals(url_of(postgres.url, Path(home))))
    table(f"Bars, with a load of {os.getloadavg()[0]:.1f} at the end", ("what", "measured", "at most", "held"), bars)
