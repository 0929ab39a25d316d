# ruff: noqa: E501 - lines as programs print them
"""Further texts as commands print them: builds, listings, settings, dumps. Each has a question and what answers it.

They were written after the chooser of records, to see how far it carries beyond the texts that it was made with.
"""

import csv
import io
import json
import random

from structured_texts import WORDS, Make, Structured, hex_digits, stamp

MAKERS: dict[str, Make] = {}


def texts(seed: int = 27) -> list[Structured]:
    return [make(random.Random(f"{seed} {name}"), name) for name, make in MAKERS.items()]


def made(make: Make) -> Make:
    MAKERS[make.__name__.replace("_", " ")] = make
    return make


def _word(rng: random.Random) -> str:
    return rng.choice(WORDS)


@made
def eslint_json(rng: random.Random, name: str) -> Structured:
    files = [
        {
            "filePath": f"/src/{_word(rng)}/{_word(rng)}{i}.ts",
            "messages": [
                {
                    "ruleId": rng.choice(["semi", "quotes", "indent", "no-unused-vars"]),
                    "severity": 1,
                    "message": "Missing semicolon." if rng.random() < 0.5 else "Strings must use singlequote.",
                    "line": rng.randrange(400),
                    "column": rng.randrange(80),
                }
                for _ in range(rng.randrange(1, 6))
            ],
            "errorCount": 0,
            "warningCount": 2,
        }
        for i in range(160)
    ]
    files[97]["messages"].append(
        {"ruleId": "no-eval", "severity": 2, "message": "eval can be harmful.", "line": 381, "column": 7}
    )
    files[97]["errorCount"] = 1
    return Structured(
        name,
        "json",
        json.dumps(files),
        "Which finding breaks the build?",
        (files[97]["filePath"], "no-eval", "381"),
        "eslint -f json",
    )


@made
def sarif(rng: random.Random, name: str) -> Structured:
    res = [
        {
            "ruleId": f"CWE-{rng.choice([79, 89, 22])}",
            "level": "note",
            "message": {"text": f"Possible taint in {_word(rng)}"},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": f"app/{_word(rng)}/{_word(rng)}.py"},
                        "region": {"startLine": rng.randrange(900)},
                    }
                }
            ],
        }
        for _ in range(220)
    ]
    res[150] = {
        "ruleId": "CWE-798",
        "level": "error",
        "message": {"text": "Hard-coded credential"},
        "locations": [
            {"physicalLocation": {"artifactLocation": {"uri": "app/billing/vault.py"}, "region": {"startLine": 612}}}
        ],
    }
    return Structured(
        name,
        "json",
        json.dumps({"version": "2.1.0", "runs": [{"tool": {"driver": {"name": "scan"}}, "results": res}]}, indent=1),
        "What is the most serious finding?",
        ("CWE-798", "app/billing/vault.py", "612"),
        "scan --sarif",
    )


@made
def go_test_json(rng: random.Random, name: str) -> Structured:
    rows = []
    for i in range(900):
        t = f"Test{_word(rng).title()}{i}"
        rows += [
            {"Time": stamp(rng, i), "Action": "run", "Package": f"example.org/{_word(rng)}", "Test": t},
            {
                "Time": stamp(rng, i),
                "Action": "pass",
                "Package": "example.org/x",
                "Test": t,
                "Elapsed": round(rng.random(), 2),
            },
        ]
    rows[1101] = {
        "Time": stamp(rng, 3),
        "Action": "output",
        "Package": "example.org/ledger",
        "Test": "TestBalance",
        "Output": "    ledger_test.go:88: got 41, want 42\n",
    }
    rows[1103] = {
        "Time": stamp(rng, 3),
        "Action": "fail",
        "Package": "example.org/ledger",
        "Test": "TestBalance",
        "Elapsed": 0.07,
    }
    return Structured(
        name,
        "ndjson",
        "\n".join(json.dumps(x) for x in rows) + "\n",
        "Which test fails, and why?",
        ("TestBalance", "ledger_test.go:88", "got 41, want 42"),
        "go test -json ./...",
    )


