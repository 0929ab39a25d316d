"""What the environment and the file may say, and what they may not."""

from pathlib import Path

import pytest

from kimi_proxy.core.config import Config, parse
from kimi_proxy.core.errors import ConfigError


def config(toml: str = "", **env: str) -> Config:
    return parse(toml, env, Path("/nowhere"))


def test_the_space_around_a_token_is_not_part_of_it():
    """A file that is read into a variable leaves its newline there, and no header can carry one."""
    token = config(KIMI_PROXY_TOKEN=" s3cret\n").token

    assert token is not None and token.get_secret_value() == "s3cret"


def test_a_blank_token_is_refused_since_it_protects_nothing():
    with pytest.raises(ConfigError, match="KIMI_PROXY_TOKEN is blank: set a token, or unset it"):
        config(KIMI_PROXY_TOKEN=" \n")


def test_a_blank_key_is_none():
    assert config(DEEPINFRA_API_KEY=" \n").deepinfra_api_key is None


@pytest.mark.parametrize("value", ["abc", "${GITHUB_TOKEN}"])
def test_a_servers_secret_is_passed_on_by_name_and_never_written_down(value: str):
    toml = f'[mcp.servers.github]\ncommand = "github-mcp"\nenv = {{ GITHUB_TOKEN = "{value}" }}'

    with pytest.raises(ConfigError) as refused:
        config(toml, GITHUB_TOKEN="abc")

    assert str(refused.value) == (
        "mcp.servers.github.env.GITHUB_TOKEN: secrets are read from the environment only; "
        'remove it from the file, and write env_pass = ["GITHUB_TOKEN"] in its place'
    )


@pytest.mark.parametrize("url", ["postgresql://me:hunter2@db/x", "postgresql://db/x?user=me&password=hunter2"])
def test_a_database_password_is_refused_in_the_file_and_taken_from_the_environment(url: str):
    with pytest.raises(ConfigError, match="KIMI_PROXY_DATABASE_URL") as refused:
        config(f'[store]\nurl = "{url}"')

    assert "hunter2" not in str(refused.value)
    assert config(KIMI_PROXY_DATABASE_URL=url).store.url == url
