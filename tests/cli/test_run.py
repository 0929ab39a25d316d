"""`kimi-proxy run`, as a person starts an agent with it."""

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.support.deep import deep, too
from tests.support.processes import is_there, within

from .conftest import PATIENCE_S, Cli, stop


@pytest.fixture
def cli(cli: Cli, tmp_path: Path) -> Cli:
    """With a server that may take its time to start, as it does on a busy machine."""
    patient = tmp_path / "patient.toml"
    patient.write_text("[runner]\nstartup_timeout_ms = 300_000\n")
    return Cli(cli.here, {**cli.env, "KIMI_PROXY_CONFIG": str(patient)})


def runs(cli: Cli) -> list[Path]:
    return sorted(Path(cli.env["KIMI_PROXY_HOME"]).glob("runs/*"))


def events(cli: Cli) -> list[str]:
    """What the log of the only run says."""
    (run,) = runs(cli)
    return [json.loads(line)["event"] for line in (run / "events.log").read_text().split("\n") if line]


def server_pid(cli: Cli) -> int:
    (run,) = runs(cli)
    ready = json.loads((run / "events.log").read_text().split("\n")[0])
    assert ready["event"] == "mcp_pruner.ready"
    pid: int = ready["pid"]
    return pid


def test_the_agent_has_the_tools_and_its_exit_code_is_ours(cli: Cli):
    done = cli("run", "--", "sh", "-c", "curl -s ${KIMI_PROXY_MCP_URL%/mcp}/health; exit 7")

    assert json.loads(done.stdout)["server"] == "mcp-pruner"
    assert done.returncode == 7
    assert events(cli) == ["mcp_pruner.ready", "mcp_pruner.stopped"]


@deep("it starts a proxy and an agent; another agent's run always does")
def test_one_remark_says_where_the_log_is_and_the_rest_is_the_agent_s(cli: Cli):
    done = cli("run", "sh", "-c", "cat; echo out; echo err >&2", stdin=b"typed\n")

    assert done.stdout == b"typed\nout\n"
    first, *rest = done.stderr.split(b"\n")
    assert rest == [b"err", b""]
    assert str(runs(cli)[0]).encode() in first


@deep("it starts a proxy and an agent; another agent's run always does")
def test_options_behind_the_command_are_the_agent_s(cli: Cli):
    assert cli("run", "echo", "--help", "-p", "--agent", "x").stdout == b"--help -p --agent x\n"


def test_nobody_gets_in_without_the_token(cli: Cli):
    ask = (
        """curl -s -o /dev/null -w '%{http_code}' -H 'Content-Type: application/json' -d '{}' "$KIMI_PROXY_MCP_URL" """
    )
    done = cli("run", "sh", "-c", ask)

    assert done.stdout == b"401"


@deep("it starts a proxy and an agent; another agent's run always does")
def test_claude_code_is_told_by_a_file(cli: Cli, tmp_path: Path):
    agent = tmp_path / "claude"
    agent.write_text('#!/bin/sh\necho "$@"; cat "${1#--mcp-config=}"\n')
    agent.chmod(0o755)
    done = cli("run", "--", str(agent), "-p", "why?")

    told, config = done.stdout.decode().split("\n", 1)
    grant = "--allowedTools=mcp__kimi-proxy__recover_text"
    assert told == f"--mcp-config={runs(cli)[0]}/mcp.json {grant} -p why?"
    assert json.loads(config)["mcpServers"]["kimi-proxy"]["url"].startswith("http://127.0.0.1:")
    assert not (runs(cli)[0] / "mcp.json").exists()


def test_switched_off_the_agent_runs_alone(cli: Cli):
    done = cli("run", "sh", "-c", "env; exit 4", env={"JEEVES_MCP_PRUNER_ENABLED": "false"})

    assert done.returncode == 4
    assert b"KIMI_PROXY_MCP" not in done.stdout
    assert b"they are switched off" in done.stderr
    assert events(cli) == ["mcp_pruner.disabled", "mcp_pruner.not_running"]


def test_settings_that_mean_nothing_do_not_keep_the_agent_from_running(cli: Cli):
    done = cli("run", "echo", "here", env={"PRUNER_TIMEOUT_MS": "soon"})

    assert (done.returncode, done.stdout) == (0, b"here\n")
    assert b"PRUNER_TIMEOUT_MS" in done.stderr
    assert events(cli) == ["mcp_pruner.config_invalid", "mcp_pruner.not_running"]


@deep("it starts a proxy and an agent; another agent's run always does")
def test_a_state_directory_that_cannot_be_written_does_not_either(cli: Cli, tmp_path: Path):
    (tmp_path / "state").write_text("in the way")
    done = cli("run", "sh", "-c", "curl -s ${KIMI_PROXY_MCP_URL%/mcp}/health", env={"TMPDIR": str(tmp_path)})

    assert done.returncode == 0
    assert json.loads(done.stdout)["status"] == "healthy"