@made
def nginx_access(rng: random.Random, name: str) -> Structured:
    lines = [
        f'10.0.{rng.randrange(9)}.{rng.randrange(250)} - - [03/Mar/2026:10:{i // 60 % 60:02}:{i % 60:02} +0000] "GET /{_word(rng)}/{_word(rng)} HTTP/1.1" 200 {rng.randrange(200, 9000)} "-" "Mozilla/5.0"'
        for i in range(1500)
    ]
    lines[801] = '203.0.113.77 - - [03/Mar/2026:10:13:21 +0000] "POST /admin/export HTTP/1.1" 502 157 "-" "curl/8.5"'
    lines[1203] = '203.0.113.78 - - [03/Mar/2026:10:20:03 +0000] "GET /checkout HTTP/1.1" 500 99 "-" "Mozilla/5.0"'
    return Structured(
        name,
        "plain",
        "\n".join(lines) + "\n",
        "Which requests did the server not manage to answer?",
        ("/admin/export", "502", "/checkout"),
        "cat access.log",
    )


@made
def journalctl(rng: random.Random, name: str) -> Structured:
    lines = [
        f"Mar 03 10:{i // 60 % 60:02}:{i % 60:02} host {rng.choice(['systemd[1]', 'sshd[812]', 'cron[77]', 'dhclient[5]'])}: {rng.choice(['Started', 'Finished', 'Reached'])} {_word(rng)} {_word(rng)}."
        for i in range(1400)
    ]
    lines[700] = "Mar 03 10:11:40 host kernel: Out of memory: Killed process 5121 (java) total-vm:9812344kB"
    lines[702] = "Mar 03 10:11:41 host systemd[1]: shop.service: Main process exited, code=killed, status=9/KILL"
    return Structured(
        name,
        "plain",
        "\n".join(lines) + "\n",
        "Why did the shop go down?",
        ("Out of memory: Killed process 5121", "shop.service: Main process exited"),
        "journalctl -b",
    )


@made
def pip_list(rng: random.Random, name: str) -> Structured:
    rows = [
        (
            f"{_word(rng)}-{_word(rng)}{i}",
            f"{rng.randrange(9)}.{rng.randrange(20)}.{rng.randrange(9)}",
            f"{rng.randrange(9, 12)}.{rng.randrange(20)}.0",
            "wheel",
        )
        for i in range(260)
    ]
    rows[190] = ("pyyaml-legacy", "3.12", "6.0.3", "sdist")
    t = (
        "Package                  Version   Latest    Type\n------------------------ --------- --------- -----\n"
        + "\n".join((f"{a:<24} {b:<9} {c:<9} {d}" for a, b, c, d in rows))
        + "\n"
    )
    return Structured(
        name,
        "plain",
        t,
        "Which of the outdated packages is not a wheel?",
        ("pyyaml-legacy", "3.12"),
        "pip list --outdated",
    )


@made
def ls_recursive(rng: random.Random, name: str) -> Structured:
    out = []
    for d in range(90):
        out.append(f"./{_word(rng)}/{_word(rng)}{d}:")
        out.append("total 48")
        for f in range(12):
            out.append(
                f"-rw-r--r-- 1 dev dev {rng.randrange(200, 9000):>6} Mar  3 10:{rng.randrange(60):02} {_word(rng)}_{f}.py"
            )
        out.append("")
    out[640] = "-rwsr-xr-x 1 root root 918273 Mar  1 03:12 helper_shell"
    return Structured(
        name, "plain", "\n".join(out), "Is there a setuid program?", ("helper_shell", "-rwsr-xr-x"), "ls -lR"
    )


@made
def har_json(rng: random.Random, name: str) -> Structured:
    e = [
        {
            "startedDateTime": stamp(rng, i),
            "time": round(rng.uniform(10, 90), 1),
            "request": {
                "method": "GET",
                "url": f"https://shop.example/{_word(rng)}/{_word(rng)}.js",
                "headers": [{"name": "accept", "value": "*/*"}],
            },
            "response": {"status": 200, "content": {"size": rng.randrange(900), "mimeType": "text/javascript"}},
            "timings": {"wait": rng.randrange(30)},
        }
        for i in range(240)
    ]
    e[133]["request"]["url"] = "https://cdn.example/fonts/huge.woff2"
    e[133]["time"] = 48211.5
    return Structured(
        name,
        "json",
        json.dumps({"log": {"version": "1.2", "entries": e}}),
        "What makes the page slow to load?",
        ("huge.woff2", "48211.5"),
        "cat page.har",
    )


