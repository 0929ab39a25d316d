"""The wheel works by itself: installed in an empty environment, far from the repository."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen
from zipfile import ZipFile

import pytest
from tests.support.checkout import LISTENS, PATIENCE_S, ROOT, clean_env, copy_to
from tests.support.deep import deep
from tests.support.texts import a_log

pytestmark = pytest.mark.timeout(2 * PATIENCE_S)

TEXT = a_log(400).encode()
# The aim is 35 and 120; docs/dependencies.md says what is in the way. They may only become less.
MAX_PACKAGES, MAX_MB = 42, 192
HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
OTHERS = [version for version in ("3.11", "3.12", "3.13", "3.14") if version != HERE]


def _build(source: Path, to: Path) -> Path:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", to],
        cwd=source,
        check=True,
        capture_output=True,
        timeout=PATIENCE_S,
    )
    (wheel,) = to.glob("*.whl")
    return wheel


def _python(version: str) -> str:
    """Return a Python of this version; skip the test if there is none."""
    if version == HERE:
        return sys.executable
    uv = _uv()
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    own = [str(folder / "bin" / "python") for folder in sorted(pyenv.glob(f"{version}.*"))]
    if own:
        return own[-1]
    if uv is None:
        pytest.skip(f"there is no Python {version} here, and no uv to look for one")
    found = subprocess.run(
        [uv, "python", "find", "--no-python-downloads", version], capture_output=True, text=True, check=False
    )
    if found.returncode:
        pytest.skip(f"there is no Python {version} here")
    return found.stdout.strip()


def _installed(venv: Path) -> tuple[int, float]:
    """Return how many packages there are beside ours, and how many megabytes all of it takes without bytecode.

    Programs that packages put into `bin` are counted, and what the environment itself holds there.
    """
    (folder,) = venv.glob("lib/python*/site-packages")
    packages = [path.name for path in folder.glob("*.dist-info") if not path.name.startswith("kimi_proxy-")]
    files = [path for path in venv.rglob("*") if path.is_file() and not path.is_symlink() and path.suffix != ".pyc"]
    return len(packages), sum(path.stat().st_size for path in files) / 1e6


def _uv() -> str | None:
    return shutil.which("uv") or shutil.which("uv", path=ROOT / ".tools" / "uv" / "bin")


def _constraints(folder: Path) -> Path:
    """The lock's versions, which are those that were fetched before."""
    locked = folder / "constraints.txt"
    locked.write_text(re.sub(r" \\\n( +--hash=.+\n)+", "\n", (ROOT / "requirements.lock").read_text("utf-8")))
    return locked


def _install(wheel: Path, venv: Path, env: dict[str, str], interpreter: str) -> None:
    """With uv if there is one, else with pip."""
    uv, python, locked = _uv(), venv / "bin" / "python", _constraints(venv.parent)
    if uv:
        make, install = [uv, "venv", "--python", interpreter, venv], [uv, "pip", "install", "--python", python]
    else:
        make, install = [interpreter, "-m", "venv", venv], [python, "-m", "pip", "install"]
    for command in (make, [*install, "--constraint", locked, wheel]):
        subprocess.run([*command, "--quiet"] if uv else command, env=env, check=True, timeout=PATIENCE_S)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    return _build(copy_to(folder / "source"), folder / "dist")


