"""A real PostgreSQL on a socket in a folder of its own, where its programs are installed."""

import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import psycopg
import pytest
from tests.support.services.store.making import MAX_BYTES, TTL_S

from kimi_proxy.core.addresses import Address
from kimi_proxy.team.store.postgres.store import PostgresStore

WHY_NOT = "PostgreSQL's programs (initdb, postgres) are not installed here: Debian's package is postgresql"
PATIENCE_S = 120


def programs() -> Path | None:
    """Return the folder of the newest PostgreSQL that is installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name))
    there = [folder for folder in found if (folder / "initdb").exists()]
    initdb = shutil.which("initdb")
    return there[-1] if there else Path(initdb).resolve().parent if initdb else None


class PostgresServer:
    """A server with one database, which can be ended and started again."""

    def __init__(self, folder: Path, home: str, user: str | None, settings: Sequence[str] = ()) -> None:
        self.home = home
        self.url = f"postgresql:///postgres?host={home}&user=kimi"
        self.programs = folder
        self._command = [str(folder / "postgres"), "-D", f"{home}/data", "-k", home, "-h", ""]
        for setting in ("max_connections=200", "shared_buffers=32MB", *settings):
            self._command += ["-c", setting]
        self._user = user
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Return once it answers."""
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(self._command, user=self._user, **quiet)
        _wait_for(self.url)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End it as a restart does: connections are ended, what was committed stays."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(PATIENCE_S)
            self._process = None

    def crash(self) -> None:
        """End it without a checkpoint, as a machine that fails does."""
        self.stop(signal.SIGQUIT)


@contextmanager
def controlled(*settings: str) -> Iterator[PostgresServer]:
    """Run a server with these of its own settings, and give what controls it."""
    quick = ["--no-sync", "--auth=trust", "--username=kimi", "--encoding=UTF8", "--locale=C"]
    with _running(["initdb", *quick], settings) as server:
        yield server


@contextmanager
def standby(primary: PostgresServer) -> Iterator[PostgresServer]:
    """Run a standby of `primary`, for which the commits of that one wait from now on."""
    copied = ["pg_basebackup", "--dbname", primary.url, "--write-recovery-conf", "--checkpoint=fast", "--no-sync"]
    with _running(copied) as server:
        with psycopg.connect(primary.url, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            connection.execute("SELECT pg_reload_conf()")
        yield server


@contextmanager
def _running(making: Sequence[str], settings: Sequence[str] = ()) -> Iterator[PostgresServer]:
    """Run a server whose folder this command makes, one of PostgreSQL's own."""
    folder = programs()
    if folder is None:
        pytest.skip(WHY_NOT)
    # A socket's path has 107 characters at most, so pytest's own folders are too deep.
    with tempfile.TemporaryDirectory(prefix="pg-", dir="/tmp") as home:
        user = None
        if os.geteuid() == 0:  # which PostgreSQL refuses to run as
            import pwd  # not on Windows

            user = "postgres" if "postgres" in {entry.pw_name for entry in pwd.getpwall()} else "nobody"
            shutil.chown(home, user)
        program, *arguments = making
        command = [str(folder / program), "-D", f"{home}/data", *arguments]
        subprocess.run(command, user=user, check=True, capture_output=True, timeout=600)
        server = PostgresServer(folder, home, user, settings)
        try:
            server.start()
            yield server
        finally:
            server.stop()


@contextmanager
def serving() -> Iterator[str]:
    """Run a server, and give the address of its one database."""
    with controlled() as server:
        yield server.url


def _wait_for(url: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            psycopg.connect(url).close()
            return
        except psycopg.OperationalError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def url_of(server: str, home: Path) -> str:
    """Return the address of the tables of `home`, made if they are missing: each home has a schema of its own."""
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {_schema(home)}".encode())
    return url_on(server, home)


def url_on(server: str, home: Path) -> str:
    """Return the address of the tables of `home` on a server that cannot make them, because it is a replica."""
    return f"{server}&options=-csearch_path%3D{_schema(home)}"


def _schema(home: Path) -> str:
    return f"h_{hashlib.sha256(str(home).encode()).hexdigest()[:16]}"


@asynccontextmanager
async def opened(
    server: str,
    home: Path,
    now: Callable[[], float] = time.time,
    ttl_s: float = TTL_S,
    max_bytes: int = MAX_BYTES,
    timeout_s: float = 30.0,
) -> AsyncIterator[PostgresStore]:
    store = await PostgresStore.open(
        Address(url_of(server, home)),
        ttl_s=ttl_s,
        max_bytes=max_bytes,
        timeout_s=timeout_s,
        now=now,
    )
    try:
        yield store
    finally:
        await store.close()