@made
def k8s_events(rng: random.Random, name: str) -> Structured:
    rows = [
        f"{rng.randrange(59)}m         Normal    {rng.choice(['Pulled', 'Created', 'Started', 'Scheduled']):<10} pod/{_word(rng)}-{hex_digits(rng, 9)}   Successfully assigned default/{_word(rng)}"
        for _ in range(420)
    ]
    rows[318] = (
        "2m          Warning   BackOff    pod/ledger-7d9f8b6c5   Back-off restarting failed container api in pod ledger-7d9f8b6c5"
    )
    return Structured(
        name,
        "plain",
        "LAST SEEN   TYPE      REASON     OBJECT   MESSAGE\n" + "\n".join(rows) + "\n",
        "What keeps crashing?",
        ("ledger-7d9f8b6c5", "Back-off restarting"),
        "kubectl get events",
    )


@made
def coverage_table(rng: random.Random, name: str) -> Structured:
    rows = [
        f"src/{_word(rng)}/{_word(rng)}{i}.py{'':<8}{rng.randrange(40, 400):>6}{rng.randrange(0, 9):>7}   {rng.randrange(90, 100)}%"
        for i in range(380)
    ]
    rows[211] = "src/payments/refund.py             210    208    1%"
    return Structured(
        name,
        "plain",
        "Name                           Stmts   Miss  Cover\n"
        + "-" * 52
        + "\n"
        + "\n".join(rows)
        + "\n"
        + "-" * 52
        + "\nTOTAL                          48211   1907    96%\n",
        "Which module is hardly tested?",
        ("src/payments/refund.py", "1%"),
        "coverage report",
    )


@made
def helm_values(rng: random.Random, name: str) -> Structured:
    lines = []
    for i in range(130):
        lines += [
            f"{_word(rng)}{i}:",
            "  image:",
            f"    repository: registry.example/{_word(rng)}",
            f"    tag: v{rng.randrange(9)}.{rng.randrange(20)}.{rng.randrange(9)}",
            "  resources:",
            "    limits:",
            f"      memory: {rng.choice([128, 256, 512])}Mi",
            "      cpu: 250m",
            "  replicas: 2",
        ]
    lines[9 * 77 + 8] = "  replicas: 0"
    who = lines[9 * 77].rstrip(":")
    return Structured(
        name, "yaml", "\n".join(lines) + "\n", "Which service is switched off?", (who, "replicas: 0"), "cat values.yaml"
    )


@made
def cargo_build(rng: random.Random, name: str) -> Structured:
    lines = [
        f"   Compiling {_word(rng)}-{_word(rng)} v{rng.randrange(3)}.{rng.randrange(20)}.{rng.randrange(9)}"
        for _ in range(400)
    ]
    for _ in range(60):
        lines += [
            f"warning: unused variable: `{_word(rng)}`",
            f"   --> src/{_word(rng)}.rs:{rng.randrange(400)}:{rng.randrange(40)}",
            "    |",
            f"{rng.randrange(99)}  |     let {_word(rng)} = 3;",
            "    |         ^^^^^ help: if this is intentional, prefix it with an underscore",
            "",
        ]
    lines[650:650] = [
        "error[E0502]: cannot borrow `ledger` as mutable because it is also borrowed as immutable",
        "   --> src/settle.rs:118:9",
        "    |",
        "117 |     let first = &ledger[0];",
        "    |                  ------ immutable borrow occurs here",
        "118 |     ledger.push(6);",
        "    |     ^^^^^^^^^^^^^^ mutable borrow occurs here",
        "",
    ]
    return Structured(
        name,
        "plain",
        "\n".join(lines) + "\nerror: could not compile `shop` due to 1 previous error\n",
        "Why does it not compile?",
        ("error[E0502]", "src/settle.rs:118:9", "ledger.push(6);"),
        "cargo build",
    )


@made
def git_blame(rng: random.Random, name: str) -> Structured:
    lines = [
        f"{hex_digits(rng, 8)} ({rng.choice(['Ada', 'Max', 'Ida', 'Bo'])} 2025-0{rng.randrange(1, 9)}-1{rng.randrange(9)} 10:00:00 +0100 {i + 1:>4}) {'    ' * rng.randrange(3)}{_word(rng)} = {_word(rng)}({rng.randrange(99)})"
        for i in range(700)
    ]
    lines[451] = "9f8e7d6c (Zoe 2026-03-02 23:58:11 +0100  452)         retries = -1  # until it works"
    return Structured(
        name,
        "plain",
        "\n".join(lines) + "\n",
        "Who set the number of retries last?",
        ("9f8e7d6c", "Zoe", "retries = -1"),
        "git blame client.py",
    )


