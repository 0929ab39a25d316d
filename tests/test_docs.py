"""Every route, tool, command, setting and variable is documented, and every link leads somewhere."""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import click
import pytest
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import ASGIApp

from kimi_proxy.api.guard import Guard
from kimi_proxy.assembly.apps import proxy_app, pruner_app
from kimi_proxy.assembly.runtime import Runtime, running
from kimi_proxy.cli import app as cli
from kimi_proxy.core import markers
from kimi_proxy.core.config import FileSettings, parse
from kimi_proxy.core.config.environment import VARIABLES
from kimi_proxy.core.config.providers import Model
from kimi_proxy.core.config.team import BudgetSettings
from kimi_proxy.core.config.visible import FOR_MEMBERS
from kimi_proxy.core.json import JsonValue
from kimi_proxy.features.pruning.explain import OFF_FOCUS

ROOT = Path(__file__).parent.parent
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.M)


def page(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def section(text: str, heading: str) -> str:
    """What stands under the heading that begins with `heading`."""
    found = re.search(rf"^## {re.escape(heading)}(?!\w).*?(?=^## |\Z)", text, re.M | re.S)
    assert found, f"there is no heading {heading!r}"
    return found[0]


def test_the_readme_is_short():
    assert len(page("README.md").split()) < 600


@pytest.mark.parametrize("file", PAGES, ids=lambda file: file.name)
def test_links_lead_somewhere(file: Path):
    broken = [link for link in LINK.findall(file.read_text("utf-8")) if not _resolves(file, link)]

    assert broken == []


def _resolves(file: Path, link: str) -> bool:
    if link.startswith(("http://", "https://")):
        return True
    path, _, anchor = link.partition("#")
    target = (file.parent / path) if path else file
    return target.exists() and (not anchor or anchor in _anchors(target))


def _anchors(file: Path) -> set[str]:
    titles = HEADING.findall(file.read_text("utf-8"))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("app", [pruner_app, proxy_app])
async def test_every_route_is_documented(app: Callable[[Runtime], ASGIApp], tmp_path: Path):
    async with running(parse("", {}, tmp_path), thread_max_chars=10**9) as runtime:
        guard = app(runtime)
    assert isinstance(guard, Guard)
    assert isinstance(guard.app, Starlette)
    routes = [route for route in guard.app.routes if isinstance(route, Route)]
    served = {f"`{method} {route.path}`" for route in routes for method in (route.methods or set()) - {"HEAD"}}

    assert {line for line in served if line not in page("docs/http-api.md")} == set()


async def test_every_tool_and_each_of_its_arguments_is_documented(tmp_path: Path):
    async with running(parse("", {}, tmp_path), thread_max_chars=10**9) as runtime:
        tools = dict(runtime.tools)
    text = page("docs/mcp-tools.md")

    for name, tool in tools.items():
        described = section(text, tool.name)
        assert [word for word in (name, *_properties(tool.schema)) if not re.search(rf"\b{word}\b", described)] == []


def _properties(schema: Mapping[str, JsonValue]) -> Iterator[str]:
    """Every name in a JSON schema, however deep."""
    match schema:
        case {"properties": Mapping() as properties}:
            for name, inner in properties.items():
                yield name
                yield from _properties(inner) if isinstance(inner, Mapping) else ()
        case {"items": Mapping() as items}:
            yield from _properties(items)


def test_every_command_and_each_of_its_options_is_documented():
    text = page("docs/cli.md")

    for name, command in _commands(cli, click.Context(cli)):
        described = section(text, f"kimi-proxy {name}")
        options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        written = {option for option in options if option.startswith("--")} - {"--help"}
        assert {option for option in written if f"`{option}`" not in described} == set()


def _commands(group: click.Group, context: click.Context, path: str = "") -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(context):
        match group.get_command(context, name):
            case click.Group() as inner:
                yield from _commands(inner, context, f"{path}{name} ")
            case click.Command() as command:
                yield f"{path}{name}", command


def test_every_variable_is_documented():
    text = page("docs/configuration.md")

    assert [name for name in VARIABLES if f"`{name}`" not in text] == []


def test_every_setting_is_documented_under_its_section():
    text = page("docs/configuration.md")

    assert [key for key, heading in _settings(FileSettings()) if f"`{key}`" not in section(text, heading)] == []


def _settings(model: BaseModel, path: str = "") -> Iterator[tuple[str, str]]:
    """Each key with the heading that it belongs under; tables that anybody may name share one."""
    for name in type(model).model_fields:
        value, below = getattr(model, name), f"{path}.{name}" if path else name
        if isinstance(value, BaseModel):
            yield from _settings(value, below)
        elif below == "models":
            yield from _settings(Model(provider=""), f"{below}.NAME")
        elif below == "team.budgets":
            yield from _settings(BudgetSettings(requests=1), f"{below}.NAME")
        elif isinstance(value, Mapping) and value:
            yield from _settings(next(iter(value.values())), f"{below}.NAME")
        else:
            yield name, f"[{path}]"


def test_every_warning_that_the_command_explains_is_documented():
    from kimi_proxy.quick import ADVICE

    text = section(page("docs/troubleshooting.md"), "Warnings of an answer")

    assert [code for code in ADVICE if f"`{code}`" not in text] == []


def test_the_marker_in_the_first_steps_is_one_that_the_engine_could_write():
    page = (ROOT / "docs" / "getting-started.md").read_text("utf-8")
    shown = [found for line in page.split("\n") if (found := markers.read(line)) is not None]

    assert shown
    for marker in shown:
        assert f"recover {marker.prune_id} {marker.start}-{marker.end} " in page
        assert marker.end <= len((ROOT / "LICENSE").read_text("utf-8").split("\n"))
        assert marker.reason.startswith(OFF_FOCUS)


def test_every_setting_that_members_see_is_documented_with_its_reason_and_no_other():
    rows = re.findall(r"^\| (`.*`) \| (.*) \|$", section(page("docs/team.md"), "What members see"), re.M)

    documented = {reason: tuple(re.findall(r"`([^`]+)`", names)) for names, reason in rows}
    assert documented == dict(FOR_MEMBERS)
