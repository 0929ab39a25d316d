"""`kimi-proxy tools --stdio`, as an agent starts it."""

import json
import re
import signal
import time
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from tests.support.forks import Fork
from tests.support.processes import runs_in, within

from kimi_proxy.api.mcp.stdio import DRAIN_S

from .conftest import Cli, stop


class Agent:
    """Calls tools of a started server, one after the other."""

    def __init__(self, process: Fork) -> None:
        self._process = process
        self._calls = 0

    def say(self, method: str, **params: object) -> int:
        assert self._process.stdin is not None
        self._calls += 1
        message = {"jsonrpc": "2.0", "id": self._calls, "method": method, "params": params}
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        return self._calls

    def ask(self, method: str, **params: object) -> dict[str, object]:
        assert self._process.stdout is not None
        self.say(method, **params)
        answer: dict[str, dict[str, object]] = json.loads(self._process.stdout.readline())
        assert "result" in answer, answer
        return answer["result"]

    def call(self, name: str, **arguments: object) -> str:
        result = self.ask("tools/call", name=name, arguments=arguments)
        match result["content"]:
            case [{"type": "text", "text": str(text)}]:
                return text
            case other:
                raise AssertionError(other)


LOG = "".join(f"2026-01-01 12:00:{n % 60:02} INFO item {n} of batch {n % 17} was stored\n" for n in range(800))


def test_an_agent_reads_with_a_question_and_recovers_what_a_marker_hides(cli: Cli):
    (cli.here / "app.log").write_text(f"{LOG}2026-01-01 13:00:00 ERROR batch 99 was refused: quota\n{LOG}")
    with cli.started("tools", "--stdio") as process:
        agent = Agent(process)
        listed = agent.ask("tools/list")["tools"]
        shown = agent.call("read", file_path="app.log", context_focus_question="Why was a batch refused?")
        marker = next(line for line in shown.split("\n") if line.startswith("⟦PRUNÉ"))
        prune_id = marker.split("prune_id=")[1].split()[0]
        start, end = marker.split("lignes ")[1].split()[0].split("-")
        asked = [{"start_line": int(start), "end_line": int(end)}]
        answer = agent.call("recover_text", prune_id=prune_id, ranges=asked, include_line_numbers=False)

    assert isinstance(listed, list)
    assert [tool["name"] for tool in listed] == ["read", "grep", "bash", "recover_text"]
    assert "ERROR batch 99 was refused: quota" in shown
    lines = (cli.here / "app.log").read_text().split("\n")
    assert json.loads(answer)["raw_text"] == "\n".join(lines[int(start) - 1 : int(end)])


def test_an_agent_searches_and_runs_commands(cli: Cli):
    (cli.here / "a.py").write_text("def needle():\n    pass\n")
    with cli.started("tools", "--stdio") as process:
        agent = Agent(process)

        assert agent.call("grep", pattern="needle") == "a.py:1:def needle():"
        assert agent.call("bash", command="echo $((6 * 7)); exit 1") == "42\n[kimi-proxy] exit code 1"


def test_the_working_directory_can_be_chosen(cli: Cli):
    (cli.here / "sub").mkdir()
    with cli.started("tools", "--stdio", "--cwd", "sub") as process:
        assert Agent(process).call("bash", command="pwd") == f"{cli.here / 'sub'}\n"


def test_every_step_is_logged_under_its_name_with_the_same_request_id(cli: Cli):
    (cli.here / "a.txt").write_text("hello\n")
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    call = {**request, "params": {"name": "read", "arguments": {"file_path": "a.txt"}}}
    done = cli("tools", "--stdio", stdin=json.dumps(call).encode() + b"\nnot json\n")

    events = [line for line in done.stderr.decode().split("\n") if " tool." in line]
    ours = [line for line in events if "tool=read" in line]
    assert [line.split()[2] for line in ours] == [
        "tool.request_received",
        "tool.exec_start",
        "tool.exec_ok",
        "tool.respond_ok",
    ]
    assert len({line.split("request_id=")[1].split()[0] for line in ours}) == 1
    assert [line.split()[2] for line in events if line not in ours] == ["tool.request_parse_failed"]


@pytest.mark.parametrize("leaves", ["by closing its input", "by closing both pipes", "by being killed"])
def test_a_command_ends_when_the_agent_is_gone(cli: Cli, leaves: str):
    with cli.started("tools", "--stdio") as process:
        Agent(process).say("tools/call", name="bash", arguments={"command": "touch begun; sleep 600"})
        assert within(60, (cli.here / "begun").exists)
        left = time.monotonic()
        if leaves == "by being killed":
            process.kill()
        else:
            process.stdin.close()
        if leaves == "by closing both pipes":
            process.stdout.close()
        process.wait(60)
        assert time.monotonic() - left < DRAIN_S  # for which answers that only read are waited for
        assert within(60, lambda: not runs_in(cli.here))


@pytest.mark.parametrize("ways", [[], ["--stdio", "--port", "0"]])
def test_one_way_to_speak_must_be_chosen(cli: Cli, ways: list[str]):
    done = cli("tools", *ways)

    assert done.returncode == 2
    assert b"--stdio or --port" in done.stderr


def test_over_http_it_tells_its_address_and_lets_nobody_in_without_the_token(cli: Cli):
    token = "t" * 32
    with cli.started("tools", "--port", "0", env={"KIMI_PROXY_TOKEN": token}) as process:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).encode()
        request = Request(f"{told['url']}/mcp", body, {"Content-Type": "application/json", "Accept": "*/*"})
        with pytest.raises(HTTPError, match="401") as refused:
            urlopen(request, timeout=60)
        refused.value.close()
        request.add_header("Authorization", f"Bearer {token}")
        with urlopen(request, timeout=60) as answer:
            listed = json.load(answer)["result"]["tools"]
        code, _ = stop(process, signal.SIGTERM)

    assert told["server"] == "mcp-pruner"
    assert told["url"].startswith("http://127.0.0.1:")
    assert [tool["name"] for tool in listed] == ["read", "grep", "bash", "recover_text"]
    assert code == 0


def test_over_http_there_must_be_a_token(cli: Cli):
    done = cli("tools", "--port", "0")

    assert done.returncode == 78
    assert b"KIMI_PROXY_TOKEN" in done.stderr


def test_settings_that_mean_nothing_are_refused(cli: Cli):
    done = cli("tools", "--stdio", env={"PRUNER_TIMEOUT_MS": "soon"})

    assert done.returncode == 78
    assert b"PRUNER_TIMEOUT_MS" in done.stderr


def peak_kb(process: Fork) -> int:
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])


def test_a_hundred_megabytes_of_output_take_little_memory(cli: Cli):
    with cli.started("tools", "--stdio") as process:
        agent = Agent(process)
        agent.call("bash", command="seq 200000")  # loads what a long output needs
        before = peak_kb(process)
        shown = agent.call("bash", command="yes 0123456789abcdef | head -c 100000000")
        grown = peak_kb(process) - before

    assert re.search(r"lignes \d+-\d+ .*suite de la sortie", shown)
    print(f"peak memory grew by {grown} kB for 100 MB of output")
    assert grown < 60_000


def test_a_directory_that_is_not_there_is_refused_at_once(cli: Cli):
    """Later every file would be said not to exist, and nobody would know why."""
    done = cli("tools", "--stdio", "--cwd", "absent")

    assert (done.returncode, done.stdout) == (2, b"")
    assert b"'absent' does not exist" in done.stderr