@made
def aws_instances(rng: random.Random, name: str) -> Structured:
    inst = [
        {
            "InstanceId": f"i-{hex_digits(rng, 17)}",
            "InstanceType": rng.choice(["t3.micro", "m5.large"]),
            "State": {"Code": 16, "Name": "running"},
            "PrivateIpAddress": f"10.1.{rng.randrange(99)}.{rng.randrange(250)}",
            "Tags": [{"Key": "Name", "Value": f"{_word(rng)}-{_word(rng)}"}],
            "SecurityGroups": [{"GroupId": f"sg-{hex_digits(rng, 8)}", "GroupName": "default"}],
            "LaunchTime": stamp(rng, i),
        }
        for i in range(150)
    ]
    inst[88]["State"] = {"Code": 80, "Name": "stopped"}
    inst[88]["Tags"][0]["Value"] = "ledger-replica-2"
    return Structured(
        name,
        "json",
        json.dumps({"Reservations": [{"Instances": [x]} for x in inst]}, indent=4),
        "Which machine is not up?",
        ("ledger-replica-2", inst[88]["InstanceId"], "stopped"),
        "aws ec2 describe-instances",
    )


@made
def html_table(rng: random.Random, name: str) -> Structured:
    rows = "".join(
        f"<tr><td>{_word(rng)} {_word(rng)}</td><td>{rng.randrange(10, 90)}</td><td>in stock</td></tr>\n"
        for _ in range(420)
    )
    rows = rows.split("\n")
    rows[233] = "<tr><td>copper kettle</td><td>58</td><td>recalled</td></tr>"
    return Structured(
        name,
        "plain",
        "<html><head><title>Stock</title></head><body><table>\n<tr><th>item</th><th>price</th><th>state</th></tr>\n"
        + "\n".join(rows)
        + "</table></body></html>\n",
        "Which item must not be sold?",
        ("copper kettle", "recalled"),
        "curl stock.html",
    )


@made
def explain_plan(rng: random.Random, name: str) -> Structured:
    lines = []
    for i in range(160):
        ind = "  " * (i % 12)
        lines.append(
            f"{ind}->  Index Scan using {_word(rng)}_idx on {_word(rng)}  (cost=0.42..8.44 rows=1 width=32) (actual time=0.0{rng.randrange(9)}..0.{rng.randrange(10, 99)} rows=1 loops=1)"
        )
        lines.append(f"{ind}      Index Cond: (id = {rng.randrange(9999)})")
    lines[171] = (
        "            ->  Seq Scan on invoices  (cost=0.00..812345.00 rows=31000000 width=80) (actual time=0.02..41877.13 rows=31000000 loops=1)"
    )
    return Structured(
        name,
        "plain",
        "\n".join(lines) + "\nExecution Time: 42011.5 ms\n",
        "Why is the query slow?",
        ("Seq Scan on invoices", "41877.13"),
        "psql -c 'explain analyze'",
    )


@made
def jest_output(rng: random.Random, name: str) -> Structured:
    lines = [f"PASS src/{_word(rng)}/{_word(rng)}{i}.test.ts" for i in range(260)]
    lines[120:120] = [
        "FAIL src/cart/total.test.ts",
        "  ● total › adds tax",
        "",
        "    expect(received).toBe(expected) // Object.is equality",
        "",
        "    Expected: 119",
        "    Received: 100",
        "",
        "      14 |   const cart = build();",
        "    > 15 |   expect(total(cart)).toBe(119);",
        "         |                       ^",
        "",
        "      at Object.<anonymous> (src/cart/total.test.ts:15:23)",
        "",
    ]
    return Structured(
        name,
        "plain",
        "\n".join(lines) + "\nTests: 1 failed, 812 passed\n",
        "Which test is red?",
        ("src/cart/total.test.ts:15:23", "Expected: 119", "Received: 100"),
        "npx jest",
    )


@made
def gh_prs(rng: random.Random, name: str) -> Structured:
    prs = [
        {
            "number": i + 1000,
            "title": f"{rng.choice(['Add', 'Fix', 'Update'])} {_word(rng)} {_word(rng)}",
            "author": {"login": _word(rng)},
            "mergeable": "MERGEABLE",
            "reviewDecision": "APPROVED",
            "labels": [],
            "additions": rng.randrange(90),
            "deletions": rng.randrange(50),
        }
        for i in range(200)
    ]
    prs[77]["mergeable"] = "CONFLICTING"
    prs[77]["title"] = "Rewrite the settlement engine"
    return Structured(
        name,
        "json",
        json.dumps(prs, indent=2),
        "Which one can't be merged?",
        ("1077", "Rewrite the settlement engine", "CONFLICTING"),
        "gh pr list --json",
    )


