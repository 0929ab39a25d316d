"""What is optional is a folder: it is not loaded while it is off, and can be deleted."""

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.support.deep import deep
from tests.support.forks import PATIENCE_S

import kimi_proxy
from kimi_proxy.assembly.addons import INSTALLED, ORDER, load
from kimi_proxy.core.config import ADDON_SETTINGS

PACKAGE = Path(kimi_proxy.__file__).parent
ROOT = PACKAGE.parents[1]
READY = "press Ctrl-C to stop"
# Runs the command, and writes down at its end what it has loaded.
START = """
import atexit, pathlib, runpy, sys

atexit.register(lambda: pathlib.Path("loaded").write_text("\\n".join(sys.modules)))
sys.argv = ["kimi-proxy", "start"]
runpy.run_module("kimi_proxy", run_name="__main__")
"""
# Asks the provider at an address by way of a server, and prints the headers of the answer.
ASK = """
import asyncio, pathlib, sys
import httpx
from kimi_proxy.assembly.apps import proxy_app
from kimi_proxy.assembly.runtime import running
from kimi_proxy.core.config import parse

TABLE = '[providers.p]\\nenabled = true\\ntype = "openai"\\nbase_url = "{}"\\napi_key = ""\\n'
PROVIDER = TABLE + "[greeting]\\nenabled = true\\n"

async def ask():
    config = parse(PROVIDER.format(sys.argv[2]), {}, pathlib.Path(sys.argv[1]))
    async with running(config, env={}) as runtime:
        transport = httpx.ASGITransport(proxy_app(runtime))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as client:
            body = {"model": "p/m", "messages": [{"role": "user", "content": "hello"}]}
            answer = await client.post("/v1/chat/completions", json=body)
            print(answer.status_code, answer.headers.get("x-greeting"))

asyncio.run(ask())
"""
# Answers whether a server of the core alone can be built, and which settings it knows.
BUILD = """
import asyncio, pathlib, sys
from kimi_proxy.assembly.apps import proxy_app
from kimi_proxy.assembly.runtime import running
from kimi_proxy.core.config import ADDON_SETTINGS, parse

async def build():
    async with running(parse("", {}, pathlib.Path(sys.argv[1])), env={}) as runtime:
        proxy_app(runtime)
        print(sorted(ADDON_SETTINGS))

asyncio.run(build())
"""


def _environment(home: Path, source: Path | None = None) -> dict[str, str]:
    paths = {"PYTHONPATH": str(source)} if source else {}
    ports = {"MCP_PRUNER_PORT": "0", "KIMI_PROXY_PORT": "0"}
    return {"PATH": os.environ["PATH"], "HOME": str(home), "KIMI_PROXY_HOME": str(home / "state"), **ports, **paths}


