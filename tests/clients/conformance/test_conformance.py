"""The official conformance suite, against the pruner, the gateway and the gateway's own client, in both eras.

The pruner has tools of its own; the suite's are served through the same doors by fixtures, and behind the gateway.
Whatever does not apply is listed in baselines/, with reasons in docs/conformance.md: a scenario that fails and is
not listed fails the test, and so does one that is listed and passes.
"""

import asyncio
import json
import os
import re
import sys
from pathlib import Path

import pytest
from tests.clients.conformance.doors import fixtures_on_a_port
from tests.support.api.proxy_world import proxy
from tests.support.clients.judges import conformance
from tests.support.clients.servers import INSTALL_S
from tests.support.deep import too

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
BASELINES = HERE / "baselines"
PATIENTLY = ("--timeout", "90000")
VERSIONS = ["2025-11-25", "2026-07-28"]
# One of each version always runs; tests/proxy/mcp shows each of these behaviours without the suite.
ALWAYS = {("2025-11-25", "sse-retry"), ("2026-07-28", "tools_call")}
CLIENT_SCENARIOS = {
    "2025-11-25": ["initialize", "tools_call", "sse-retry", "json-schema-2020-12-preservation"],
    "2026-07-28": [
        *("tools_call", "request-metadata", "http-standard-headers", "http-custom-headers"),
        *(
            "http-invalid-tool-headers",
            "sep-2322-client-request-state",
            "json-schema-ref-no-deref",
            "json-schema-2020-12-preservation",
        ),
    ],
}

pytestmark = pytest.mark.timeout(INSTALL_S + 600)


@pytest.fixture(scope="session")
def suite() -> list[str]:
    return conformance()


async def ran(suite: list[str], *arguments: str) -> tuple[int, str]:
    """The exit code of a run, and what it printed, without colours."""
    process = await asyncio.create_subprocess_exec(
        *suite, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    return process.returncode or 0, re.sub(r"\x1b\[\d*m", "", output.decode(errors="replace"))


async def assert_conforms(suite: list[str], url: str, version: str, who: str) -> None:
    baseline = str(BASELINES / f"{who}-{version}.yml")
    code, said = await ran(
        suite, "server", "--url", url, "--requirements", version, "--expected-failures", baseline, *PATIENTLY
    )

    assert code == 0, said[-6000:]
    passed = re.search(r"Total: (\d+) passed", said)
    assert passed is not None
    assert int(passed[1]) > 20


@pytest.mark.parametrize("version", [too(VERSIONS[0]), VERSIONS[1]])
async def test_the_pruner_conforms(version: str, suite: list[str], port: int):
    await assert_conforms(suite, f"http://127.0.0.1:{port}/mcp", version, "pruner")


@pytest.mark.parametrize("version", [too(VERSIONS[0]), VERSIONS[1]])
async def test_the_doors_of_the_pruner_conform_whatever_is_behind_them(version: str, suite: list[str]):
    async with fixtures_on_a_port() as port:
        await assert_conforms(suite, f"http://127.0.0.1:{port}/mcp", version, "fixtures")


@pytest.mark.parametrize("version", [VERSIONS[0], too(VERSIONS[1])])
async def test_the_gateway_conforms(version: str, suite: list[str], tmp_path: Path):
    era = "stateless" if version == "2026-07-28" else "handshake"
    args = json.dumps([str(HERE / "fixture_server.py"), era])
    env = f"env = {{ PYTHONPATH = {json.dumps(str(ROOT))} }}"
    toml = f"[mcp.servers.x]\ncommand = {json.dumps(sys.executable)}\nargs = {args}\n{env}\n"
    async with proxy(tmp_path, toml) as world:
        url = f"http://127.0.0.1:{world.port}/api/mcp-gateway/x/mcp"
        await assert_conforms(suite, url, version, "gateway")


@pytest.mark.parametrize(
    ("version", "scenario"),
    [
        (version, name) if (version, name) in ALWAYS else too(version, name)
        for version, names in CLIENT_SCENARIOS.items()
        for name in names
    ],
)
async def test_the_gateways_own_client_conforms(version: str, scenario: str, suite: list[str]):
    command = f"{sys.executable} {HERE / 'client.py'}"
    code, said = await ran(
        suite, "client", "--command", command, "--scenario", scenario, "--spec-version", version, *PATIENTLY
    )

    assert code == 0, said[-3000:]
    passed = re.search(r"Passed: (\d+)/\d+", said)
    assert passed is not None
    assert int(passed[1]) > 0


@pytest.mark.skipif("KIMI_PROXY_DEEP" not in os.environ, reason="runs every client scenario: ./test.sh --deep")
@pytest.mark.parametrize("version", VERSIONS)
async def test_no_other_client_scenario_passes_unnoticed(version: str, suite: list[str]):
    command, baseline = f"{sys.executable} {HERE / 'client.py'}", str(BASELINES / f"client-{version}.yml")
    code, said = await ran(
        suite, "client", "--command", command, "--requirements", version, "--expected-failures", baseline, *PATIENTLY
    )

    assert code == 0, said[-6000:]


def test_whatever_does_not_apply_is_explained():
    told = (ROOT / "docs" / "conformance.md").read_text("utf-8")
    listed = {
        line.strip().removeprefix("- ").partition(":")[0]
        for file in BASELINES.glob("*.yml")
        for line in file.read_text("utf-8").splitlines()
        if line.strip().startswith("- ")
    }

    assert {name for name in listed if f"`{name}`" not in told and f"`{name.partition('/')[0]}/*`" not in told} == set()