@made
def csv_sensors(rng: random.Random, name: str) -> Structured:
    o = io.StringIO()
    w = csv.writer(o)
    w.writerow(["ts", "sensor", "celsius", "humidity", "ok"])
    for i in range(1300):
        w.writerow([stamp(rng, i), f"s-{i % 40}", round(rng.gauss(21, 1), 2), round(rng.gauss(45, 3), 1), "true"])
    t = o.getvalue().split("\r\n")
    t[777] = "2026-03-09T04:05:06Z,s-17,93.41,12.0,true"
    return Structured(name, "csv", "\r\n".join(t), "Is any room too hot?", ("s-17", "93.41"), "cat sensors.csv")


@made
def tsv_qc(rng: random.Random, name: str) -> Structured:
    lines = ["sample\treads\tmapped\tdup\tgc"] + [
        f"S{i:04}\t{rng.randrange(9, 12) * 100000}\t{rng.uniform(0.95, 0.99):.3f}\t{rng.uniform(0.05, 0.1):.3f}\t{rng.uniform(0.4, 0.43):.3f}"
        for i in range(800)
    ]
    lines[613] = "S0612\t1000000\t0.113\t0.871\t0.419"
    return Structured(
        name, "tsv", "\n".join(lines) + "\n", "Which sample is contaminated?", ("S0612", "0.113"), "cat qc.tsv"
    )


@made
def systemd_units(rng: random.Random, name: str) -> Structured:
    rows = [f"  {_word(rng)}-{_word(rng)}{i}.service   loaded active running   {_word(rng)} daemon" for i in range(300)]
    rows[205] = "● backup-nightly.service   loaded failed failed    Nightly backup of the ledger"
    return Structured(
        name,
        "plain",
        "  UNIT   LOAD ACTIVE SUB   DESCRIPTION\n" + "\n".join(rows) + "\n\n301 loaded units listed.\n",
        "What is broken?",
        ("backup-nightly.service", "failed"),
        "systemctl list-units",
    )


@made
def compose_logs(rng: random.Random, name: str) -> Structured:
    lines = [
        f"{rng.choice(['web', 'api', 'db', 'cache'])}-1  | 2026-03-03 10:{i // 60 % 60:02}:{i % 60:02} INFO  handled {_word(rng)} in {rng.randrange(9, 90)} ms"
        for i in range(1200)
    ]
    lines[640:640] = [
        "api-1  | 2026-03-03 10:10:40 ERROR could not connect to db:5432",
        "api-1  | Traceback (most recent call last):",
        'api-1  |   File "/app/pool.py", line 71, in take',
        "api-1  | asyncpg.exceptions.TooManyConnectionsError: sorry, too many clients already",
    ]
    return Structured(
        name,
        "plain",
        "\n".join(lines) + "\n",
        "What is wrong with the api?",
        ("pool.py", "TooManyConnectionsError: sorry, too many clients already"),
        "docker compose logs",
    )


@made
def xml_pmd(rng: random.Random, name: str) -> Structured:
    f = "".join(
        f'<file name="src/{_word(rng)}/{_word(rng)}{i}.java"><violation beginline="{rng.randrange(400)}" rule="UnusedImports" priority="4">Avoid unused imports</violation></file>\n'
        for i in range(260)
    ).split("\n")
    f[177] = (
        '<file name="src/auth/Login.java"><violation beginline="203" rule="InsecureCryptoIv" priority="1">Do not use hard coded initialization vector</violation></file>'
    )
    return Structured(
        name,
        "xml",
        '<?xml version="1.0"?>\n<pmd version="7.0">\n' + "\n".join(f) + "</pmd>\n",
        "What has the highest priority?",
        ("src/auth/Login.java", "InsecureCryptoIv", "203"),
        "pmd check",
    )


@made
def dig_zone(rng: random.Random, name: str) -> Structured:
    lines = [f"{_word(rng)}-{i}.example.  3600 IN A 192.0.2.{rng.randrange(250)}" for i in range(600)]
    lines[401] = "pay.example.  30 IN CNAME old-vendor.invalid."
    return Structured(
        name,
        "plain",
        "\n".join(lines) + "\n",
        "Which record does not point to an address of ours?",
        ("pay.example.", "old-vendor.invalid."),
        "dig axfr",
    )