def test_a_plain_start_loads_no_module_of_what_is_off(tmp_path: Path):
    command = [sys.executable, "-c", START]
    with subprocess.Popen(
        command, cwd=tmp_path, env=_environment(tmp_path), stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert any(READY in line for line in process.stderr)
        process.send_signal(signal.SIGINT)
        process.stderr.read()
        process.wait(PATIENCE_S)
    loaded = set((tmp_path / "loaded").read_text().split())

    assert "kimi_proxy.assembly.apps" in loaded
    optional = {name for name in loaded if name.startswith(("kimi_proxy.addons.", "kimi_proxy.team"))}
    assert optional == {f"kimi_proxy.addons.{name}{part}" for name in INSTALLED for part in ("", ".settings")}
    assert not {"kimi_proxy.features.tool_search", "kimi_proxy.services.gateway.tool_directory"} & loaded


def test_the_order_of_addons_names_every_folder_and_no_other():
    folders = {path.parent.name for path in (PACKAGE / "addons").glob("*/addon.py")}

    assert set(ORDER) == folders == set(ADDON_SETTINGS)
    assert len(set(ORDER)) == len(ORDER)


@pytest.mark.parametrize("name", ORDER)
def test_an_addon_says_what_it_is_and_offers_what_its_settings_promise(name: str):
    addon, settings = load(name), ADDON_SETTINGS[name]

    assert (addon.name, addon.settings) == (name, settings)
    assert (PACKAGE / "addons" / name / "__init__.py").read_text() == ""
    assert set(addon.forms) == set(settings.PROVIDERS)
    assert bool(addon.routes) == bool(settings.PATHS)
    assert bool(addon.client_form) == bool(settings.FORMS)


def test_a_server_without_one_addon_or_without_any_has_only_the_settings_that_are_left(tmp_path: Path):
    for left_out in (("telemetry",), ORDER):
        source = tmp_path / "-".join(left_out) / "src"
        shutil.copytree(PACKAGE, source / "kimi_proxy", ignore=shutil.ignore_patterns("__pycache__"))
        for name in left_out:
            shutil.rmtree(source / "kimi_proxy" / "addons" / name)
        built = subprocess.run(
            [sys.executable, "-c", BUILD, str(tmp_path / "home")],
            env=_environment(tmp_path, source),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )

        assert built.stdout == f"{sorted(set(ORDER) - set(left_out))}\n", built.stderr


def test_the_addon_that_the_guide_shows_adds_its_header_to_an_answer(tmp_path: Path):
    guide = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    shown = textwrap.dedent(guide.partition("adds a header to each answer:")[2].split("```")[1].removeprefix("python"))
    source = tmp_path / "src"
    shutil.copytree(PACKAGE, source / "kimi_proxy", ignore=shutil.ignore_patterns("__pycache__"))
    folder = source / "kimi_proxy" / "addons" / "greeting"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "settings.py").write_text(GREETING_SETTINGS)
    (folder / "addon.py").write_text(f"{GREETING_IMPORTS}\n{shown}")
    order = source / "kimi_proxy" / "assembly" / "addons.py"
    order.write_text(order.read_text().replace("ORDER = (", 'ORDER = ("greeting", ', 1))
    with answering(COMPLETION) as url:
        asked = subprocess.run(
            [sys.executable, "-c", ASK, str(tmp_path / "home"), url],
            env=_environment(tmp_path, source),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )

    assert asked.stdout == "200 hello\n", asked.stderr


GREETING_SETTINGS = """
from kimi_proxy.core.section import AddonSettings


class GreetingSettings(AddonSettings):
    TABLE = "greeting"

    enabled: bool = False

    @property
    def is_on(self) -> bool:
        return self.enabled


SETTINGS = GreetingSettings
"""
GREETING_IMPORTS = """
from dataclasses import replace

from kimi_proxy.addons.greeting.settings import GreetingSettings
from kimi_proxy.api.addon import Addon, Built, Given
from kimi_proxy.features.chat.pipeline import Draft
"""
COMPLETION = {
    "id": "c",
    "object": "chat.completion",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hi"}}],
    "usage": {"prompt_tokens": 5, "completion_tokens": 1},
}


@contextmanager
def answering(completion: object) -> Iterator[str]:
    """The address of a provider that always answers this."""

    class Provider(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            body = json.dumps(completion).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Provider) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()
            thread.join()


@deep("it runs the tests of the core once more")
def test_the_core_passes_its_tests_without_the_addons(tmp_path: Path):
    folders = ("src", "tests", "scripts", "docs", "deploy")
    for folder in filter(lambda name: (ROOT / name).is_dir(), folders):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ROOT.glob("*.toml"):
        shutil.copy(file, tmp_path)
    shutil.rmtree(tmp_path / "src" / "kimi_proxy" / "addons")
    shutil.rmtree(tmp_path / "tests" / "addons")
    of_addons = [tmp_path / path for path in WITH_ADDONS]
    of_addons += [
        path
        for path in (tmp_path / "tests").rglob("test_*.py")
        if "kimi_proxy.addons" in path.read_text("utf-8") or "assembly.addons" in path.read_text("utf-8")
    ]
    for path in set(of_addons):
        path.unlink()
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "2", *TESTS_OF_THE_CORE],
        cwd=tmp_path,
        env=_environment(tmp_path, tmp_path / "src"),
        capture_output=True,
        text=True,
    )

    assert ran.returncode == 0, ran.stdout[-4000:]


# Tests of the core that play with addons: they list their files or settings, or ask by way of one.
WITH_ADDONS = (
    "tests/core/chat/test_wires.py",
    "tests/core/config/test_servers.py",
    "tests/core/config/test_visible.py",
    "tests/services/chat/test_forgotten.py",
    "tests/services/chat/test_safety_checks.py",
    "tests/services/test_faulty_texts.py",
)
TESTS_OF_THE_CORE = ("tests/core", "tests/features", "tests/proxy", "tests/services")
