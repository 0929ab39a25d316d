"""What a release is made of, as far as it can be checked without one."""

import json
import re
import shutil
import subprocess
import sys
import tarfile
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, distribution
from importlib.resources import files
from pathlib import Path

import pytest
from click.testing import CliRunner
from jsonschema import Draft7Validator
from tests.support.checkout import copy_to
from tests.support.clients.judges import actionlint

from kimi_proxy.cli import app

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def release(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "release"), *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("schema", ["github-workflows", "dependabot"])
def test_files_for_the_forge_have_the_shape_that_it_reads(schema: str):
    files = WORKFLOWS if schema == "github-workflows" else [ROOT / ".github" / "dependabot.yml"]
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


def test_actionlint_finds_nothing_in_the_workflows():
    command = [*actionlint(), *map(str, WORKFLOWS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)

    # This build of it knows no runner of the last years.
    assert [found for found in json.loads(done.stdout) if found["kind"] != "runner-label"] == []


def test_zizmor_finds_nothing_in_any_file_for_the_forge():
    options = ("--offline", "--no-progress", "--persona=pedantic")
    command = [Path(sys.executable).with_name("zizmor"), *options, ROOT / ".github"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_every_action_is_pinned_by_its_hash_and_names_its_version(workflow: Path):
    uses = re.findall(r"uses: (.*)", workflow.read_text())

    assert uses
    assert [line for line in uses if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+(\.\d+){0,2}", line)] == []


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_reads_by_default_and_keeps_no_credentials(workflow: Path):
    text = workflow.read_text()

    assert "permissions:\n  contents: read\n" in text
    assert text.count("actions/checkout@") == text.count("persist-credentials: false")


def test_every_script_that_a_workflow_runs_exists():
    for workflow in WORKFLOWS:
        scripts = re.findall(r"(?<![\w/])(?:\./)?(scripts/\w+|\w+\.sh)\b", workflow.read_text())
        assert [script for script in scripts if not (ROOT / script).exists()] == []


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_every_tool_that_a_workflow_installs_is_pinned_by_its_hash(workflow: Path):
    text = workflow.read_text()

    assert "pipx" not in text
    installs = [line for line in re.findall(r"pip install .*", text) if "--no-deps" not in line]
    assert [line for line in installs if "--require-hashes" not in line] == []


def test_the_bill_of_materials_names_every_package_and_vendored_script_with_its_licence():
    bom = json.loads(release("sbom").stdout)
    by_name = {one["name"]: one for one in bom["components"]}
    locked = set(re.findall(r"^([a-z0-9-]+)==", (ROOT / "requirements.lock").read_text(), re.M))
    vendored = {
        file.name for file in (ROOT / "src/kimi_proxy/dashboard/vendor").iterdir() if file.suffix in (".mjs", ".css")
    }

    assert locked | vendored == by_name.keys()
    assert bom["metadata"]["component"]["version"] == release("version").stdout.strip()
    installed = {name for name in locked if _is_installed(name)}
    assert {name for name in installed | vendored if not by_name[name].get("licenses")} == set()
    for name in vendored:
        raw = (ROOT / "src/kimi_proxy/dashboard/vendor" / name).read_bytes()
        assert by_name[name]["hashes"] == [{"alg": "SHA-256", "content": sha256(raw).hexdigest()}]


def _is_installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


def test_the_formula_installs_the_release_by_hashes(tmp_path: Path):
    sdist = tmp_path / "kimi_proxy-1.2.3.tar.gz"
    sdist.write_bytes(b"a source distribution")
    text = release("formula", "some-owner/kimi-proxy", str(sdist)).stdout

    number = release("version").stdout.strip()
    assert f'url "https://github.com/some-owner/kimi-proxy/releases/download/v{number}/{sdist.name}"' in text
    assert f'sha256 "{sha256(sdist.read_bytes()).hexdigest()}"' in text
    assert '"--require-hashes", "--requirement", "requirements.lock"' in text
    assert text.count("\n  end\n") == 3
    assert text.endswith("\nend\n")


def test_the_source_distribution_holds_what_the_formula_installs(tmp_path: Path):
    build = [sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", tmp_path / "dist"]
    subprocess.run(build, cwd=copy_to(tmp_path / "source"), check=True, capture_output=True, timeout=120)
    (sdist,) = (tmp_path / "dist").glob("*.tar.gz")
    with tarfile.open(sdist) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}

    assert {"requirements.lock", "docs/kimi-proxy.1", "pyproject.toml", "LICENSE"} <= names


def test_notes_of_a_release_come_from_the_changelog():
    from kimi_proxy import __version__

    notes = release("notes")

    assert release("version").stdout.strip() == __version__
    assert notes.returncode == 0, notes.stderr
    assert notes.stdout.strip() in (ROOT / "CHANGELOG.md").read_text()


def test_the_entry_for_the_mcp_registry_has_the_shape_that_it_takes():
    entry = json.loads(release("server", "some-owner/kimi-proxy").stdout)
    schema = json.loads((files("skillsaw") / "schemas/mcp_registry/v2025_12_11/server.schema.json").read_text("utf-8"))

    Draft7Validator(schema).validate(entry)
    assert entry["$schema"] == schema["$id"]
    assert (entry["name"], entry["version"]) == ("io.github.some-owner/kimi-proxy", release("version").stdout.strip())
    # What it starts is a command of ours.
    arguments = [each.get("value") or each["name"] for each in entry["packages"][0]["packageArguments"]]
    assert CliRunner().invoke(app, [*arguments, "--help"]).exit_code == 0


@pytest.mark.parametrize("repository", ["owner", "owner/name/more", "../x", "a b/c", ""])
def test_a_name_that_is_no_repository_is_refused(repository: str):
    refused = release("server", repository)

    assert (refused.returncode, refused.stdout) == (1, "")
    assert "give OWNER/NAME" in refused.stderr


def test_the_package_is_marked_with_its_name_in_the_registry_once(tmp_path: Path):
    for name in ("scripts/release", "README.md", "src/kimi_proxy/__init__.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)

    for _ in range(2):
        command = [sys.executable, str(tmp_path / "scripts" / "release"), "mark", "some-owner/kimi-proxy"]
        subprocess.run(command, timeout=60, check=True)

    assert (tmp_path / "README.md").read_text().count("mcp-name: io.github.some-owner/kimi-proxy") == 1


def test_what_is_asked_otherwise_is_refused_with_what_can_be():
    done = release("everything")

    assert done.returncode != 0
    assert "scripts/release version" in done.stderr
