"""What the environment and the file may say, and what they may not."""

from pathlib import Path

import pytest

from kimi_proxy.core.addresses import Address
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
    assert config(KIMI_PROXY_DATABASE_URL=url).store.url == Address(url)


def test_every_setting_can_come_from_the_environment():
    env = {
        "KIMI_PROXY__SANITIZER__POLICY": "deep",
        "KIMI_PROXY__SANITIZER__ROUTING__FALLBACK_THRESHOLD": "0.5",
        "KIMI_PROXY__TOOLS__ROOTS": '["/srv", "/data"]',
        "KIMI_PROXY__COMPRESSION__AUTOMATIC": "true",
        "KIMI_PROXY__PROVIDERS__LOCAL__BASE_URL": "http://127.0.0.1:9/v1",
        "KIMI_PROXY__MODELS": '{"x/fast" = {provider = "local", max_context_size = 9000}}',
    }

    settings = config("[tools]\nenabled = false\n[sanitizer]\npolicy = 'careful'\nbudget_ms = 7", **env)

    assert (settings.sanitizer.policy, settings.sanitizer.budget_ms) == ("deep", 7)
    assert settings.sanitizer.routing.fallback_threshold == 0.5
    assert (settings.tools.roots, settings.tools.enabled) == (("/srv", "/data"), False)
    assert settings.compression.automatic
    assert settings.providers["local"].enabled
    assert settings.models["x/fast"].max_context_size == 9000


def test_a_variable_with_a_name_of_its_own_wins():
    assert config(KIMI_PROXY__PROXY__PORT="1", KIMI_PROXY_PORT="2").proxy.port == 2


@pytest.mark.parametrize(
    ("variable", "value", "problem"),
    [
        ("KIMI_PROXY__SANITIZER__POLICY", "bold", "setting sanitizer.policy (KIMI_PROXY__SANITIZER__POLICY): Input"),
        ("KIMI_PROXY__TOOLS__ROOT", "[]", "tools.root (KIMI_PROXY__TOOLS__ROOT): there is no such setting: did you"),
        ("KIMI_PROXY__HOME", "/x", "home cannot be set in the configuration file"),
        ("KIMI_PROXY__PROVIDER_KEYS", "{a = 'sk'}", "provider_keys cannot be set in the configuration file"),
        ("KIMI_PROXY__PROXY", "5", "setting proxy (KIMI_PROXY__PROXY)"),
    ],
)
def test_a_variable_that_makes_no_sense_is_named(variable: str, value: str, problem: str):
    with pytest.raises(ConfigError) as refused:
        config(**{variable: value})

    assert problem in str(refused.value)


def test_text_in_a_variable_never_becomes_a_second_setting():
    assert config(KIMI_PROXY__TOOLS__CWD="1\n[proxy]\nport = 9").tools.cwd == "1\n[proxy]\nport = 9"


@pytest.mark.parametrize(
    "toml",
    [
        '[team]\nenabled = true\n[team.oidc]\nissuer = "https://ann:s3cret@id.example.org"\n',
        '[team]\nenabled = true\n[team.oidc]\nissuer = "http://id.example.org/s3cret"\n',
        '[telemetry]\notlp_endpoint = "ftp://ann:s3cret@example.org"\n',
        '[tools]\npruner_endpoint = "ftp://ann:s3cret@example.org"\n',
        '[providers.mine]\nbase_url = "https://ann:s3cret@example.org"\n',
        '[providers.mine]\nbase_url = "https://example.org"\nproxy = "https://ann:s3cret@example.org"\n',
        '[mcp.servers.mine]\nurl = "ftp://ann:s3cret@example.org"\n',
        '[store]\nurl = "mysql://ann:s3cret@example.org"\n',
        '[store]\nurl = "postgresql://ann:s3cret@example.org"\n',
        '[mcp.servers.mine]\nargs = "s3cret"\n',
    ],
)
def test_an_address_that_is_refused_is_not_repeated(toml: str, tmp_path: Path):
    with pytest.raises(ConfigError) as caught:
        parse(toml, {}, tmp_path)

    # With its cause, as a program that uses the Python API prints it.
    said = str(caught.value) + str(caught.value.__cause__)
    assert "s3cret" not in said
    assert "ann:" not in said


@pytest.mark.parametrize(
    "upstreams", ["https://ann:s3cret@example.org", "kimi=https://ann:s3cret@example.org", "=s3cret"]
)
def test_an_address_of_the_environment_that_is_refused_is_not_repeated(upstreams: str, tmp_path: Path):
    with pytest.raises(ConfigError, match="KIMI_PROXY_UPSTREAMS") as caught:
        parse("", {"KIMI_PROXY_UPSTREAMS": upstreams}, tmp_path)

    assert "s3cret" not in str(caught.value) + str(caught.value.__cause__)