@made
def trivy_md(rng: random.Random, name: str) -> Structured:
    rows = [
        f"| {_word(rng)}-{_word(rng)} | CVE-2025-{rng.randrange(1000, 9999)} | LOW | {rng.randrange(3)}.{rng.randrange(9)} | |"
        for _ in range(330)
    ]
    rows[122] = "| libxpress | CVE-2026-4411 | CRITICAL | 1.2.9 | 1.2.10 |"
    return Structured(
        name,
        "plain",
        "| library | id | severity | installed | fixed |\n|---|---|---|---|---|\n" + "\n".join(rows) + "\n",
        "What has to be upgraded first?",
        ("libxpress", "CVE-2026-4411", "1.2.10"),
        "trivy image",
    )


@made
def toml_lock(rng: random.Random, name: str) -> Structured:
    lines = []
    for i in range(170):
        lines += [
            "[[package]]",
            f'name = "{_word(rng)}-{_word(rng)}{i}"',
            f'version = "{rng.randrange(4)}.{rng.randrange(20)}.{rng.randrange(9)}"',
            'source = "registry+https://index.example"',
            f'checksum = "{hex_digits(rng, 64)}"',
            "",
        ]
    lines[6 * 101 + 3] = 'source = "git+https://git.example/fork?branch=hotfix"'
    lines[6 * 101 + 1] = 'name = "tls-core"'
    return Structured(
        name,
        "plain",
        "\n".join(lines),
        "Which dependency does not come from the registry?",
        ("tls-core", "git+https://git.example/fork"),
        "cat Cargo.lock",
    )


@made
def ini_sections(rng: random.Random, name: str) -> Structured:
    lines = []
    for i in range(110):
        lines += [
            f"[{_word(rng)}.{i}]",
            f"host = {_word(rng)}.example",
            "port = 5432",
            "ssl = on",
            f"pool = {rng.randrange(4, 9)}",
            "",
        ]
    lines[6 * 66 + 3] = "ssl = off"
    return Structured(
        name, "plain", "\n".join(lines), "Is any connection unencrypted?", ("ssl = off", lines[6 * 66]), "cat db.ini"
    )


@made
def env_dump(rng: random.Random, name: str) -> Structured:
    lines = [f"{_word(rng).upper()}_{_word(rng).upper()}_{i}={_word(rng)}" for i in range(400)]
    lines[233] = "HTTP_PROXY=http://10.9.8.7:3128"
    return Structured(
        name,
        "plain",
        "\n".join(lines) + "\n",
        "Do requests leave through something in between?",
        ("HTTP_PROXY=http://10.9.8.7:3128",),
        "env",
    )


@made
def ping_series(rng: random.Random, name: str) -> Structured:
    lines = ["PING db.example (192.0.2.9) 56(84) bytes of data."] + [
        f"64 bytes from 192.0.2.9: icmp_seq={i} ttl=57 time={rng.uniform(9, 12):.1f} ms" for i in range(1, 700)
    ]
    lines[412] = "64 bytes from 192.0.2.9: icmp_seq=412 ttl=57 time=2417.3 ms"
    return Structured(
        name,
        "plain",
        "\n".join(lines) + "\n--- db.example ping statistics ---\n700 packets transmitted, 699 received\n",
        "Was the network ever slow?",
        ("icmp_seq=412", "2417.3 ms"),
        "ping db.example",
    )


@made
def sql_dump(rng: random.Random, name: str) -> Structured:
    rows = ",\n".join(
        f"({i},'{_word(rng)} {_word(rng)}','active',{rng.randrange(10, 99)}.00)" for i in range(600)
    ).split("\n")
    rows[377] = "(377,'copper orchid','deleted',12.00),"
    return Structured(
        name,
        "plain",
        "INSERT INTO customers (id, name, state, balance) VALUES\n" + "\n".join(rows) + ";\n",
        "Which customer is gone?",
        ("377", "copper orchid", "deleted"),
        "cat dump.sql",
    )


@made
def prometheus(rng: random.Random, name: str) -> Structured:
    lines = []
    for i in range(420):
        lines.append(
            f'http_requests_total{{route="/{_word(rng)}/{_word(rng)}{i}",code="200"}} {rng.randrange(900, 1200)}'
        )
    lines[311] = 'http_requests_total{route="/login",code="503"} 88123'
    return Structured(
        name,
        "plain",
        "# HELP http_requests_total Requests.\n# TYPE http_requests_total counter\n" + "\n".join(lines) + "\n",
        "Where do requests go wrong?",
        ('route="/login"', 'code="503"'),
        "curl /metrics",
    )


