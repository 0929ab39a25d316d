"""Settings come from the named file, ./config.toml, the platform's directory or nowhere, in this order."""

from pathlib import Path

import pytest

from kimi_proxy.core.errors import ConfigError
from kimi_proxy.services.configuration import find, home, load


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return _folder(tmp_path / "here")


@pytest.fixture
def platform(tmp_path: Path) -> Path:
    return _folder(tmp_path / "platform")


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def _written(path: Path, port: int = 9000) -> Path:
    path.write_text(f"[mcp_pruner]\nport = {port}\n", "utf-8")
    return path


def test_a_named_file_wins_over_every_other(tmp_path: Path, here: Path, platform: Path):
    named = _written(tmp_path / "mine.toml")
    _written(here / "config.toml")
    _written(platform / "config.toml")

    assert find({"KIMI_PROXY_CONFIG": str(named)}, here, platform) == named


def test_the_current_directory_wins_over_the_platform(here: Path, platform: Path):
    _written(platform / "config.toml")
    local = _written(here / "config.toml")

    assert find({}, here, platform) == local


def test_the_platform_is_asked_last(here: Path, platform: Path):
    shared = _written(platform / "config.toml")

    assert find({}, here, platform) == shared


def test_no_file_at_all_is_fine(here: Path, platform: Path):
    assert find({}, here, platform) is None


def test_a_named_file_that_is_not_there_is_an_error_that_names_it(here: Path, platform: Path):
    with pytest.raises(ConfigError, match=r"KIMI_PROXY_CONFIG is .*absent\.toml"):
        find({"KIMI_PROXY_CONFIG": str(here / "absent.toml")}, here, platform)


def test_a_directory_is_not_a_configuration_file(here: Path, platform: Path):
    (here / "config.toml").mkdir()

    assert find({}, here, platform) is None


def test_the_file_sets_the_port_and_is_remembered(here: Path):
    file = _written(here / "config.toml", port=9123)

    settings = load({}, here)

    assert (settings.config.mcp_pruner.port, settings.file) == (9123, file)


def test_the_mark_that_some_editors_put_before_a_text_is_no_part_of_it(here: Path):
    (here / "config.toml").write_text("[mcp_pruner]\nport = 9123\n", "utf-8-sig")

    assert load({}, here).config.mcp_pruner.port == 9123


def test_the_environment_wins_over_the_file(here: Path):
    _written(here / "config.toml", port=9123)

    assert load({"MCP_PRUNER_PORT": "9200"}, here).config.mcp_pruner.port == 9200


def test_home_is_the_state_directory_of_the_platform_unless_it_is_moved(here: Path):
    assert load({}, here).config.home.name == "kimi-proxy"
    assert load({"KIMI_PROXY_HOME": str(here)}, here).config.home == here


def test_a_tilde_is_the_users_own_directory_and_not_one_of_that_name(monkeypatch: pytest.MonkeyPatch, here: Path):
    monkeypatch.setenv("HOME", str(here))

    assert load({"KIMI_PROXY_HOME": "~/state"}).config.home == home({"KIMI_PROXY_HOME": "~/state"}) == here / "state"


def test_a_file_in_the_directory_of_nobody_is_not_there():
    with pytest.raises(ConfigError, match="KIMI_PROXY_CONFIG is ~nobody-of-this-name/x, which is not a file"):
        load({"KIMI_PROXY_CONFIG": "~nobody-of-this-name/x"})


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"[mcp_pruner]\nprot = 1\n", "mcp_pruner.prot"),
        (b"[mcp_pruner\n", "not valid TOML"),
        (b"\xff\xfe", "cannot read"),
    ],
)
def test_a_bad_file_is_named_with_what_is_wrong_in_it(here: Path, content: bytes, complaint: str):
    file = here / "config.toml"
    file.write_bytes(content)

    with pytest.raises(ConfigError, match=complaint) as raised:
        load({}, here)

    assert str(file) in str(raised.value)
