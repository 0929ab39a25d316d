"""Tables, XML, YAML, git, traces and scripts as agents get them; `structured_texts.py` has the JSON."""

# ruff: noqa: E501 - rows of data

import csv
import io
import json
import random
from collections.abc import Iterator, Sequence

from structured_texts import CITIES, WORDS, Structured, hex_digits, made, prose, slug, stamp


def _csv(head: Sequence[str], rows: Sequence[Sequence[object]], delimiter: str = ",") -> str:
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, lineterminator="\n").writerows([head, *rows])
    return out.getvalue()


@made
def sales_csv(rng: random.Random, name: str) -> Structured:
    rows = [
        [f"S{n:05}", rng.choice(CITIES), rng.randint(1, 9), round(rng.uniform(5, 90), 2), "paid"] for n in range(900)
    ]
    rows[457] = ["S00457", "Tromso", 3, 59.5, "chargeback"]
    rows[702][3] = 99_874.0
    text = _csv(("sale", "city", "quantity", "amount", "state"), rows)
    return Structured(
        name, "csv", text, "Which sale was charged back?", ("S00457", "Tromso", "99874.0", "sale,city"), "cat sales.csv"
    )


@made
def quoted_csv(rng: random.Random, name: str) -> Structured:
    rows = [[n, slug(rng), f"{prose(rng, 7)}, {prose(rng, 5)}", "no"] for n in range(400)]
    rows[290] = [290, "gate-sensor", 'said "low battery", then\nnothing for 3 days', "yes"]
    text = _csv(("id", "device", "note", "alarm"), rows)
    needles = ("gate-sensor", '""low battery""', "nothing for 3 days")
    return Structured(name, "csv", text, "Which device went silent?", needles, "cat devices.csv")


@made
def genes_tsv(rng: random.Random, name: str) -> Structured:
    rows = [[f"G{n:04}", f"chr{n % 22 + 1}", rng.randrange(10**6), f"{rng.uniform(0.1, 1):.4f}"] for n in range(800)]
    rows[610] = ["BRCA9", "chrX", 88_112, "0.0000"]
    rows[93][3] = "NA"
    text = _csv(("gene", "chromosome", "position", "p"), rows, "\t")
    return Structured(
        name, "tsv", text, "Where is BRCA9?", ("BRCA9", "chrX", "\tNA", "gene\tchromosome"), "cat genes.tsv"
    )


def _markdown(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(str(cell) for cell in row)} |" for row in lines) + "\n"


@made
def markdown_table(rng: random.Random, name: str) -> Structured:
    rows = [
        [f"`{rng.choice(WORDS)}.{rng.choice(WORDS)}_{n}`", "integer", rng.randrange(900), prose(rng, 9)]
        for n in range(220)
    ]
    rows[140] = ["`cache.ttl_seconds`", "integer", 86_400, "How long an entry lives."]
    rows[63][1] = "**removed**"
    text = _markdown(("setting", "type", "default", "meaning"), rows)
    return Structured(
        name,
        "plain",
        text,
        "How long does a cache entry live?",
        ("cache.ttl_seconds", "86400", "**removed**"),
        "cat settings.md",
    )