@made
def mvn_tree(rng: random.Random, name: str) -> Structured:
    lines = [
        f"[INFO] {'|  ' * rng.randrange(4)}+- org.{_word(rng)}:{_word(rng)}-{i}:jar:{rng.randrange(5)}.{rng.randrange(9)}:compile"
        for i in range(420)
    ]
    lines[288] = "[INFO] |  |  +- (org.slf4j:slf4j-log4j12:jar:1.7.2:compile - omitted for conflict with 2.0.1)"
    return Structured(
        name,
        "plain",
        "[INFO] shop:shop:jar:1.0\n" + "\n".join(lines) + "\n[INFO] BUILD SUCCESS\n",
        "Which library clashes?",
        ("slf4j-log4j12", "omitted for conflict with 2.0.1"),
        "mvn dependency:tree",
    )


@made
def csv_users(rng: random.Random, name: str) -> Structured:
    lines = ["id,email,role,last_login,mfa"] + [
        f"{i},{_word(rng)}{i}@example.org,member,2026-03-{rng.randrange(1, 28):02},yes" for i in range(900)
    ]
    lines[501] = "500,ridge500@example.org,owner,2019-01-04,no"
    return Structured(
        name,
        "csv",
        "\n".join(lines) + "\n",
        "Which account is a risk?",
        ("ridge500@example.org", "owner", "2019-01-04"),
        "cat users.csv",
    )


@made
def geojson(rng: random.Random, name: str) -> Structured:
    f = [
        {
            "type": "Feature",
            "properties": {"name": f"{_word(rng)} {i}", "kind": "stop"},
            "geometry": {"type": "Point", "coordinates": [round(rng.uniform(4, 5), 4), round(rng.uniform(45, 46), 4)]},
        }
        for i in range(300)
    ]
    f[190]["geometry"]["coordinates"] = [-71.0589, -33.4489]
    f[190]["properties"]["name"] = "misplaced depot"
    return Structured(
        name,
        "json",
        json.dumps({"type": "FeatureCollection", "features": f}),
        "Which stop is nowhere near the others?",
        ("misplaced depot", "-71.0589"),
        "cat stops.geojson",
    )


@made
def rspec_doc(rng: random.Random, name: str) -> Structured:
    lines = []
    for i in range(150):
        lines += [
            f"{_word(rng).title()}{i}",
            f"  {_word(rng)} {_word(rng)}",
            f"    returns {_word(rng)}",
            "    keeps order",
        ]
    lines[333] = "    adds tax (FAILED - 1)"
    lines += [
        "",
        "Failures:",
        "",
        "  1) Cart total adds tax",
        "     Failure/Error: expect(total).to eq(119)",
        "",
        "       expected: 119",
        "            got: 100",
        "",
        "     # ./spec/cart_spec.rb:15:in `block'",
        "",
        "600 examples, 1 failure",
    ]
    return Structured(
        name,
        "plain",
        "\n".join(lines) + "\n",
        "Which example is red?",
        ("expect(total).to eq(119)", "got: 100", "cart_spec.rb:15"),
        "rspec",
    )


@made
def tsc_errors(rng: random.Random, name: str) -> Structured:
    lines = [
        f"src/{_word(rng)}/{_word(rng)}{i}.ts({rng.randrange(400)},{rng.randrange(60)}): error TS6133: '{_word(rng)}' is declared but its value is never read."
        for i in range(300)
    ]
    lines[177] = "src/pay/refund.ts(81,12): error TS2322: Type 'string' is not assignable to type 'Cents'."
    return Structured(
        name,
        "plain",
        "\n".join(lines) + "\nFound 300 errors.\n",
        "Which type is wrong?",
        ("src/pay/refund.ts(81,12)", "TS2322", "'Cents'"),
        "tsc --noEmit",
    )


@made
def netstat(rng: random.Random, name: str) -> Structured:
    rows = [
        f"tcp        0      0 10.0.0.5:{rng.randrange(30000, 60000)}         10.0.1.{rng.randrange(250)}:5432        ESTABLISHED {rng.randrange(900, 999)}/postgres"
        for _ in range(350)
    ]
    rows[207] = "tcp        0      0 0.0.0.0:31337           0.0.0.0:*               LISTEN      6666/nc"
    return Structured(
        name,
        "plain",
        "Proto Recv-Q Send-Q Local Address           Foreign Address         State       PID/Program name\n"
        + "\n".join(rows)
        + "\n",
        "Is anything open that should not be?",
        ("31337", "6666/nc"),
        "netstat -tnp",
    )


