"""Texts with structure as agents get them, each with a question and the strings that answer it.

All of them are made here by a seed. A needle that shares no word with its question is found by what is odd about it.
"""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from kimi_proxy.core.prune import SourceType

Form = Literal["json", "ndjson", "csv", "tsv", "xml", "yaml", "plain"]

WORDS = [
    "amber",
    "anchor",
    "basin",
    "beacon",
    "birch",
    "canyon",
    "cedar",
    "cobalt",
    "copper",
    "coral",
    "delta",
    "ember",
    "fable",
    "falcon",
    "garnet",
    "glacier",
    "harbor",
    "hazel",
    "indigo",
    "island",
    "jasper",
    "juniper",
    "kestrel",
    "lagoon",
    "lantern",
    "maple",
    "marble",
    "meadow",
    "nectar",
    "nimbus",
    "oasis",
    "onyx",
    "opal",
    "orchid",
    "pebble",
    "pine",
    "prairie",
    "quartz",
    "raven",
    "ridge",
    "river",
    "saffron",
    "sierra",
    "slate",
    "spruce",
    "summit",
    "tundra",
    "umber",
    "valley",
    "velvet",
    "willow",
]
CITIES = ("Lyon", "Oslo", "Porto", "Turin", "Ghent", "Malmo", "Riga", "Graz", "Bern", "Cork")


@dataclass(frozen=True, slots=True)
class Structured:
    """A text, what its reader wants to know, and what has to be in whatever is left of it."""

    name: str
    form: Form
    text: str
    goal: str
    needles: tuple[str, ...]
    command: str
    path: str = ""  # that a file has, or the output of a command is written to
    is_file: bool = False  # it was read, not printed
    source_type: SourceType | None = None  # that a caller gives it; None: what its lines look like
    ask: str = ""  # how the question is put: in plain words, paraphrased, in French …


def texts(seed: int = 27) -> list[Structured]:
    return [make(random.Random(f"{seed} {name}"), name) for name, make in MAKERS.items()]


Make = Callable[[random.Random, str], Structured]
MAKERS: dict[str, Make] = {}


def made(make: Make) -> Make:
    MAKERS[make.__name__.replace("_", " ")] = make
    return make


def hex_digits(rng: random.Random, chars: int) -> str:
    return f"{rng.getrandbits(4 * chars):0{chars}x}"


def stamp(rng: random.Random, day: int) -> str:
    return f"2026-03-{day % 28 + 1:02}T{rng.randrange(24):02}:{rng.randrange(60):02}:{rng.randrange(60):02}Z"


def slug(rng: random.Random) -> str:
    return f"{rng.choice(WORDS)}-{rng.choice(WORDS)}"


def _order(rng: random.Random, at: int) -> dict[str, object]:
    return {
        "id": f"ord_{40_000 + at}",
        "customer": {"name": f"{rng.choice(WORDS).title()} Ltd", "city": rng.choice(CITIES)},
        "status": "shipped" if at % 3 else "delivered",
        "total": round(rng.uniform(15, 240), 2),
        "currency": "EUR",
        "placed_at": stamp(rng, at),
        "items": [{"sku": hex_digits(rng, 8), "quantity": rng.randint(1, 4)} for _ in range(rng.randint(1, 3))],
    }


def _orders(rng: random.Random, count: int) -> list[dict[str, object]]:
    return [_order(rng, at) for at in range(count)]


@made
def orders_array(rng: random.Random, name: str) -> Structured:
    orders = _orders(rng, 1000)
    orders[617] |= {"status": "failed", "failure": {"code": "card_declined", "detail": "issuer timeout after 30 s"}}
    needles = ("ord_40617", "card_declined", "issuer timeout after 30 s")
    return Structured(name, "json", json.dumps(orders), "Which order failed and why?", needles, "curl api/orders")


@made
def orders_pretty(rng: random.Random, name: str) -> Structured:
    orders = _orders(rng, 260)
    orders[201]["total"] = -4120.75
    orders[88]["currency"] = "XAU"
    text = json.dumps({"data": orders, "page": 1, "has_more": False}, indent=2)
    return Structured(
        name, "json", text, "Is anything wrong with these?", ("-4120.75", "ord_40201", '"XAU"'), "http api"
    )


@made
def orders_by_key(rng: random.Random, name: str) -> Structured:
    orders = {str(order["id"]): order for order in _orders(rng, 300)}
    orders["ord_40155"]["status"] = "refunded"
    orders["ord_40231"].pop("items")
    text = json.dumps(orders, indent=1)
    return Structured(
        name, "json", text, "Which one was refunded?", ('"ord_40155"', '"refunded"', '"ord_40231"'), "http api"
    )