@deep("test_start.py sets up and runs a fresh copy")
@pytest.mark.parametrize("version", [HERE, *OTHERS])
def test_it_installs_and_runs_in_an_empty_environment(version: str, wheel: Path, tmp_path: Path):
    interpreter = _python(version)
    env = clean_env(tmp_path / "home")
    _install(wheel, tmp_path / "venv", env, interpreter)
    packages, megabytes = _installed(tmp_path / "venv")
    assert packages <= MAX_PACKAGES
    assert megabytes <= MAX_MB
    command = tmp_path / "venv" / "bin" / "kimi-proxy"

    def run(*args: str, stdin: bytes = b"") -> bytes:
        done = subprocess.run(
            [command, *args], input=stdin, capture_output=True, env=env, cwd=tmp_path, check=True, timeout=60
        )
        return done.stdout

    assert run("--version").startswith(b"kimi-proxy ")
    assert b"kimi-proxy start" in run()
    assert (tmp_path / "venv" / "share" / "man" / "man1" / "kimi-proxy.1").is_file()
    answer = json.loads(run("prune", "-", "--goal", "why was the payment refused?", "--json", stdin=TEXT))
    assert answer["stats"]["pruned_lines"] > 0
    assert run("recover", answer["prune_id"]) == TEXT
    assert run("audit").startswith(b"No agent sessions found in:")
    refused = subprocess.run([command, "eval", "."], capture_output=True, env=env, cwd=tmp_path, timeout=60)
    assert (refused.returncode, refused.stderr.count(b"\n")) == (1, 1)
    assert b"in a clone of kimi-proxy" in refused.stderr

    with subprocess.Popen([command, "start"], bufsize=0, stderr=subprocess.PIPE, env=env, cwd=tmp_path) as server:
        try:
            assert server.stderr is not None
            address = next(found[1].decode() for line in server.stderr if (found := LISTENS.search(line)))
            assert urlopen(f"{address}/health", timeout=60).status == 200
            server.send_signal(signal.SIGINT)
            server.communicate(timeout=60)
            assert server.returncode == 0
        finally:
            server.kill()


@deep("it installs everything anew with another program")
def test_uvx_runs_it_in_an_empty_home(wheel: Path, tmp_path: Path):
    uv = _uv()
    if uv is None:
        pytest.skip("there is no uv here")
    env = clean_env(tmp_path / "home")
    uvx = [uv, "tool", "run", "--quiet", "--constraints", _constraints(tmp_path), "--from", wheel, "kimi-proxy"]

    def run(*args: str, stdin: bytes = b"") -> bytes:
        command = [*uvx, *args]
        done = subprocess.run(command, input=stdin, capture_output=True, env=env, cwd=tmp_path, timeout=PATIENCE_S)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert b"kimi-proxy start" in run()
    answer = json.loads(run("prune", "-", "--goal", "why was the payment refused?", "--json", stdin=TEXT))
    assert answer["stats"]["pruned_lines"] > 0
    assert run("recover", answer["prune_id"]) == TEXT
    assert run("audit").startswith(b"No agent sessions found in:")


def test_it_holds_the_package_and_its_licence_and_nothing_else(wheel: Path):
    listed = subprocess.run(
        [sys.executable, "-m", "zipfile", "--list", wheel], capture_output=True, check=True, text=True
    ).stdout.splitlines()[1:]
    names = [line.split()[0] for line in listed]
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"kimi_proxy"}
    assert "kimi_proxy/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_neither_the_wheel_nor_the_image_names_a_path_of_the_machine_that_built_it(wheel: Path):
    """The image is made of what .dockerignore lets through, so those files are read as they are."""
    with ZipFile(wheel) as packed:
        texts = {f"wheel: {name}": packed.read(name) for name in packed.namelist()}
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    source = [file for name in allowed for file in (ROOT / name, *(ROOT / name).rglob("*")) if file.is_file()]
    texts |= {f"image: {file}": file.read_bytes() for file in source if "__pycache__" not in file.parts}
    paths = (path for path in (ROOT, ROOT.parent, Path.home(), wheel.parents[1]) if path.parts[1:])
    # From the root on: a clone in /tmp is not what `~/.gemini/tmp/` names.
    local = [re.compile(rb"(?<![\w~.-])" + re.escape(os.fsencode(path)) + b"/") for path in paths]

    assert len(texts) > 2 * len(allowed)
    assert {name: path.pattern for name, text in texts.items() for path in local if path.search(text)} == {}
