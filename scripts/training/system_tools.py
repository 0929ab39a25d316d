"""Logs of what goes on: a database, a web server, the calls of a process, a logger; with a few things gone wrong."""

import os
import random
import re
import sys
from pathlib import Path

from runs import Project, write
from subjects import Fault, subjects

SQL = {
    "INSERT INTO {t} VALUES (1, 'again');": "a key is there already",
    "SELECT 1 / (id - id) FROM {t};": "something is divided by zero",
    "SELECT missing_column FROM {t};": "a column does not exist",
    "SELECT * FROM absent_{t};": "a table does not exist",
    "INSERT INTO {t} VALUES (NULL, 'x');": "an empty value breaks a rule of the table",
    "SELEC * FROM {t};": "a statement has a syntax error",
    "INSERT INTO {t} VALUES ('text', 'x');": "text is given where a number is expected",
    "INSERT INTO {t} VALUES (77, repeat('x', 99));": "a value is too long",
    "SELECT no_such_function_of_{t}(1);": "a function does not exist",
    "SELECT ('{{' || name)::json FROM {t};": "broken JSON is read",
}


def postgres(folder: Path, rng: random.Random) -> Project:
    """A database server by itself, without a network, that logs every statement."""
    every = subjects(rng, rng.randint(8, 20))
    broken = every[: rng.randint(2, 7)]
    codes = dict(zip(broken, rng.sample(sorted(SQL), len(broken)), strict=True))
    statements = [
        text.format(t=s.snake, n=rng.randint(100, 9999))
        for _ in range(rng.randint(8, 30))
        for s in every
        for text in ("SELECT count(*) FROM {t} WHERE id > {n};", "UPDATE {t} SET name = 'v{n}' WHERE id = {n};")
        if rng.random() < 0.7
    ]
    for subject, code in codes.items():
        statements.insert(rng.randrange(len(statements)), code.format(t=subject.snake))
    tables = [
        f"CREATE TABLE {s.snake} (id int PRIMARY KEY, name varchar(20));INSERT INTO {s.snake} VALUES (1, 'a');"
        for s in every
    ]
    write(
        folder,
        {"work.sql": "\n".join([*(f"{t}\n" for t in ";\n".join(tables).split(";") if t.strip()), *statements]) + "\n"},
    )
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    binaries = found[-1] if found else Path("/usr/bin")
    become = "setpriv --reuid=65534 --regid=65534 --clear-groups" if os.geteuid() == 0 else ""
    settings = "-c log_statement=all -c log_line_prefix='%m [%p] ' -c fsync=off -c log_min_duration_statement=0"
    script = (
        f"chmod a+x .. && chmod -R a+rwX . && {become} {binaries}/initdb -D data >/dev/null 2>&1 ; "
        f"{become} {binaries}/postgres --single {settings} -D data postgres < work.sql 2>&1 >/dev/null"
    )
    faults = [Fault(s, tuple(_marks(codes[s], s.snake)), SQL[codes[s]]) for s in broken]
    failure = re.compile(r"ERROR")
    return Project(
        script,
        faults,
        re.compile(r"\d{4}-\d\d-\d\d.* (?:LOG|ERROR|FATAL|WARNING):"),
        failure,
        [s.words for s in every if s not in codes],
    )


def _marks(code: str, table: str) -> list[str]:
    names = re.findall(r"\w*\{t\}\w*", code)
    return [name.replace("{t}", table) for name in names]


WEB = """
import http.server, random, sys, threading, urllib.request, urllib.error
random.seed({seed})
BROKEN = {broken!r}
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        name = self.path.split("/")[1]
        kind = BROKEN.get(name)
        if kind == 500:
            try:
                {{}}[name]
            except KeyError:
                import traceback
                self.log_error("unhandled exception in %s", name)
                traceback.print_exc()
        self.send_response(kind or random.choice((200, 200, 200, 204, 304)))
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, form, *args):
        sys.stderr.write("%s - - [12/Mar/2026:%02d:%02d:%02d +0000] %s\\n" % (
            "10.0.0.%d" % random.randint(1, 40), 9, CLOCK[0] // 60 % 60, CLOCK[0] % 60, form % args))
        CLOCK[0] += random.randint(0, 3)
CLOCK = [0]
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
for name in {asked!r}:
    try:
        number = random.randint(1, 900)
        urllib.request.urlopen(f"http://127.0.0.1:{{server.server_port}}/{{name}}/{{number}}", timeout=5).read()
    except urllib.error.HTTPError:
        pass
"""
STATUS = {
    401: "somebody is not logged in",
    403: "access is forbidden",
    404: "a page is not found",
    413: "a body is too large",
    429: "too many requests come",
    500: "the server breaks down",
    502: "a gateway gives a bad answer",
}


def web(folder: Path, rng: random.Random) -> Project:
    every = subjects(rng, rng.randint(10, 30))
    broken = every[: rng.randint(2, 6)]
    status = dict(zip(broken, rng.sample(sorted(STATUS), len(broken)), strict=True))
    calm = [s.snake for s in every if s not in status]
    asked = [rng.choice(calm) for _ in range(rng.randint(200, 900))]
    for subject in broken:
        asked.insert(rng.randrange(len(asked)), subject.snake)
    text = WEB.format(seed=rng.randint(1, 999), broken={s.snake: status[s] for s in broken}, asked=asked)
    write(folder, {"server.py": text})
    faults = [Fault(s, (s.snake,), STATUS[status[s]]) for s in broken]
    starts = re.compile(r"[\d.]+ - - |Traceback")
    return Project(
        f"{sys.executable} server.py 2>&1", faults, starts, re.compile("."), [s.words for s in every if s not in status]
    )


CALLS = {
    "open('/srv/{t}.conf')": "a file does not exist",
    "__import__('os').rmdir('/proc/{t}')": "a folder cannot be removed",
    "__import__('os').mkdir('/proc/{t}/x')": "a folder cannot be made",
    "__import__('os').unlink('/sys/{t}')": "a file cannot be deleted",
    "__import__('os').execv('/opt/{t}', ['x'])": "a program cannot be started",
    "__import__('os').chown('/etc/{t}', 1, 1)": "the owner of a file cannot be changed",
    "__import__('os').symlink('/x', '/proc/{t}')": "a link cannot be made",
    "__import__('os').listdir('/var/{t}')": "a folder cannot be listed",
}


def strace(folder: Path, rng: random.Random) -> Project:
    every = subjects(rng, 12)
    broken = every[: rng.randint(2, 8)]
    codes = dict(zip(broken, rng.sample(sorted(CALLS), len(broken)), strict=True))
    modules = rng.sample(
        ("json", "decimal", "email.message", "http.client", "logging", "csv", "tarfile", "sqlite3"), rng.randint(1, 4)
    )
    lines = [f"import {module}" for module in modules]
    for subject, code in codes.items():
        lines.insert(rng.randint(0, len(lines)), f"try:\n    {code.format(t=subject.snake)}\nexcept OSError:\n    pass")
    write(folder, {"work.py": "\n".join(lines) + "\n"})
    faults = [Fault(s, (s.snake,), CALLS[codes[s]]) for s in broken]
    how = rng.choice(("-f", "-tt", "-r", "-f -e trace=file", "-e trace=file -ttt"))
    return Project(
        f"strace {how} {sys.executable} -S work.py",
        faults,
        re.compile("."),
        re.compile("= -1"),
        [s.words for s in every if s not in codes],
    )


TOOLS = {"postgres": postgres, "web server": web, "strace": strace}