def test_a_command_that_does_not_exist_is_named(cli: Cli):
    done = cli("run", "no-such-agent")

    assert done.returncode == 127
    assert done.stderr == b"kimi-proxy: no-such-agent: no such command\n"
    assert runs(cli) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, too(signal.SIGINT), too(signal.SIGHUP)])
def test_a_signal_is_the_agent_s_to_answer(cli: Cli, number: signal.Signals):
    waiting = f"trap 'exit 42' {number.name[3:]}; touch begun; while :; do sleep 0.02; done"
    with cli.started("run", "sh", "-c", waiting) as process:
        assert within(PATIENCE_S, (cli.here / "begun").exists)
        code, _ = stop(process, number)

    assert code == 42
    assert events(cli) == ["mcp_pruner.ready", "mcp_pruner.stopped"]


def test_a_signal_before_the_agent_has_begun_ends_everything(cli: Cli):
    with cli.started("run", "touch", "begun") as process:
        assert within(PATIENCE_S, lambda: bool(_servers(process.pid)))
        code, _ = stop(process, signal.SIGTERM)

    assert code == 128 + signal.SIGTERM
    assert not (cli.here / "begun").exists()
    assert events(cli) == ["mcp_pruner.start_failed", "mcp_pruner.not_running"]


def _servers(parent: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            mine = int(stat.read_text().rpartition(")")[2].split()[1]) == parent
            found += [int(stat.parent.name)] if mine and b"tools" in (stat.parent / "cmdline").read_bytes() else []
        except OSError:
            continue
    return found


def test_a_runner_that_is_killed_leaves_no_server(cli: Cli):
    with cli.started("run", "sh", "-c", "echo $$ > agent; touch begun; sleep 600") as process:
        assert within(PATIENCE_S, (cli.here / "begun").exists)
        server = server_pid(cli)
        agent = int((cli.here / "agent").read_text())
        process.kill()
        process.wait(PATIENCE_S)
        try:
            assert within(60, lambda: not is_there(server))
        finally:
            os.kill(agent, signal.SIGKILL)


@deep("it waits for tools that are killed")
def test_an_agent_outlives_its_tools(cli: Cli):
    waiting = "touch begun; while [ ! -e done ]; do sleep 0.02; done; cat $KIMI_PROXY_MCP_CONFIG; exit 5"
    with cli.started("run", "sh", "-c", waiting) as process:
        assert within(PATIENCE_S, (cli.here / "begun").exists)
        os.kill(server_pid(cli), signal.SIGKILL)
        assert within(PATIENCE_S, lambda: "mcp_pruner.degraded" in events(cli))
        (cli.here / "done").touch()
        out, _ = process.communicate(timeout=PATIENCE_S)

    assert process.returncode == 5
    assert json.loads(out) == {"mcpServers": {}}
    assert events(cli)[1:] == ["mcp_pruner.exited", "mcp_pruner.degraded", "mcp_pruner.shutdown_after_degraded"]


ENVIRONMENT = 'echo "$ANTHROPIC_BASE_URL $_CLAUDE_CODE_ASSUME_FIRST_PARTY_BASE_URL $*"'


def test_an_agent_s_requests_go_through_the_proxy_that_runs(cli: Cli, tmp_path: Path):
    (tmp_path / "config.toml").write_text('[providers.anthropic]\napi_key = ""\n')
    (tmp_path / "copilot").write_text('#!/bin/sh\necho "$COPILOT_PROVIDER_BASE_URL"\n')
    (tmp_path / "copilot").chmod(0o755)
    env = {"JEEVES_MCP_PRUNER_ENABLED": "false", "KIMI_PROXY_CONFIG": str(tmp_path / "config.toml")}
    with answering({"server": "kimi-proxy", "version": "1", "status": "healthy"}) as port:
        env |= {"KIMI_PROXY_PORT": str(port)}
        keyed = {**env, "ANTHROPIC_API_KEY": "sk-ant-api03-x"}
        claude = cli("run", "--proxy", "--agent", "claude", "sh", "-c", ENVIRONMENT, env=keyed)
        (tmp_path / "risk.toml").write_text(
            '[providers.anthropic]\napi_key = ""\n[sanitizer]\nchange_attested = true\n'
        )
        risk = {**keyed, "KIMI_PROXY_CONFIG": str(tmp_path / "risk.toml")}
        signing = cli("run", "--proxy", "--agent", "claude", "sh", "-c", ENVIRONMENT, env=risk)
        login = cli("run", "--proxy", "--agent", "claude", "sh", "-c", ENVIRONMENT, env=env)
        codex = cli("run", "--proxy", "--agent", "codex", "echo", "exec", env=env)
        copilot = cli("run", "--proxy", "copilot", env={**env, "PATH": f"{tmp_path}:{os.environ['PATH']}"})
        (tmp_path / "codex").mkdir()
        (tmp_path / "codex" / "config.toml").write_text(
            'model_provider = "mine"\n[model_providers.mine]\nname = "Mine"\n'
        )
        own = {**env, "CODEX_HOME": str(tmp_path / "codex")}
        mine = cli("run", "--proxy", "--agent", "codex", "echo", "exec", env=own)
    url = f"http://127.0.0.1:{port}"

    assert claude.stdout.decode().split() == [url]
    assert signing.stdout.decode().split() == [url, "1"]
    assert login.stdout.decode().split() == [url]
    assert codex.stdout.decode() == f'-c openai_base_url="{url}/v1" exec\n'
    assert mine.stdout.decode() == f'-c model_providers.mine.base_url="{url}/v1" exec\n'
    assert copilot.stdout.decode() == f"{url}/v1\n"


CHECKS = 'echo "${CLAUDE_CODE_AUTO_MODE_SERVER-unset}"'


@pytest.mark.parametrize(
    ("providers", "expected", "says"),
    [
        (("kimi",), b"0", b"about 35,000 tokens for each checked action"),
        (("anthropic",), b"unset", b""),
        (("anthropic", "kimi"), b"unset", b"for a model that is not Anthropic's, start Claude Code with"),
    ],
)
def test_claude_code_checks_actions_by_itself_where_only_others_answer(
    providers: tuple[str, ...], expected: bytes, says: bytes, cli: Cli, tmp_path: Path
):
    (tmp_path / "config.toml").write_text("".join(f'[providers.{name}]\napi_key = ""\n' for name in providers))
    env = {"JEEVES_MCP_PRUNER_ENABLED": "false", "KIMI_PROXY_CONFIG": str(tmp_path / "config.toml")}
    with answering({"server": "kimi-proxy", "version": "1", "status": "healthy"}) as port:
        env |= {"KIMI_PROXY_PORT": str(port)}
        done = cli("run", "--proxy", "--agent", "claude", "sh", "-c", CHECKS, env=env)
        other = cli("run", "--proxy", "--agent", "codex", "sh", "-c", CHECKS, env=env)

    assert done.stdout.split() == [expected]
    assert says in done.stderr
    assert (b"AUTO_MODE" in done.stderr) is bool(says)
    assert b"AUTO_MODE" not in other.stderr


@pytest.mark.parametrize(
    ("providers", "mine", "expected"),
    [
        (("anthropic",), {}, b"true"),
        (("anthropic", "kimi"), {}, b"true"),
        (("anthropic",), {"ENABLE_TOOL_SEARCH": "false"}, b"false"),
        (("kimi",), {}, b"unset"),
    ],
)
def test_claude_code_searches_its_tools_where_anthropic_answers_unless_the_user_says_otherwise(
    providers: tuple[str, ...], mine: dict[str, str], expected: bytes, cli: Cli, tmp_path: Path
):
    (tmp_path / "config.toml").write_text("".join(f'[providers.{name}]\napi_key = ""\n' for name in providers))
    env = {"JEEVES_MCP_PRUNER_ENABLED": "false", "KIMI_PROXY_CONFIG": str(tmp_path / "config.toml"), **mine}
    with answering({"server": "kimi-proxy", "version": "1", "status": "healthy"}) as port:
        env |= {"KIMI_PROXY_PORT": str(port)}
        done = cli(*("run", "--proxy", "--agent", "claude", "sh", "-c", 'echo "${ENABLE_TOOL_SEARCH-unset}"'), env=env)

    assert done.stdout.split() == [expected]


@pytest.mark.parametrize(
    ("agent", "why"), [("claude", b"it is not running"), ("other", b"only Claude Code, Codex and Copilot CLI")]
)
def test_without_a_proxy_the_agent_runs_as_it_would(agent: str, why: bytes, cli: Cli):
    env = {"JEEVES_MCP_PRUNER_ENABLED": "false", "KIMI_PROXY_PORT": "9"}
    done = cli("run", "--proxy", "--agent", agent, "sh", "-c", ENVIRONMENT, env=env)

    assert done.stdout.split() == []
    assert why in done.stderr


@contextmanager
def answering(health: dict[str, str]) -> Iterator[int]:
    """A server that says who it is."""

    class Health(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(health).encode())

        def log_message(self, format: str, *args: object) -> None:
            """It is asked twice, as expected."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Health) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()
