"""The files of a deployment: read as their tools read them, and what the image runs is run."""

import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from tests.support.checkout import clean_env
from tests.support.deep import deep
from tests.support.processes import within

from kimi_proxy.services.metrics import Metrics

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text("utf-8")
BIN = Path(sys.executable).parent
TOKEN = "t" * 20


def passes(*command: str | Path) -> None:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_dockerfile_is_clean():
    if not (BIN / "hadolint").exists():
        pytest.skip("hadolint has no build for this system")
    passes(BIN / "hadolint", DEPLOY / "Dockerfile")


def test_the_image_leaves_libraries_alone_that_do_not_load_once_stripped():
    """NumPy's OpenBLAS is such a one: the image would not start. `scripts/bench image` starts it."""
    (stripping,) = [line for line in DOCKERFILE.splitlines() if "strip --strip-unneeded" in line]
    assert "-not -path '*.libs/*'" in stripping


def test_the_dockerfile_copies_what_exists_and_what_the_context_holds():
    copied = [name for line in re.findall(r"^COPY (?!--)(.*) \S+$", DOCKERFILE, re.M) for name in line.split()]
    context = (ROOT / ".dockerignore").read_text("utf-8").splitlines()

    assert copied
    assert [name for name in copied if not (ROOT / name).exists() or f"!{name}" not in context] == []


def test_the_wheel_needs_nothing_that_the_image_is_not_built_from():
    wheel = (ROOT / "pyproject.toml").read_text("utf-8").partition("[tool.hatch.build.targets.wheel]")[2]
    included = re.findall(r'"([\w.]+)" = "kimi_proxy/', wheel.partition("\n[")[0])

    assert included
    assert [name for name in included if f" {name} " not in DOCKERFILE] == []


def test_the_compose_file_has_the_shape_that_docker_reads():
    passes(sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", DEPLOY / "compose.yaml")


def test_the_manifests_have_the_shape_that_kubernetes_reads():
    passes(sys.executable, "-m", "kubernetes_validate", "--strict", "--no-warn", DEPLOY / "kubernetes.yaml")


def test_nginx_reads_its_configuration(tmp_path: Path):
    nginx = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if nginx is None:
        pytest.skip("nginx is not installed here: Debian's package is nginx-light")
    # Names of containers are found only beside them.
    text = re.sub(r"kimi-proxy-\d:", "127.0.0.1:", (DEPLOY / "nginx.conf").read_text("utf-8"))
    (tmp_path / "nginx.conf").write_text(f"pid {tmp_path}/nginx.pid;\n{text}")

    passes(nginx, "-t", "-e", tmp_path / "error.log", "-p", tmp_path, "-c", tmp_path / "nginx.conf")


def test_systemd_reads_the_unit(tmp_path: Path):
    if (analyze := shutil.which("systemd-analyze")) is None:
        pytest.skip("systemd-analyze is not installed here: Debian's package is systemd")
    text = (DEPLOY / "kimi-proxy.service").read_text("utf-8")
    unit = tmp_path / "kimi-proxy.service"
    unit.write_text(text.replace("/opt/kimi-proxy/bin/kimi-proxy", "/bin/true").replace("man:kimi-proxy(1)", ""))

    done = subprocess.run([analyze, "verify", unit], capture_output=True, text=True, timeout=60, check=False)
    if "Failed to" in done.stderr and "kimi-proxy.service:" not in done.stderr:
        pytest.skip(f"systemd-analyze does not work here: {done.stderr.splitlines()[0]}")

    assert [line for line in done.stderr.splitlines() if "kimi-proxy.service" in line] == []


def test_every_stop_waits_for_the_drain():
    drain = sum(map(float, re.findall(r"SHUTDOWN__(?:NOTICE|DRAIN)_S=(\d+)", DOCKERFILE)))
    graces = {
        "compose.yaml": r"stop_grace_period: (\d+)s",
        "kubernetes.yaml": r"terminationGracePeriodSeconds: (\d+)",
        "kimi-proxy.service": r"TimeoutStopSec=(\d+)",
    }

    assert drain
    for name, pattern in graces.items():
        (grace,) = re.findall(pattern, (DEPLOY / name).read_text("utf-8"))
        assert float(grace) > drain, name


def image_settings() -> Iterator[tuple[str, str]]:
    (block,) = re.findall(r"^ENV ((?:.*\\\n)*.*)$", DOCKERFILE, re.M)
    for setting in block.replace("\\\n", " ").split():
        name, _, value = setting.partition("=")
        yield name, value


@deep
def test_what_the_image_runs_is_ready_and_stops_by_sigterm(tmp_path: Path):
    """Run the image's command with its settings: all that it writes is in the folder that the image keeps."""
    (health,) = re.findall(r"^    CMD (\[.*\])$", DOCKERFILE, re.M)
    entry = json.loads(re.findall(r"^ENTRYPOINT (.*)$", DOCKERFILE, re.M)[0])
    command = json.loads(re.findall(r"^CMD (.*)$", DOCKERFILE, re.M)[0])
    assert entry == ["/opt/kimi-proxy/bin/kimi-proxy"]
    data = tmp_path / "data"
    data.mkdir()
    env = clean_env(tmp_path / "home") | dict(image_settings()) | {"KIMI_PROXY_HOME": str(data)}
    env |= {"KIMI_PROXY_TOKEN": TOKEN, "KIMI_PROXY_PORT": "0", "MCP_PRUNER_PORT": "0", "KIMI_PROXY_HOST": "127.0.0.1"}
    env |= {"MCP_PRUNER_HOST": "127.0.0.1", "KIMI_PROXY__SHUTDOWN__NOTICE_S": "0"}

    with subprocess.Popen([BIN / "kimi-proxy", *command], stderr=subprocess.PIPE, cwd=data, env=env) as process:
        try:
            assert process.stderr is not None
            addresses = dict[bytes, str]()
            for line in process.stderr:
                if found := re.search(rb"the (\w+) listens on (http\S+)", line):
                    addresses[found[1]] = found[2].decode()
                if len(addresses) == 2:
                    break
            proxy = addresses[b"proxy"]
            check = [part.replace("http://127.0.0.1:8000", proxy) for part in json.loads(health)]
            # Docker asks again when a busy machine is late.
            assert within(60, lambda: subprocess.run([sys.executable, *check[1:]], check=False).returncode == 0)
            asked = Request(f"{proxy}/api/sessions", headers={"authorization": f"Bearer {TOKEN}"})
            answer = json.load(urlopen(asked, timeout=60))
            process.send_signal(signal.SIGTERM)
            rest = process.stderr.read()
            code = process.wait(60)
        finally:
            process.kill()

    assert code == 0, rest
    assert answer["sessions"] == []
    assert list((tmp_path / "home").rglob("*")) == []
    assert list(data.iterdir())


def test_the_grafana_dashboard_asks_for_metrics_that_exist():
    board = json.loads((DEPLOY / "grafana.json").read_text("utf-8"))
    asked = {
        name for panel in board["panels"] for t in panel["targets"] for name in re.findall(r"kimi_proxy_\w+", t["expr"])
    }
    families = set(re.findall(r"^# TYPE (\S+)", Metrics().text().decode(), re.M))

    assert asked
    assert {re.sub(r"_bucket$", "", name) for name in asked} <= families