@made
def svg_icon(rng: random.Random, name: str) -> Structured:
    g = "".join(
        f'<path id="p{i}" d="M{rng.randrange(99)} {rng.randrange(99)}lines{rng.randrange(99)} {rng.randrange(99)}" fill="#333"/>\n'
        for i in range(400)
    ).split("\n")
    g[244] = '<path id="p244" d="M1 1L2 2" fill="#e00000" onclick="steal()"/>'
    return Structured(
        name,
        "xml",
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 99 99">\n' + "\n".join(g) + "</svg>\n",
        "Does the drawing run a script?",
        ("p244", "steal()"),
        "cat icon.svg",
    )


@made
def ansible(rng: random.Random, name: str) -> Structured:
    lines = []
    for i in range(120):
        lines += [
            f"TASK [{_word(rng)} : {_word(rng)} {i}] ***********************",
            "ok: [web1]",
            "ok: [web2]",
            "changed: [db1]",
            "",
        ]
    lines[5 * 71 + 3] = 'fatal: [db1]: UNREACHABLE! => {"msg": "No route to host"}'
    return Structured(
        name,
        "plain",
        "PLAY [all] ****\n" + "\n".join(lines) + "PLAY RECAP ***\nweb1 : ok=120 failed=0\ndb1 : ok=119 unreachable=1\n",
        "Why did it stop for the database?",
        ("UNREACHABLE!", "No route to host"),
        "ansible-playbook site.yml",
    )


@made
def bibtex(rng: random.Random, name: str) -> Structured:
    lines = []
    for i in range(150):
        lines += [
            f"@article{{key{i},",
            f"  author = {{{_word(rng).title()} {_word(rng).title()}}},",
            f"  title = {{On {_word(rng)} {_word(rng)}}},",
            f"  year = {{{rng.randrange(2015, 2026)}}}",
            "}",
            "",
        ]
    lines[6 * 88 + 3] = "  year = {1891}"
    lines[6 * 88 + 2] = "  title = {A treatise on lighthouses}"
    return Structured(
        name,
        "plain",
        "\n".join(lines),
        "Which source is more than a century old?",
        ("A treatise on lighthouses", "1891"),
        "cat refs.bib",
    )


@made
def otel_ndjson(rng: random.Random, name: str) -> Structured:
    rows = [
        {
            "traceId": hex_digits(rng, 32),
            "name": f"GET /{_word(rng)}",
            "durationMs": round(rng.uniform(3, 40), 1),
            "status": "OK",
            "attributes": {"http.status_code": 200, "peer": _word(rng)},
        }
        for _ in range(700)
    ]
    rows[411] = {
        "traceId": "feedbead" * 4,
        "name": "POST /settle",
        "durationMs": 30001.0,
        "status": "UNSET",
        "attributes": {"http.status_code": 504, "peer": "ledger"},
    }
    return Structured(
        name,
        "ndjson",
        "\n".join(json.dumps(x) for x in rows) + "\n",
        "Which call took too long?",
        ("POST /settle", "30001.0", "feedbead"),
        "cat spans.jsonl",
    )


@made
def hex_dump(rng: random.Random, name: str) -> Structured:
    lines = [f"{i * 16:08x}  " + " ".join("00" for _ in range(16)) + "  |................|" for i in range(600)]
    lines[451] = "00001c30  50 4b 03 04 14 00 08 08  08 00 6f 5a 63 5c 00 00  |PK........oZc...|"
    return Structured(
        name,
        "plain",
        "\n".join(lines) + "\n",
        "Is there an archive inside?",
        ("50 4b 03 04", "PK...."),
        "hexdump -C image.bin",
    )


@made
def release_notes(rng: random.Random, name: str) -> Structured:
    lines = ["# Changelog", ""]
    for v in range(90):
        lines += [
            f"## 4.{90 - v}.0",
            "",
            *(
                f"- {rng.choice(['Fix', 'Add', 'Improve'])} {_word(rng)} {_word(rng)} handling in the {_word(rng)} module"
                for _ in range(6)
            ),
            "",
        ]
    lines[400] = "- **Breaking:** tokens without an expiry date are rejected"
    return Structured(
        name,
        "plain",
        "\n".join(lines),
        "What changed for tokens?",
        ("tokens without an expiry date are rejected",),
        "cat CHANGELOG.md",
    )