def _pod(rng: random.Random, at: int) -> dict[str, object]:
    app = slug(rng)
    labels = {"app": app, "pod-template-hash": hex_digits(rng, 10), "team": rng.choice(WORDS), "tier": "backend"}
    env = [{"name": f"{rng.choice(WORDS).upper()}_URL", "value": f"http://{slug(rng)}:{rng.randrange(3000, 9000)}"}]
    container = {
        "name": app,
        "image": f"registry.example/{app}:{rng.randrange(1, 9)}.{rng.randrange(20)}",
        "env": env * 6,
        "resources": {"limits": {"cpu": "500m", "memory": "512Mi"}, "requests": {"cpu": "100m", "memory": "128Mi"}},
        "terminationMessagePolicy": "File",
        "volumeMounts": [{"mountPath": "/var/run/secrets", "name": f"kube-api-{hex_digits(rng, 5)}", "readOnly": True}],
    }
    kinds = ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    conditions = [{"type": kind, "status": "True", "lastTransitionTime": stamp(rng, at)} for kind in kinds]
    state = {"running": {"startedAt": stamp(rng, at)}}
    status = {"name": app, "ready": True, "restartCount": at % 2, "started": True, "state": state}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{app}-{hex_digits(rng, 5)}",
            "namespace": "shop",
            "labels": labels,
            "uid": hex_digits(rng, 32),
        },
        "spec": {"containers": [container], "nodeName": f"node-{at % 5}", "restartPolicy": "Always"},
        "status": {
            "phase": "Running",
            "conditions": conditions,
            "containerStatuses": [status],
            "podIP": f"10.1.2.{at}",
        },
    }


@made
def kubectl_pods(rng: random.Random, name: str) -> Structured:
    pods = [_pod(rng, at) for at in range(45)]
    sick = json.loads(json.dumps(pods[31]))
    sick["metadata"]["name"] = "checkout-worker-7f9c4"
    waiting = {"reason": "CrashLoopBackOff", "message": "back-off 5m0s restarting failed container=checkout"}
    sick["status"]["containerStatuses"][0] |= {"ready": False, "restartCount": 214, "state": {"waiting": waiting}}
    pods[31] = sick
    text = json.dumps({"apiVersion": "v1", "items": pods, "kind": "List"}, indent=4)
    needles = ("checkout-worker-7f9c4", "CrashLoopBackOff", '"restartCount": 214')
    return Structured(name, "json", text, "Why does the checkout not come up?", needles, "kubectl get pods -o json")


@made
def kubectl_one_line(rng: random.Random, name: str) -> Structured:
    pods = [_pod(rng, at) for at in range(40)]
    sick = json.loads(json.dumps(pods[22]))
    sick["metadata"]["name"] = "ledger-sync-0"
    last = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    sick["status"]["containerStatuses"][0] |= {"lastState": last, "restartCount": 31}
    pods[22] = sick
    needles = ("ledger-sync-0", "OOMKilled", '"exitCode": 137')
    return Structured(
        name, "json", json.dumps({"items": pods}), "Which pod restarts, and why?", needles, "kubectl -o json"
    )


def _tree(rng: random.Random, depth: int) -> dict[str, object]:
    node: dict[str, object] = {"version": f"{rng.randrange(9)}.{rng.randrange(20)}.{rng.randrange(30)}"}
    node["resolved"] = f"https://registry.example/{slug(rng)}/-/{hex_digits(rng, 12)}.tgz"
    node["overridden"] = False
    if depth:
        node["dependencies"] = {
            f"{slug(rng)}-{hex_digits(rng, 3)}": _tree(rng, depth - 1) for _ in range(rng.randint(3, 6))
        }
    return node


@made
def npm_ls(rng: random.Random, name: str) -> Structured:
    tree = _tree(rng, 4)
    inner = tree
    for _ in range(3):
        inner = rng.choice(list(inner["dependencies"].values()))  # type: ignore[attr-defined]
    problem = "invalid: left-trim@4.0.1 /srv/shop/node_modules/left-trim"
    inner["dependencies"]["left-trim"] = {
        "version": "4.0.1",
        "invalid": '"^3.2.0" from pad-core',
        "problems": [problem],
    }  # type: ignore[index]
    text = json.dumps({"name": "shop", "problems": [problem], **tree}, indent=2)
    needles = ('"left-trim"', '\\"^3.2.0\\" from pad-core', "invalid: left-trim@4.0.1")
    return Structured(name, "json", text, "Which dependency has the wrong version?", needles, "npm ls --all --json")


def _package(rng: random.Random) -> dict[str, object]:
    path = slug(rng)
    return {
        "version": f"{rng.randrange(9)}.{rng.randrange(20)}.{rng.randrange(30)}",
        "resolved": f"https://registry.example/{path}/-/{path}.tgz",
        "integrity": f"sha512-{hex_digits(rng, 86)}==",
        "license": "MIT",
        "engines": {"node": ">=18"},
    }


