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
import yaml
from tests.support.checkout import clean_env
from tests.support.deep import deep
from tests.support.processes import within

from kimi_proxy.core.config import parse
from kimi_proxy.core.json import JsonObject
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


CHART = DEPLOY / "helm" / "kimi-proxy"
NEEDED = ("--set", "secret.values.token=0123456789abcdef", "--set", "secret.values.database-url=postgresql://db/kimi")
EVERYTHING = (
    *("--set", "autoscaling.enabled=true,networkPolicy.enabled=true,service.pruner=true"),
    *("--set", "ingress.enabled=true,ingress.host=kimi.example.org,ingress.className=nginx"),
    *("--set", "metrics.serviceMonitor.enabled=true,metrics.alerts.enabled=true"),
    *("--set", "externalSecret.enabled=true,externalSecret.storeRef.name=vault,externalSecret.remoteKey=kimi"),
)


def helm(*command: str | Path) -> str:
    program = BIN / "helm"
    if not program.exists():
        pytest.skip("helm has no build for this system")
    done = subprocess.run([program, *command], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rendered(*values: str) -> dict[str, JsonObject]:
    """Return what the chart makes, by kind."""
    found = yaml.safe_load_all(helm("template", "kimi", CHART, "--namespace", "tools", *values))
    return {one["kind"]: one for one in found if one}


@pytest.mark.parametrize("values", [NEEDED, EVERYTHING], ids=["least", "everything"])
def test_the_chart_is_linted_and_makes_what_kubernetes_reads(values: tuple[str, ...], tmp_path: Path):
    helm("lint", "--strict", CHART, *values)
    ours = {"ServiceMonitor", "PrometheusRule", "ExternalSecret"}  # kinds of operators, whose schemas are not here
    made = {kind: one for kind, one in rendered(*values).items() if kind not in ours}
    (tmp_path / "made.yaml").write_text("---\n".join(json.dumps(one) + "\n" for one in made.values()))

    passes(sys.executable, "-m", "kubernetes_validate", "--strict", "--no-warn", tmp_path / "made.yaml")


def test_the_chart_makes_each_part_only_where_it_is_asked_for():
    least, most = rendered(*NEEDED), rendered(*EVERYTHING)
    always = {"Deployment", "Service", "ConfigMap", "PodDisruptionBudget"}
    assert set(least) == {*always, "Secret"}
    more = {"HorizontalPodAutoscaler", "Ingress", "NetworkPolicy", "ServiceMonitor", "PrometheusRule", "ExternalSecret"}
    assert set(most) == always | more
    assert "replicas" not in most["Deployment"]["spec"]
    assert most["ServiceMonitor"]["spec"]["endpoints"][0]["port"] == "metrics"
    assert most["PrometheusRule"]["spec"]["groups"] == yaml.safe_load((CHART / "alerts.yaml").read_text())["groups"]

    container = most["Deployment"]["spec"]["template"]["spec"]["containers"][0]
    env = {one["name"]: one.get("value") for one in container["env"]}
    assert "kimi.example.org" in env["KIMI_PROXY_ALLOWED_HOSTS"].split(",")
    assert container["envFrom"] == [{"secretRef": {"name": most["ExternalSecret"]["spec"]["target"]["name"]}}]
    assert {"KIMI_PROXY_DATABASE_LISTEN_URL", "KIMI_PROXY_OIDC_CLIENT_SECRET"} <= env.keys()


def test_the_chart_says_which_secret_is_missing():
    done = subprocess.run(
        [BIN / "helm", "template", "kimi", CHART], capture_output=True, text=True, timeout=120, check=False
    )
    assert "set secret.name, externalSecret, or secret.values.token" in done.stderr


def test_the_settings_that_the_files_give_are_settings_of_kimi_proxy(tmp_path: Path):
    texts = [(DEPLOY / name).read_text("utf-8") for name in ("compose.yaml", "kubernetes.yaml")]
    texts.append(helm("template", "kimi", CHART, *NEEDED))
    named = set(re.findall(r"KIMI_PROXY__[A-Z0-9_]+", "".join(texts)))
    assert {"KIMI_PROXY__TEAM__ENABLED", "KIMI_PROXY__METRICS__ENABLED"} <= named
    values = {"ENABLED": "true", "HOST": "0.0.0.0", "PORT": "9464"}
    env = {name: values[name.rpartition("__")[2]] for name in named}
    assert parse("", env, tmp_path).team.enabled
    config = rendered(*NEEDED)["ConfigMap"]["data"]["config.toml"]
    assert parse(config, {}, tmp_path).team.enabled


def test_every_file_names_the_image_that_a_release_publishes():
    release = [sys.executable, str(ROOT / "scripts" / "release")]
    made = subprocess.run(
        [*release, "image", "Some-Owner/kimi"], capture_output=True, text=True, check=True, timeout=60
    )
    wanted = made.stdout.strip().replace("some-owner", "OWNER")
    assert wanted.startswith("ghcr.io/OWNER/kimi-proxy:")
    assert f"image: {wanted}" in (DEPLOY / "kubernetes.yaml").read_text("utf-8")
    assert f":-{wanted}}}" in (DEPLOY / "compose.yaml").read_text("utf-8")
    container = rendered(*NEEDED)["Deployment"]["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == wanted
    workflow = (ROOT / ".github" / "workflows" / "release.yml").read_text("utf-8")
    assert 'scripts/release image "$GITHUB_REPOSITORY"' in workflow and 'docker push "$IMAGE"' in workflow


def test_nginx_has_room_for_10_000_streams():
    text = (DEPLOY / "nginx.conf").read_text("utf-8")
    (connections,), (files,) = (
        re.findall(rf"{name} (\d+);", text) for name in ("worker_connections", "worker_rlimit_nofile")
    )
    assert int(connections) >= 2 * 10_000  # even if one worker has all of them
    assert int(files) >= 2 * int(connections)
    assert "proxy_buffering off;" in text and "least_conn;" in text


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


@deep("it starts a server as the image does; test_start.py starts one as people do")
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


def test_the_alerts_ask_for_metrics_that_exist():
    rules = yaml.safe_load((CHART / "alerts.yaml").read_text())["groups"][0]["rules"]
    asked = {name for rule in rules for name in re.findall(r"kimi_proxy_\w+", rule["expr"])}
    families = set(re.findall(r"^# TYPE (\S+)", Metrics().text().decode(), re.M))

    assert {re.sub(r"_bucket$", "", name) for name in asked} <= families
    if promtool := shutil.which("promtool"):
        passes(promtool, "check", "rules", CHART / "alerts.yaml")


def test_the_grafana_dashboard_asks_for_metrics_that_exist():
    board = json.loads((DEPLOY / "grafana.json").read_text("utf-8"))
    asked = {
        name for panel in board["panels"] for t in panel["targets"] for name in re.findall(r"kimi_proxy_\w+", t["expr"])
    }
    families = set(re.findall(r"^# TYPE (\S+)", Metrics().text().decode(), re.M))

    assert asked
    assert {re.sub(r"_bucket$", "", name) for name in asked} <= families
