"""LiveSettings that change while everything runs, and the file that remembers them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.config import Config, FileSettings, parse
from kimi_proxy.core.errors import FileRefused, InvalidParams
from kimi_proxy.core.json import JsonValue
from kimi_proxy.services.settings import LiveSettings

WRITTEN = """\
# what we decided in March
[sanitizer]  # long outputs
threshold_tokens = 900
enabled = true   # do not touch without asking

[log]
level = "info"
"""


@dataclass
class Lamp:
    is_on: bool = True


def config(home: Path, toml: str | None = WRITTEN, **env: str) -> Config:
    file = home / "config.toml"
    if toml is not None:
        file.write_text(toml)
    return parse(toml or "", env, home).model_copy(update={"file": file})


def settings(home: Path, toml: str | None = WRITTEN, **env: str) -> tuple[LiveSettings, Lamp]:
    lamp = Lamp()
    return LiveSettings(config(home, toml, **env), {"sanitizer.enabled": lamp}, env), lamp


async def test_a_change_counts_at_once_and_keeps_comments_and_order(tmp_path: Path):
    changing, lamp = settings(tmp_path)

    told = await changing.change(LOCAL, {"sanitizer.enabled": False})

    assert (lamp.is_on, told["saved"], told["problem"]) == (False, True, None)
    assert told["switches"] == {"sanitizer.enabled": False}
    assert (tmp_path / "config.toml").read_text() == WRITTEN.replace("enabled = true ", "enabled = false ")


async def test_a_file_that_is_not_there_is_written(tmp_path: Path):
    changing, _ = settings(tmp_path, None)

    assert (await changing.change(LOCAL, {"sanitizer.enabled": False}))["saved"] is True
    assert (tmp_path / "config.toml").read_text() == "[sanitizer]\nenabled = false\n"


async def test_a_table_of_which_only_an_inner_one_is_written_gets_a_header(tmp_path: Path):
    inner = "[sanitizer.routing]\nheavy_duty_fallback = true  # ours\n"
    changing, _ = settings(tmp_path, inner)

    told = await changing.change(LOCAL, {"sanitizer.enabled": False})
    assert (told["saved"], told["problem_code"]) == (True, None)
    assert (tmp_path / "config.toml").read_text() == inner + "\n[sanitizer]\nenabled = false\n"


@pytest.mark.parametrize("toml", ["sanitizer = {enabled = true}\n", "sanitizer.enabled = true\n"])
async def test_what_cannot_be_written_down_is_told_and_counts_all_the_same(tmp_path: Path, toml: str):
    changing, lamp = settings(tmp_path, toml)

    told = await changing.change(LOCAL, {"sanitizer.enabled": False})

    assert (lamp.is_on, told["saved"]) == (False, False)
    assert "[sanitizer]" in str(told["problem"])
    assert told["problem_code"] == "file_refused"
    assert (tmp_path / "config.toml").read_text() == toml


async def test_a_file_that_somebody_broke_meanwhile_is_left_as_it_is(tmp_path: Path):
    changing, _ = settings(tmp_path)
    (tmp_path / "config.toml").write_text("[sanitizer]\nenabled = true\nmisspelt = 1\n")

    told = await changing.change(LOCAL, {"sanitizer.enabled": False})

    assert "misspelt" in str(told["problem"])
    assert told["problem_code"] == "file_unreadable"
    assert (tmp_path / "config.toml").read_text() == "[sanitizer]\nenabled = true\nmisspelt = 1\n"


async def test_a_disk_that_refuses_is_told(tmp_path: Path):
    def refuse(path: Path, content: bytes) -> None:
        raise FileRefused("the disk is full")

    lamp = Lamp()
    changing = LiveSettings(config(tmp_path), {"sanitizer.enabled": lamp}, {}, replace=refuse)

    assert (await changing.change(LOCAL, {"sanitizer.enabled": False}))["problem"] == "the disk is full"
    assert not lamp.is_on


async def test_what_may_not_be_switched_is_refused_and_nothing_changes(tmp_path: Path):
    changing, lamp = settings(tmp_path)

    with pytest.raises(InvalidParams, match=r"sanitizer\.enabled"):
        await changing.change(LOCAL, {"sanitizer.enabled": False, "proxy.port": True})

    assert lamp.is_on
    assert (tmp_path / "config.toml").read_text() == WRITTEN


async def test_viewers_are_told(tmp_path: Path):
    heard: list[tuple[str, Mapping[str, JsonValue]]] = []
    changing = LiveSettings(
        config(tmp_path), {"sanitizer.enabled": Lamp()}, {}, lambda who, event, fields: heard.append((event, fields))
    )

    await changing.change(LOCAL, {"sanitizer.enabled": False})

    assert heard == [("settings_event", {"switches": {"sanitizer.enabled": False}, "lists": {}})]


def test_of_secrets_only_that_they_are_set_is_told(tmp_path: Path):
    toml = "[providers.kimi]\nenabled = true\n"
    told = settings(tmp_path, toml, KIMI_API_KEY="sk-very-secret", KIMI_PROXY_TOKEN="t-very-secret")[0].to_json(LOCAL)

    assert "very-secret" not in str(told)
    secrets = told["secrets"]
    assert isinstance(secrets, dict)
    assert (secrets["KIMI_API_KEY"], secrets["KIMI_PROXY_TOKEN"], secrets["OPENAI_API_KEY"]) == (True, True, False)


def test_what_is_in_force_is_shown_by_sections_and_never_what_only_the_environment_sets(tmp_path: Path):
    environment = {"KIMI_PROXY_TOKEN": "t", "KIMI_PROXY_OIDC_CLIENT_SECRET": "s", "DEEPINFRA_API_KEY": "d"}
    for variables in ({}, environment):
        shown = settings(tmp_path, "", **variables)[0].to_json(LOCAL)["settings"]
        assert isinstance(shown, dict)
        assert shown.keys() <= FileSettings.model_fields.keys()
        assert all(isinstance(section, dict) for section in shown.values())