@made
def package_lock(rng: random.Random, name: str) -> Structured:
    packages = {f"node_modules/{slug(rng)}-{hex_digits(rng, 3)}": _package(rng) for _ in range(500)}
    packages["node_modules/tiny-yaml"] = {**_package(rng), "version": "2.7.19"}
    items = list(packages.items())
    odd = {**_package(rng), "license": "SSPL-1.0", "hasInstallScript": True, "deprecated": "moved to @frost/glaze"}
    items.insert(340, ("node_modules/frost-glaze", odd))
    text = json.dumps({"name": "shop", "lockfileVersion": 3, "packages": dict(items)}, indent=2)
    needles = ("node_modules/tiny-yaml", "2.7.19", "SSPL-1.0", "moved to @frost/glaze")
    return Structured(name, "json", text, "Which version of tiny-yaml is locked?", needles, "cat package-lock.json")


@made
def open_api(rng: random.Random, name: str) -> Structured:
    paths: dict[str, object] = {}
    for _ in range(90):
        noun = f"{slug(rng)}s"
        reply = {"description": "OK", "content": {"application/json": {"schema": {"$ref": f"#/components/{noun}"}}}}
        query = {"name": "limit", "in": "query", "schema": {"type": "integer", "maximum": 100}}
        verb = {
            "summary": f"List {noun}",
            "operationId": f"list_{noun}",
            "parameters": [query],
            "responses": {"200": reply},
        }
        paths[f"/v1/{noun}"] = {
            "get": verb,
            "post": {**verb, "summary": f"Create {noun}", "operationId": f"create_{noun}"},
        }
    wait = {"name": "grace_days", "in": "query", "schema": {"type": "integer", "default": 45}}
    end = {"summary": "Cancel a subscription", "operationId": "cancel_subscription", "parameters": [wait]}
    old = {"summary": "Export", "operationId": "export_v0", "deprecated": True, "x-sunset": "2026-09-30"}
    items = list(paths.items())
    items.insert(52, ("/v1/subscriptions/{id}/end", {"delete": {**end, "responses": {"204": {"description": "Gone"}}}}))
    items.insert(71, ("/v0/export", {"get": {**old, "responses": {"410": {"description": "Gone"}}}}))
    text = json.dumps({"openapi": "3.1.0", "info": {"title": "Shop"}, "paths": dict(items)}, indent=2)
    needles = ("/v1/subscriptions/{id}/end", "grace_days", "x-sunset")
    return Structured(name, "json", text, "How do I cancel a subscription?", needles, "curl api/openapi.json")


@made
def docker_inspect(rng: random.Random, name: str) -> Structured:
    flags = {"Running": False, "Paused": False, "Restarting": False, "OOMKilled": True, "Dead": False, "ExitCode": 137}
    env = [f"{rng.choice(WORDS).upper()}_{at}={hex_digits(rng, 24)}" for at in range(160)]
    labels = {f"com.example.{rng.choice(WORDS)}.{at}": hex_digits(rng, 16) for at in range(140)}
    mounts = [
        {"Type": "bind", "Source": f"/srv/{slug(rng)}", "Destination": f"/{slug(rng)}", "RW": True} for _ in range(40)
    ]
    text = json.dumps(
        [
            {
                "Id": hex_digits(rng, 64),
                "State": {"Status": "exited", **flags, "FinishedAt": "2026-03-04T11:22:33Z"},
                "Name": "/ledger-import",
                "HostConfig": {"Memory": 268435456, "NetworkMode": "shop", "Binds": [m["Source"] for m in mounts]},
                "Mounts": mounts,
                "Config": {"Env": env, "Labels": labels, "Cmd": ["import", "--all"]},
            }
        ],
        indent=4,
    )
    needles = ('"OOMKilled": true', '"ExitCode": 137', '"Memory": 268435456')
    return Structured(name, "json", text, "Why did the container exit?", needles, "docker inspect ledger-import")


@made
def search_answer(rng: random.Random, name: str) -> Structured:
    hits = [
        {
            "_id": hex_digits(rng, 12),
            "_score": round(rng.uniform(1, 3), 3),
            "_source": {"title": slug(rng), "body": prose(rng, 60)},
        }
        for _ in range(180)
    ]
    hits[120]["_source"] = {"title": "rotation", "body": "Signing keys are rotated by the vault job every 19 days."}
    text = json.dumps({"took": 31, "timed_out": False, "hits": {"total": {"value": 180}, "hits": hits}})
    needles = ("every 19 days", "vault job", '"took": 31')
    return Structured(name, "json", text, "How often are signing keys rotated?", needles, "curl search")


def prose(rng: random.Random, words: int) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(words)).capitalize() + "."


