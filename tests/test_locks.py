"""The lock files say exactly what pyproject.toml asks for, with hashes and without addresses."""

import re
import tomllib
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
RUN = [*PROJECT["project"]["dependencies"], *PROJECT["dependency-groups"]["build"]]
DEV = [*RUN, *PROJECT["dependency-groups"]["dev"]]
EXTRAS = PROJECT["project"]["optional-dependencies"]
TEAM = [*PROJECT["project"]["dependencies"], *EXTRAS["team"], *EXTRAS["bedrock"]]
LOCKS = (
    "requirements.lock",
    "requirements-team.lock",
    "requirements-dev.lock",
    "requirements-uv.lock",
    "requirements-release.lock",
)

_ENTRY = re.compile(
    r"^(?P<pin>[a-z0-9-]+==\S+)(?P<marker> ; [^\\\n]+)? \\\n(?P<hashes>(?:    --hash=sha256:.+\n)+)", re.M
)


def _pins(lock: str) -> dict[str, set[str]]:
    """Package → locked versions; there may be one for older and one for newer Pythons."""
    found: dict[str, set[str]] = {}
    for entry in _ENTRY.finditer((ROOT / lock).read_text("utf-8")):
        name, version = entry["pin"].split("==")
        found.setdefault(name, set()).add(version)
    return found


@pytest.mark.parametrize(
    ("lock", "wanted"),
    [("requirements.lock", RUN), ("requirements-team.lock", TEAM), ("requirements-dev.lock", DEV)],
)
def test_every_requirement_is_locked_at_a_version_it_allows(lock: str, wanted: list[str]):
    pins = _pins(lock)
    requirements = [Requirement(line) for line in wanted]

    unmet = [
        str(r)
        for r in requirements
        if not any(r.specifier.contains(v) for v in pins.get(canonicalize_name(r.name), ()))
    ]

    assert unmet == [], "run scripts/lock"


def test_tests_run_on_the_versions_that_users_get():
    run, dev = _pins("requirements.lock"), _pins("requirements-dev.lock")

    assert {name: dev[name] for name in run} == run


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_holds_pins_with_hashes_and_nothing_else(lock: str):
    text = (ROOT / lock).read_text("utf-8")

    assert _ENTRY.sub("", text) == ""


def test_what_builds_the_wheel_is_locked_too():
    backend = PROJECT["build-system"]["requires"]

    assert set(backend) <= set(PROJECT["dependency-groups"]["build"])


def needed(*names: str) -> set[str]:
    """These packages and all that they need here, by what is installed."""
    found: set[str] = set()
    waiting: list[str] = [canonicalize_name(name) for name in names]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            wanted = [Requirement(line) for line in requires(name) or ()]
            waiting += [
                canonicalize_name(each.name)
                for each in wanted
                if each.marker is None or each.marker.evaluate({"extra": ""})
            ]
    return found


def test_every_package_that_running_needs_has_its_reason():
    page = (ROOT / "docs" / "dependencies.md").read_text("utf-8")
    explained = [name for name in re.findall(r"^\| ([a-z][a-z0-9-]*) \| \S", page, re.M) if name != "package"]
    direct = page.partition("## Indirect dependencies")[0]
    first = set(re.findall(r"^\| ([a-z][a-z0-9-]*) \|", direct, re.M)) - {"package"}
    running = needed("kimi-proxy") - {"kimi-proxy"}
    building = needed("hatchling", "editables") - running

    assert len(explained) == len(set(explained))
    assert set(explained) == set(_pins("requirements.lock")) - building
    assert first == {canonicalize_name(Requirement(line).name) for line in PROJECT["project"]["dependencies"]}
