"""The servers, in the foreground."""

import json
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from tests.support.cli.serving import serving
from tests.support.processes import within

from kimi_proxy.services.background import running

from .conftest import Cli, stop


def rpc(address: str, method: str, params: dict[str, object]) -> dict[str, object]:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    request = Request(f"{address}/rpc", body, {"Content-Type": "application/json"})
    with urlopen(request, timeout=60) as answer:
        read: dict[str, object] = json.load(answer)
    return read


@contextmanager
def hanging_up_is(handler: signal.Handlers) -> Iterator[None]:
    """What programs that are started meanwhile inherit: the tests themselves may run under nohup."""
    before = signal.signal(signal.SIGHUP, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("command", ["start", "pruner"])
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_tells_where_it_listens_and_stops_cleanly(cli: Cli, command: str, how: signal.Signals):
    with hanging_up_is(signal.SIG_DFL), serving(cli, command) as (process, address):
        with urlopen(f"{address}/health", timeout=60) as answer:
            health = json.load(answer)
        code, said = stop(process, how)

    assert cli.env["KIMI_PROXY_HOME"].encode() in said
    assert f"try: curl -s {address}/health\n".encode() in said
    assert (health["status"], health["server"]) == ("healthy", "mcp-pruner")
    assert code == 0
    assert b"Traceback" not in said
    assert said.endswith(b"kimi-proxy: stopped\n")


def test_with_the_format_json_every_line_is_json(cli: Cli):
    env = {"KIMI_PROXY__LOG__FORMAT": "json"}
    with cli.started("start", env=env) as process:
        assert process.stderr is not None
        said = list[bytes]()
        for line in process.stderr:
            said.append(line)
            if b"press Ctrl-C to stop" in line:
                break
        code, rest = stop(process)

    events = [json.loads(line)["event"] for line in (*said, *rest.splitlines())]
    assert code == 0
    assert any(event.startswith("the proxy listens on http://") for event in events)
    assert events[-1] == "stopped"


def test_a_folder_of_secrets_gives_the_variables_that_the_environment_lacks(cli: Cli, tmp_path: Path):
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "KIMI_PROXY_TOKEN").write_text("0123456789abcdef-file\n")
    env = {"KIMI_PROXY_SECRETS_DIR": str(secrets)}
    with serving(cli, "pruner", env=env) as (process, address):
        asked = Request(f"{address}/metrics", headers={"authorization": "Bearer 0123456789abcdef-file"})
        with urlopen(asked, timeout=60) as answer:
            assert answer.status == 200
        with pytest.raises(HTTPError):
            urlopen(f"{address}/metrics", timeout=60)
        assert stop(process)[0] == 0


def test_under_nohup_the_end_of_a_terminal_is_not_the_end_of_the_server(cli: Cli):
    with hanging_up_is(signal.SIG_IGN), serving(cli, "pruner") as (process, address):
        process.send_signal(signal.SIGHUP)
        with urlopen(f"{address}/health", timeout=60) as answer:
            assert answer.status == 200
        assert stop(process)[0] == 0


def test_start_opens_the_proxy_too(cli: Cli):
    with serving(cli, "start", name="proxy") as (process, address):
        with urlopen(f"{address}/health", timeout=60) as answer:
            health = json.load(answer)
        code, said = stop(process)

    assert (health["status"], health["server"], code) == ("healthy", "kimi-proxy", 0)
    assert said.endswith(b"kimi-proxy: stopped\n")


def test_what_the_server_pruned_the_command_recovers(cli: Cli):
    text = "".join(f"2026-01-02 03:04:05 INFO GET /page{i % 7}\n" for i in range(500))
    options = {
        "max_prune_ratio": 0.7,
        "min_keep_lines": 1,
        "timeout_ms": 60_000,
        "annotate_lines": False,
        "include_markers": True,
    }
    asked = {"text": text, "goal_hint": "page 3", "source_type": "logs", "options": options}

    with serving(cli, "start") as (_, address):
        answer = rpc(address, "prune_text", asked)["result"]
        assert isinstance(answer, dict)
        recovered = cli("recover", str(answer["prune_id"])).stdout

    assert recovered.decode() == text


def test_a_second_server_names_the_first_that_holds_its_port(cli: Cli):
    with serving(cli, "start") as (_, address):
        second = cli("start", env={"MCP_PRUNER_PORT": address.rpartition(":")[2]})

    assert second.returncode == 78
    assert b"is taken by mcp-pruner" in second.stderr
    assert b"Traceback" not in second.stderr


def test_a_port_of_the_proxy_that_is_taken_stops_the_pruner_too(cli: Cli):
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        done = cli("start", env={"KIMI_PROXY_PORT": str(stranger.getsockname()[1])})

    assert done.returncode == 78
    assert b"is taken by another program, which is not kimi-proxy" in done.stderr
    assert b"Traceback" not in done.stderr


def test_a_stranger_on_the_port_is_called_one(cli: Cli):
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        done = cli("pruner", "--port", str(stranger.getsockname()[1]))

    assert done.returncode == 78
    assert b"is taken by another program, which is not kimi-proxy" in done.stderr


def test_beyond_loopback_it_does_not_start_without_a_token(cli: Cli):
    done = cli("pruner", "--host", "0.0.0.0")

    assert done.returncode == 78
    assert b"KIMI_PROXY_TOKEN" in done.stderr