def _columns(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    cells = [[str(cell) for cell in row] for row in (head, *rows)]
    widths = [max(len(row[at]) for row in cells) + 3 for at in range(len(head))]
    return (
        "\n".join("".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells)
        + "\n"
    )


@made
def docker_ps(rng: random.Random, name: str) -> Structured:
    rows = [
        [hex_digits(rng, 12), f"{slug(rng)}:1.{n % 9}", "Up 3 days", f"0.0.0.0:{8000 + n}->80/tcp", f"{slug(rng)}-{n}"]
        for n in range(150)
    ]
    rows[97] = ["5be1c0ffee12", "mail-relay:2.4", "Restarting (1) 8 seconds ago", "", "mail-relay-1"]
    rows[122][2] = "Up 3 days (unhealthy)"
    text = _columns(("CONTAINER ID", "IMAGE", "STATUS", "PORTS", "NAMES"), rows)
    return Structured(
        name,
        "plain",
        text,
        "Which container is not up?",
        ("5be1c0ffee12", "mail-relay-1", "(unhealthy)"),
        "docker ps -a",
    )


@made
def kubectl_table(rng: random.Random, name: str) -> Structured:
    rows = [
        [f"{slug(rng)}-{hex_digits(rng, 10)}-{hex_digits(rng, 5)}", "1/1", "Running", rng.randrange(3), f"{n % 30}d"]
        for n in range(260)
    ]
    rows[181] = ["geo-index-6d5f-xk2p9", "0/1", "ImagePullBackOff", 0, "4m"]
    rows[77] = ["tax-rates-84bb-q0zzt", "0/1", "Pending", 0, "11h"]
    text = _columns(("NAME", "READY", "STATUS", "RESTARTS", "AGE"), rows)
    return Structured(
        name,
        "plain",
        text,
        "Is every pod healthy?",
        ("geo-index-6d5f-xk2p9", "ImagePullBackOff", "tax-rates-84bb-q0zzt"),
        "kubectl get pods",
    )


@made
def psql_table(rng: random.Random, name: str) -> Structured:
    rows = [[n, f"{slug(rng)}@shop.example", "active", rng.randrange(1, 60)] for n in range(1, 400)]
    rows[262] = [263, "root@localhost", "locked", 9_417]
    head = ("id", "email", "state", "logins")
    widths = [max(len(str(row[at])) for row in (head, *rows)) for at in range(4)]
    lines = [
        " | ".join(str(cell).ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (head, *rows)
    ]
    lines.insert(1, "-+-".join("-" * width for width in widths))
    text = "\n".join(f" {line}" for line in lines) + "\n(399 rows)\n"
    return Structured(
        name, "plain", text, "Whose account is locked?", ("root@localhost", "9417", "(399 rows)"), "psql -c 'select'"
    )


@made
def disk_usage(rng: random.Random, name: str) -> Structured:
    rows = [
        [
            f"/dev/sd{chr(97 + n % 26)}{n}",
            f"{rng.randrange(20, 90)}G",
            f"{rng.randrange(10, 60)}%",
            f"/srv/{slug(rng)}",
        ]
        for n in range(120)
    ]
    rows[84] = ["/dev/nvme7n1", "4.0T", "100%", "/var/lib/ledger"]
    text = _columns(("Filesystem", "Size", "Use%", "Mounted on"), rows)
    return Structured(name, "plain", text, "What is full?", ("/dev/nvme7n1", "100%", "/var/lib/ledger"), "df -h")


@made
def catalog_xml(rng: random.Random, name: str) -> Structured:
    books = [
        f'  <book id="b{n}">\n    <title>{prose(rng, 4)}</title>\n    <price>{rng.randint(9, 40)}.00</price>\n    <stock>{rng.randint(1, 90)}</stock>\n  </book>'
        for n in range(320)
    ]
    books[211] = (
        '  <book id="b211">\n    <title>Tides of Umber</title>\n    <price>-7.00</price>\n    <note>recalled by the publisher</note>\n  </book>'
    )
    text = f'<?xml version="1.0"?>\n<catalog>\n{chr(10).join(books)}\n</catalog>\n'
    return Structured(
        name,
        "xml",
        text,
        "Which book was recalled?",
        ('id="b211"', "recalled by the publisher", "-7.00"),
        "cat catalog.xml",
    )


@made
def feed_one_line(rng: random.Random, name: str) -> Structured:
    items = [
        f"<item><title>{prose(rng, 5)}</title><guid>{hex_digits(rng, 16)}</guid><body>{prose(rng, 25)}</body></item>"
        for _ in range(140)
    ]
    items[90] = (
        "<item><title>Maintenance</title><guid>ffee</guid><body>The gateway is off on 14 March from 02:00.</body></item>"
    )
    text = f"<rss><channel><title>Status</title>{''.join(items)}</channel></rss>"
    return Structured(
        name, "xml", text, "When is maintenance?", ("14 March", "from 02:00", "<guid>ffee</guid>"), "curl feed.xml"
    )


@made
def page_html(rng: random.Random, name: str) -> Structured:
    parts = [f"<div class='row'><h3>{prose(rng, 3)}</h3><p>{prose(rng, 40)}</p></div>" for _ in range(110)]
    parts[73] = "<div class='row'><h3>Returns</h3><p>You may send goods back within 37 days, unopened.</p></div>"
    text = f"<html><head><title>Help</title></head><body><main>{''.join(parts)}</main></body></html>"
    return Structured(
        name,
        "xml",
        text,
        "How long can I return goods?",
        ("within 37 days", "<h3>Returns</h3>", "<title>Help</title>"),
        "curl help.html",
    )


@made
def junit_report(rng: random.Random, name: str) -> Structured:
    cases = [
        f'    <testcase classname="tests.{rng.choice(WORDS)}" name="test_{slug(rng).replace("-", "_")}_{n}" time="0.0{n % 90}"/>'
        for n in range(450)
    ]
    cases[333] = (
        '    <testcase classname="tests.invoices" name="test_rounding_half_even" time="0.31">\n      <failure message="assert Decimal(\'10.12\') == Decimal(\'10.13\')">tests/invoices/test_rounding.py:88: AssertionError</failure>\n    </testcase>'
    )
    cases[120] = (
        '    <testcase classname="tests.export" name="test_pdf" time="0.00"><skipped message="no wkhtmltopdf"/></testcase>'
    )
    text = f'<?xml version="1.0" encoding="utf-8"?>\n<testsuites>\n  <testsuite name="pytest" errors="0" failures="1" tests="450">\n{chr(10).join(cases)}\n  </testsuite>\n</testsuites>\n'
    needles = ("test_rounding_half_even", "Decimal('10.13')", "test_rounding.py:88")
    return Structured(name, "xml", text, "Make the tests pass.", needles, "cat junit.xml")


@made
def pom_xml(rng: random.Random, name: str) -> Structured:
    dependencies = [
        f"    <dependency>\n      <groupId>org.{rng.choice(WORDS)}</groupId>\n      <artifactId>{slug(rng)}</artifactId>\n      <version>{rng.randrange(9)}.{rng.randrange(30)}</version>\n    </dependency>"
        for _ in range(180)
    ]
    dependencies[99] = (
        "    <dependency>\n      <groupId>org.slate</groupId>\n      <artifactId>mail-client</artifactId>\n      <version>1.4-SNAPSHOT</version>\n      <scope>system</scope>\n    </dependency>"
    )
    text = f"<project>\n  <artifactId>shop</artifactId>\n  <dependencies>\n{chr(10).join(dependencies)}\n  </dependencies>\n</project>\n"
    return Structured(
        name,
        "xml",
        text,
        "Which version of mail-client is used?",
        ("mail-client", "1.4-SNAPSHOT", "<scope>system</scope>"),
        "cat pom.xml",
    )


def _manifest(rng: random.Random, app: str) -> list[str]:
    return [
        "apiVersion: apps/v1",
        "kind: Deployment",
        "metadata:",
        f"  name: {app}",
        "  labels:",
        f"    team: {rng.choice(WORDS)}",
        "spec:",
        "  replicas: 2",
        "  template:",
        "    spec:",
        "      containers:",
        f"        - name: {app}",
        f"          image: registry.example/{app}:{rng.randrange(1, 9)}.{rng.randrange(20)}",
        "          resources:",
        "            limits:",
        "              memory: 512Mi",
        "          env:",
        *(
            f"            - name: {rng.choice(WORDS).upper()}_{n}\n              value: {hex_digits(rng, 8)}"
            for n in range(6)
        ),
    ]


@made
def yaml_documents(rng: random.Random, name: str) -> Structured:
    documents = ["\n".join(_manifest(rng, slug(rng))) for _ in range(45)]
    sick = "\n".join(_manifest(rng, "price-feed"))
    documents[28] = sick.replace("replicas: 2", "replicas: 0").replace("memory: 512Mi", "memory: 16Mi")
    text = "\n---\n".join(documents) + "\n"
    return Structured(
        name,
        "yaml",
        text,
        "Why does price-feed not run?",
        ("name: price-feed", "replicas: 0", "memory: 16Mi"),
        "cat deploy.yaml",
    )


@made
def yaml_list(rng: random.Random, name: str) -> Structured:
    hosts = [
        [
            f"  - host: {slug(rng)}.internal",
            f"    address: 10.4.{n % 9}.{n % 250}",
            "    role: worker",
            f"    cores: {rng.choice((8, 16))}",
        ]
        for n in range(260)
    ]
    hosts[170] = ["  - host: vault-primary.internal", "    address: 10.99.0.1", "    role: secrets", "    sealed: true"]
    text = "version: 2\nhosts:\n" + "\n".join("\n".join(host) for host in hosts) + "\ncontact: ops@shop.example\n"
    return Structured(
        name,
        "yaml",
        text,
        "Which host is sealed?",
        ("vault-primary.internal", "10.99.0.1", "sealed: true"),
        "cat hosts.yaml",
    )


@made
def workflow_yaml(rng: random.Random, name: str) -> Structured:
    jobs = [
        f"  {slug(rng)}-{n}:\n    runs-on: ubuntu-24.04\n    timeout-minutes: 20\n    steps:\n      - uses: actions/checkout@v4\n      - run: |\n          make {rng.choice(WORDS)}\n          make {rng.choice(WORDS)}"
        for n in range(90)
    ]
    jobs[66] = (
        "  publish-wheels:\n    runs-on: macos-15\n    timeout-minutes: 240\n    environment: release\n    steps:\n      - run: twine upload --skip-existing dist/*"
    )
    text = f"name: ci\non:\n  push:\n    branches: [main]\njobs:\n{chr(10).join(jobs)}\n"
    return Structured(
        name,
        "yaml",
        text,
        "Which job uploads to PyPI?",
        ("publish-wheels", "twine upload", "timeout-minutes: 240"),
        "cat ci.yaml",
    )


def _commit(rng: random.Random, at: int, subject: str, body: str = "") -> str:
    author = f"{rng.choice(WORDS).title()} {rng.choice(WORDS).title()}"
    head = f"commit {hex_digits(rng, 40)}\nAuthor: {author} <{author.split()[0].lower()}@shop.example>\nDate:   {stamp(rng, at)}\n\n    {subject}\n"
    return f"{head}\n    {body}\n" if body else head


@made
def git_log(rng: random.Random, name: str) -> Structured:
    commits = [_commit(rng, n, prose(rng, 6)) for n in range(260)]
    commits[151] = _commit(rng, 3, "Round invoices half to even", "The tax office of Graz refused 212 of them.")
    commits[40] = _commit(rng, 5, 'Revert "Cache the price list"', "This reverts commit 77aa0bb1.")
    needles = ("Round invoices half to even", "refused 212", "77aa0bb1")
    return Structured(
        name, "plain", "\n".join(commits), "Which commit changed the rounding of invoices?", needles, "git log"
    )


@made
def git_log_short(rng: random.Random, name: str) -> Structured:
    lines = [f"{hex_digits(rng, 9)} {prose(rng, 6)}" for _ in range(420)]
    lines[300] = "c0ffee123 Drop support for Python 3.9"
    lines[111] = "badc0de99 hotfix!!! do not merge"
    return Structured(
        name,
        "plain",
        "\n".join(lines) + "\n",
        "Since when is Python 3.9 gone?",
        ("c0ffee123", "Drop support", "badc0de99"),
        "git log --oneline",
    )


@made
def git_diff(rng: random.Random, name: str) -> Structured:
    files = []
    for n in range(70):
        path = f"src/{rng.choice(WORDS)}/{slug(rng)}.py"
        hunk = [f"@@ -{n * 7},6 +{n * 7},6 @@ def {rng.choice(WORDS)}():"]
        hunk += [f"     {rng.choice(WORDS)} = {rng.choice(WORDS)}({rng.randrange(99)})" for _ in range(3)]
        hunk += [f"-    return {rng.choice(WORDS)}", f"+    return {rng.choice(WORDS)}_{rng.choice(WORDS)}"]
        hunk += [f"     {rng.choice(WORDS)}({rng.randrange(99)})" for _ in range(3)]
        files.append(
            "\n".join(
                [
                    f"diff --git a/{path} b/{path}",
                    f"index {hex_digits(rng, 7)}..{hex_digits(rng, 7)} 100644",
                    f"--- a/{path}",
                    f"+++ b/{path}",
                    *hunk,
                ]
            )
        )
    files[44] = (
        "diff --git a/src/auth/session.py b/src/auth/session.py\nindex 11..22 100644\n--- a/src/auth/session.py\n+++ b/src/auth/session.py\n@@ -80,6 +80,6 @@ def renew(token):\n     now = clock()\n-    lifetime = 3600\n+    lifetime = 60\n     return sign(token, now + lifetime)"
    )
    needles = ("src/auth/session.py", "+    lifetime = 60", "-    lifetime = 3600")
    return Structured(
        name, "plain", "\n".join(files) + "\n", "Why do sessions expire after a minute?", needles, "git diff main"
    )


def _frames(rng: random.Random, count: int) -> Iterator[str]:
    for _ in range(count):
        yield f"\tat org.{rng.choice(WORDS)}.{rng.choice(WORDS).title()}.{rng.choice(WORDS)}({rng.choice(WORDS).title()}.java:{rng.randrange(900)})"


@made
def java_traces(rng: random.Random, name: str) -> Structured:
    traces = ["\n".join([f"java.net.SocketException: Connection reset ({n})", *_frames(rng, 40)]) for n in range(30)]
    traces[19] = "\n".join(
        [
            "java.lang.IllegalStateException: cannot post entry",
            *_frames(rng, 25),
            "Caused by: java.sql.SQLException: column LEDGER.FX_RATE not found",
            "\tat com.shop.ledger.Posting.post(Posting.java:147)",
            *_frames(rng, 25),
        ]
    )
    needles = ("cannot post entry", "LEDGER.FX_RATE not found", "Posting.java:147")
    return Structured(name, "plain", "\n\n".join(traces) + "\n", "Why can the ledger not post?", needles, "cat app.err")


@made
def python_traces(rng: random.Random, name: str) -> Structured:
    def trace(error: str, last: str) -> str:
        frames = [
            f'  File "/srv/{rng.choice(WORDS)}/{rng.choice(WORDS)}.py", line {rng.randrange(400)}, in {rng.choice(WORDS)}\n    {rng.choice(WORDS)}({rng.choice(WORDS)})'
            for _ in range(12)
        ]
        return "\n".join(["Traceback (most recent call last):", *frames, last, error])

    usual = '  File "/srv/net.py", line 12, in get\n    raise TimeoutError'
    traces = [trace("TimeoutError: timed out", usual) for _ in range(60)]
    traces[37] = trace(
        "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xe9 in position 812",
        '  File "/srv/imports/customers.py", line 55, in rows\n    return raw.decode()',
    )
    needles = ("UnicodeDecodeError", "imports/customers.py", "position 812")
    return Structured(
        name, "plain", "\n\n".join(traces) + "\n", "Why does the import of customers fail?", needles, "cat worker.err"
    )


@made
def minified_script(rng: random.Random, name: str) -> Structured:
    parts = [
        f"function {rng.choice(WORDS)}{n}(a,b){{var c=a.{rng.choice(WORDS)}+b;return c*{rng.randrange(900)}}}"
        for n in range(600)
    ]
    parts[402] = (
        'function retryDelay(n){return Math.min(250*Math.pow(2,n),64e3)}var API_HOST="https://api.shop.example/v7";'
    )
    needles = ("retryDelay", "64e3", "https://api.shop.example/v7")
    return Structured(
        name, "plain", ";".join(parts), "How long is the delay before a retry?", needles, "cat app.min.js"
    )


@made
def one_line_numbers(rng: random.Random, name: str) -> Structured:
    rows = [[n, rng.choice(CITIES), round(rng.gauss(20, 2), 1)] for n in range(1500)]
    rows[1111] = [1111, "Svalbard", -61.9]
    text = json.dumps({"columns": ["station", "city", "celsius"], "rows": rows}, separators=(",", ":"))
    return Structured(
        name, "json", text, "Which reading cannot be right?", ("Svalbard", "-61.9", '"celsius"'), "curl stations"
    )


@made
def deep_json(rng: random.Random, name: str) -> Structured:
    regions = [
        {
            "region": rng.choice(WORDS),
            "zones": [
                {
                    "zone": f"z{z}",
                    "racks": [
                        {
                            "rack": hex_digits(rng, 4),
                            "units": [{"u": u, "host": slug(rng), "power": "on"} for u in range(8)],
                        }
                        for _ in range(4)
                    ],
                }
                for z in range(4)
            ],
        }
        for _ in range(8)
    ]
    regions[5]["zones"][2]["racks"][1]["units"][6] = {
        "u": 6,
        "host": "backup-vault-2",
        "power": "off",
        "ticket": "INC-7741",
    }
    text = json.dumps({"regions": regions}, indent=1)
    return Structured(
        name,
        "json",
        text,
        "Which host is powered off?",
        ("backup-vault-2", "INC-7741", '"power": "off"'),
        "inventory --json",
    )


@made
def terraform_plan(rng: random.Random, name: str) -> Structured:
    changes = [
        {
            "address": f"aws_s3_object.{slug(rng)}_{n}",
            "type": "aws_s3_object",
            "change": {
                "actions": ["no-op"],
                "before": {"etag": hex_digits(rng, 32)},
                "after": {"etag": hex_digits(rng, 32)},
            },
        }
        for n in range(220)
    ]
    changes[160] = {
        "address": "aws_db_instance.ledger",
        "type": "aws_db_instance",
        "change": {
            "actions": ["delete", "create"],
            "before": {"engine": "postgres 14"},
            "after": {"engine": "postgres 17"},
        },
    }
    text = json.dumps({"format_version": "1.2", "resource_changes": changes})
    return Structured(
        name,
        "json",
        text,
        "Does the plan destroy anything?",
        ("aws_db_instance.ledger", '"delete"', "postgres 17"),
        "terraform show -json",
    )


@made
def process_list(rng: random.Random, name: str) -> Structured:
    rows = [
        [
            "shop",
            n + 300,
            f"{rng.uniform(0, 2):.1f}",
            f"{rng.uniform(0, 1):.1f}",
            f"python -m {rng.choice(WORDS)}.{rng.choice(WORDS)}",
        ]
        for n in range(240)
    ]
    rows[133] = ["root", 4242, "398.7", "71.2", "ffmpeg -i /srv/in/tour.mov"]
    text = _columns(("USER", "PID", "%CPU", "%MEM", "COMMAND"), rows)
    return Structured(name, "plain", text, "What makes the machine slow?", ("4242", "398.7", "ffmpeg -i"), "ps aux")