@made
def metrics_numbers(rng: random.Random, name: str) -> Structured:
    points = [
        {"minute": at, "latency_ms": round(rng.gauss(42, 4), 1), "errors": 0, "host": f"web-{at % 6}"}
        for at in range(900)
    ]
    points[512] |= {"latency_ms": 8123.4, "host": "web-9"}
    points[705]["errors"] = 61
    text = json.dumps({"series": points})
    return Structured(name, "json", text, "Was there a spike?", ("8123.4", '"web-9"', '"errors": 61'), "curl metrics")


@made
def settings_object(rng: random.Random, name: str) -> Structured:
    tree = {
        f"{rng.choice(WORDS)}_{at}": {
            f"{rng.choice(WORDS)}_{n}": rng.choice((True, False, rng.randrange(500))) for n in range(14)
        }
        for at in range(70)
    }
    tree["uploads"] = {"max_megabytes": 25, "virus_scan": True, "bucket": "s3://shop-incoming"}
    keys = list(tree)
    rng.shuffle(keys)
    text = json.dumps({key: tree[key] for key in keys}, indent=2)
    needles = ('"max_megabytes": 25', "s3://shop-incoming", '"uploads"')
    return Structured(name, "json", text, "How large may uploads be?", needles, "cat settings.json")


@made
def notebook(rng: random.Random, name: str) -> Structured:
    cells: list[dict[str, object]] = []
    for at in range(40):
        source = [f"frame_{at} = load('{slug(rng)}.parquet')\n", f"frame_{at}.describe()\n"]
        shown = [f"{rng.choice(WORDS):12} {rng.random():.6f} {rng.random():.6f}\n" for _ in range(25)]
        output = {"output_type": "stream", "name": "stdout", "text": shown}
        cells.append(
            {"cell_type": "code", "execution_count": at, "source": source, "outputs": [output], "metadata": {}}
        )
    trace = ["Traceback (most recent call last)\n", "KeyError: 'net_revenue'\n"]
    cells[27]["outputs"] = [
        {"output_type": "error", "ename": "KeyError", "evalue": "'net_revenue'", "traceback": trace}
    ]
    cells[27]["source"] = ["merged.groupby('region')['net_revenue'].sum()\n"]
    picture = {"output_type": "display_data", "data": {"image/png": hex_digits(rng, 24_000)}}
    cells[12]["outputs"] = [picture]
    text = json.dumps({"cells": cells, "nbformat": 4, "metadata": {"kernelspec": {"name": "python3"}}}, indent=1)
    needles = ("KeyError", "'net_revenue'", "merged.groupby('region')")
    return Structured(name, "json", text, "Where does the notebook stop?", needles, "cat report.ipynb")


def _event(rng: random.Random, at: int, wide: int) -> dict[str, object]:
    tags = {f"{rng.choice(WORDS)}{n}": hex_digits(rng, 10) for n in range(wide)}
    return {
        "ts": stamp(rng, at // 60),
        "level": "info",
        "service": rng.choice(WORDS[:8]),
        "msg": prose(rng, 8),
        "tags": tags,
    }


def _ndjson(rows: Sequence[object]) -> str:
    return "\n".join(json.dumps(row) for row in rows) + "\n"


@made
def events_ndjson(rng: random.Random, name: str) -> Structured:
    rows = [_event(rng, at, 3) for at in range(500)]
    rows[333] |= {"level": "error", "service": "billing", "msg": "invoice 88123 has no tax rate for country XK"}
    needles = ("invoice 88123", "country XK", '"billing"')
    return Structured(name, "ndjson", _ndjson(rows), "What went wrong?", needles, "cat events.jsonl")


@made
def wide_ndjson(rng: random.Random, name: str) -> Structured:
    rows = [_event(rng, at, 60) for at in range(60)]
    rows[41] |= {"level": "warn", "msg": "replica lag is 412 s on shard 7", "trace_id": "9f31ac77"}
    rows[17]["msg"] = "quota exceeded for tenant umbra-labs"
    needles = ("replica lag is 412 s", "9f31ac77", "umbra-labs")
    return Structured(name, "ndjson", _ndjson(rows), "Which shard is behind?", needles, "cat wide.jsonl")


@made
def audit_ndjson(rng: random.Random, name: str) -> Structured:
    rows = [
        {
            "at": stamp(rng, n // 40),
            "who": f"{rng.choice(WORDS[:9])}@shop.example",
            "did": "login",
            "ip": f"10.0.{n % 9}.{n % 250}",
        }
        for n in range(1200)
    ]
    rows[801] |= {"did": "delete_bucket", "target": "s3://ledger-archive", "ip": "203.0.113.77"}
    needles = ("delete_bucket", "s3://ledger-archive", "203.0.113.77")
    return Structured(name, "ndjson", _ndjson(rows), "Who removed the archive?", needles, "cat audit.jsonl")