def test_with_a_token_it_does(cli: Cli):
    with serving(cli, "pruner", "--host", "0.0.0.0", env={"KIMI_PROXY_TOKEN": "a" * 32}) as (process, address):
        assert urlopen(f"{address}/health", timeout=60).status == 200
        assert stop(process)[0] == 0


def test_over_stdio_it_answers_and_ends_with_its_input(cli: Cli):
    ask = b'{"jsonrpc":"2.0","id":7,"method":"tools/list"}\n'

    done = cli("pruner", "--stdio", stdin=ask)

    assert done.returncode == 0
    answer = json.loads(done.stdout)
    assert answer["id"] == 7
    assert [tool["name"] for tool in answer["result"]["tools"]] == ["prune_text", "recover_text", "health"]


def test_the_start_message_names_addresses_the_file_and_the_providers(cli: Cli):
    (cli.here / "other.toml").write_text("[providers.ollama]\n")
    with serving(cli, "start", "--config", "other.toml", env={"ANTHROPIC_API_KEY": "x"}, name="proxy") as (
        process,
        address,
    ):
        said = stop(process)[1].decode()

    assert f"the dashboard is on {address}/\n" in said
    assert f"base URLs for chat: {address}/v1 (OpenAI chat completions and responses), {address} (Anthropic)\n" in said
    assert f"configuration: {cli.here / 'other.toml'}\n" in said
    assert "providers: ollama; on demand: anthropic (ANTHROPIC_API_KEY), others" in said


@pytest.mark.parametrize(
    ("providers", "says"),
    [
        (("kimi",), "CLAUDE_CODE_AUTO_MODE_SERVER=0 lets Claude Code's auto mode check actions by itself"),
        (("anthropic", "kimi"), "for a model that is not Anthropic's, start Claude Code with CLAUDE_CODE_AUTO_MODE_"),
        (("anthropic",), ""),
        ((), ""),
    ],
)
def test_the_start_message_says_what_auto_mode_needs_and_costs(providers: tuple[str, ...], says: str, cli: Cli):
    (cli.here / "config.toml").write_text("".join(f'[providers.{name}]\napi_key = ""\n' for name in providers))
    with serving(cli, "start", name="proxy") as (process, _):
        said = stop(process)[1].decode()

    assert says in said
    assert ("about 35,000 tokens for each checked action" in said) is bool(says)


def test_it_starts_with_a_setting_that_no_longer_exists_and_says_what_to_do_instead(cli: Cli):
    (cli.here / "config.toml").write_text("[cache]\nkeep_warm = true\n")
    with serving(cli, "start", name="proxy") as (process, _):
        said = stop(process)[1].decode()

    assert said.count("cache.keep_warm") == 1
    assert "kimi-proxy: ignored: cache.keep_warm (line 2): kimi-proxy sends no requests of its own to keep" in said


def test_on_all_interfaces_it_names_an_address_that_other_machines_can_use(cli: Cli):
    env = {"KIMI_PROXY_HOST": "0.0.0.0", "KIMI_PROXY_TOKEN": "0123456789abcdef"}
    with serving(cli, "start", env=env, name="proxy") as (process, _):
        said = stop(process)[1].decode()

    found = re.search(r"from other machines, the proxy is on (http://[\d.]+:\d+)", said)
    assert found is None or not found[1].startswith(("http://0.", "http://127."))
    assert "configuration: no file; " in said


def test_the_ports_of_start_are_options(cli: Cli):
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
        ports = [str(each.getsockname()[1]) for each in (first, second)]
    home = Path(cli.env["KIMI_PROXY_HOME"])
    with serving(cli, "start", "--port", ports[0], "--pruner-port", ports[1]):
        assert within(60, lambda: running(home) is not None)
        found = running(home)

    proxy, pruner = (f"http://127.0.0.1:{port}" for port in ports)
    assert found is not None and found.addresses == {"proxy": proxy, "pruner": pruner}
    told = cli("start", "--help").stdout.decode()
    assert "8000" in told and "8006" in told


def test_a_taken_port_is_answered_with_the_option_that_chooses_another(cli: Cli):
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        done = cli("start", "--port", str(stranger.getsockname()[1]))

    assert done.returncode == 78
    assert b"--port PORT, KIMI_PROXY_PORT=PORT" in done.stderr


@pytest.mark.parametrize("command", ["start", "doctor", "config"])
def test_a_file_that_the_option_names_and_that_is_absent_is_blamed_on_the_option(cli: Cli, command: str):
    done = cli(command, "--config", "none.toml")

    assert done.returncode == 78
    assert done.stderr.startswith(b"kimi-proxy: --config: none.toml does not exist")
    assert b"KIMI_PROXY_CONFIG" not in done.stderr


def test_metrics_have_a_port_of_their_own_where_they_are_switched_on(cli: Cli):
    env = {"KIMI_PROXY__METRICS__ENABLED": "true", "KIMI_PROXY__METRICS__PORT": "0"}
    with serving(cli, "start", env=env, name="metrics port") as (process, address):
        with urlopen(f"{address}/metrics", timeout=60) as answer:
            figures = answer.read()
        code, said = stop(process)

    assert b"kimi_proxy_store_originals" in figures
    assert code == 0
    assert b"Traceback" not in said
