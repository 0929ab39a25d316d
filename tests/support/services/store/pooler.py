"""A real PgBouncer in transaction mode before a PostgreSQL, where it is installed."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from tests.support.services.store.postgres_server import PATIENCE_S, PostgresServer

WHY_NOT = "PgBouncer is not installed here: Debian's package is pgbouncer"
PORT = 6432
# Fewer server connections than clients, so that every transaction may run on another one.
SETTINGS = """
[databases]
postgres = host={postgres} dbname=postgres user=kimi
[pgbouncer]
listen_addr =
listen_port = {port}
unix_socket_dir = {home}
auth_type = any
pool_mode = transaction
default_pool_size = 2
max_client_conn = 200
ignore_startup_parameters = extra_float_digits
logfile = {home}/pgbouncer.log
pidfile = {home}/pgbouncer.pid
"""


@contextmanager
def pooled(server: PostgresServer) -> Iterator[str]:
    """Run PgBouncer before `server`, and give the address of its one database."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        pytest.skip(WHY_NOT)
    with tempfile.TemporaryDirectory(prefix="pgb-", dir="/tmp") as home:
        file = Path(home, "pgbouncer.ini")
        file.write_text(SETTINGS.format(postgres=server.home, home=home, port=PORT))
        user = None
        if os.geteuid() == 0:  # which PgBouncer refuses to run as
            user = Path(server.home).owner()
            shutil.chown(home, user)
            shutil.chown(file, user)
        process = subprocess.Popen([program, "-q", str(file)], user=user, stderr=subprocess.DEVNULL)
        url = f"postgresql:///postgres?host={home}&port={PORT}&user=kimi"
        try:
            _wait_for(url)
            yield url
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


def _wait_for(url: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            psycopg.connect(url, prepare_threshold=None).close()
            return
        except psycopg.OperationalError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)
