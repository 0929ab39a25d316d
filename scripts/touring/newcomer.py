"""The first five minutes of a newcomer: a fresh clone, an empty home, one key, and the README's lines.

    scripts/tour newcomer

A scripted provider stands in for Anthropic; everything else is what a person would start."""

import json
import os
import pty
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.request import urlopen

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.support.browser import chromium  # noqa: E402 - found once the root is on the path

KEY = "sk-ant-dummy-of-a-newcomer"
MODEL = "claude-sonnet-4-5-20250929"
PATIENCE_S = 600
FIRST_NUMBER_S = 60
LISTENS = re.compile(r"the proxy listens on (http://\S+)")


class Provider(BaseHTTPRequestHandler):
    """Answers Anthropic's messages with a count of what it read."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        assert self.headers["x-api-key"] == KEY, "the newcomer's key did not arrive"
        usage = {"input_tokens": len(body) // 4, "output_tokens": 12}
        answer = {"id": "msg_1", "type": "message", "role": "assistant", "model": MODEL, "stop_reason": "end_turn"}
        content = [{"type": "text", "text": "The disk was full."}]
        raw = json.dumps(answer | {"content": content, "usage": usage}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: object) -> None:
        pass


def main() -> None:
    program = chromium.find()
    if program is None:
        sys.exit("no Chromium here: scripts/browser says what to do")
    with tempfile.TemporaryDirectory() as folder, provider() as upstream:
        clone = Path(folder) / "kimi-proxy"
        subprocess.run(["git", "clone", "-q", ROOT, clone], check=True)
        env = environment(Path(folder), upstream)
        began = time.monotonic()
        lines = readme_lines(clone)
        run_line(lines.pop("audit"), clone, env, "No agent sessions found in")
        with started(clone, env) as address:
            # `run --proxy` finds the server by its home. The agent is the stage: it asks what an agent would.
            run_line(lines.pop("run --proxy"), clone, env, "The disk was full.")
            saved = got(f"{address}/api/savings")["periods"]["today"]["net_saved_usd"]
            took = time.monotonic() - began
            check(
                f"the first useful number ({saved:.4f} USD saved) after {took:.0f} s",
                saved > 0 and took <= FIRST_NUMBER_S,
            )
            inspect_session(address)
            seen(address, program)
            connect = lines.pop("init")
            run_line(connect, clone, env, "done; restart Claude Code")
            run_line(f"{connect} --undo", clone, env, "done; restart Claude Code")
        run_line(lines.pop("prune"), clone, env, "PRUN")
        run_line(lines.pop("doctor"), clone, env, "")
        check("no line of the README is left out", set(lines) <= {"start.sh", "test.sh"}, str(lines))
        written = subprocess.run(
            ["git", "-C", clone, "status", "--porcelain"], check=True, capture_output=True, encoding="utf-8"
        )
        check("no file was edited", written.stdout == "", written.stdout)


@contextmanager
def provider() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Provider) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


KNOWN = ("audit", "run --proxy", "init", "prune", "doctor", "start.sh", "test.sh")


def readme_lines(clone: Path) -> dict[str, str]:
    """Return the README's lines for a shell, without their comments, by what they run."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", (clone / "README.md").read_text("utf-8"), re.M | re.S)
    lines = [line.partition("  #")[0].rstrip() for block in blocks for line in block.splitlines() if line.strip()]
    found: dict[str, str] = {}
    for line in lines:
        name = next((name for name in KNOWN if name in line), line)
        check(f"the README has one line with {name}", name not in found, line)
        found[name] = line
    return found


def run_line(line: str, clone: Path, env: Mapping[str, str], expected: str) -> None:
    """Run a line in a terminal, and answer yes to whatever it asks."""
    began, said = time.monotonic(), b""
    main, other = pty.openpty()
    with subprocess.Popen(
        ["sh", "-c", line], cwd=clone, env=dict(env), stdin=other, stdout=other, stderr=other
    ) as process:
        os.close(other)
        os.write(main, b"y\n")
        with suppress(OSError):  # the terminal is closed at the end
            while piece := os.read(main, 1 << 16):
                said += piece
        code = process.wait(PATIENCE_S)
    os.close(main)
    text = said.decode("utf-8", "replace")
    check(f"$ {line}  ({time.monotonic() - began:.1f} s)", code == 0 and expected in text, text[-2000:])


def environment(folder: Path, upstream: str) -> dict[str, str]:
    """Return what a newcomer has: an empty home, one key; the last three lines are the stage, not the play."""
    ours = ("KIMI_", "MCP_", "DEEPINFRA_", "JEEVES_", "PRUNER_", "XDG_")
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(ours) and not name.endswith(("_API_KEY", "_TOKEN", "_BASE_URL"))
    }
    home = folder / "home"
    home.mkdir()
    stage = {"KIMI_PROXY_UPSTREAMS": f"anthropic={upstream}", "KIMI_PROXY_PORT": "8017", "MCP_PRUNER_PORT": "8016"}
    programs = folder / "bin"
    programs.mkdir()
    (programs / "claude").write_text(f"#!{sys.executable}\n{AGENT}")
    (programs / "claude").chmod(0o755)
    path = f"{programs}:{kept['PATH']}"
    return {**kept, "HOME": str(home), "PATH": path, "ANTHROPIC_API_KEY": KEY, **stage}


@contextmanager
def started(clone: Path, env: Mapping[str, str]) -> Iterator[str]:
    process = subprocess.Popen([clone / "start.sh"], cwd=clone, env=dict(env), stderr=subprocess.PIPE, encoding="utf-8")
    overdue = threading.Timer(PATIENCE_S, process.kill)
    overdue.start()
    try:
        assert process.stderr is not None
        said, address = "", ""
        for line in process.stderr:
            print(line, end="")
            said += line
            address = found[1] if (found := LISTENS.search(line)) else address
            if "Ctrl-C" in line:
                break
        check("it starts", bool(address), said)
        check("it names the dashboard", f"the dashboard is on {address}/" in said, said)
        check("it names the base URL for Anthropic", f"{address} (Anthropic)" in said, said)
        check("it names where a file would be", f"no file; {clone / 'config.toml'} would be read" in said, said)
        check("it names the provider", "on demand: anthropic (ANTHROPIC_API_KEY)" in said, said)
        threading.Thread(target=process.stderr.read, daemon=True).start()
        yield address
    finally:
        overdue.cancel()
        process.terminate()
        process.wait(PATIENCE_S)


# Asks what an agent would: a question, and the long log that its tool has read.
AGENT = f"""
import json, os
from urllib.request import Request, urlopen
KEY, MODEL = {KEY!r}, {MODEL!r}
address = os.environ["ANTHROPIC_BASE_URL"]
lines = (f"12:{{at // 60 % 60:02}}:{{at % 60:02}} INFO worker {{at}} finished its step" for at in range(3000))
log = "\\n".join(line if at != 1777 else "ERROR: no space left on device" for at, line in enumerate(lines))
call = {{"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {{"command": "cat import.log"}}}}
result = {{"type": "tool_result", "tool_use_id": "toolu_1", "content": log}}
schema = {{"type": "object", "properties": {{"command": {{"type": "string"}}}}}}
body = {{
    "model": MODEL,
    "max_tokens": 100,
    "system": "You are a coding agent.\\nWorking directory: /srv/shop",
    "tools": [{{"name": "Bash", "input_schema": schema}}],
    "messages": [
        {{"role": "user", "content": "Why does the nightly import fail?"}},
        {{"role": "assistant", "content": [call]}},
        {{"role": "user", "content": [result]}},
    ],
}}
headers = {{"x-api-key": KEY, "anthropic-version": "2023-06-01", "content-type": "application/json"}}
with urlopen(Request(address + "/v1/messages", json.dumps(body).encode(), headers), timeout=600) as answer:
    print(answer.read().decode())
"""


def inspect_session(address: str) -> None:
    """Look at what the agent's request came to."""
    (session,) = got(f"{address}/api/sessions")["sessions"]
    health = got(f"{address}/api/session/{session['id']}/health")
    check("the session has a title", session["title"] == "Why does the nightly import fail?", session["title"])
    check("the session has its folder", session["directory"] == "/srv/shop", session["directory"])
    check("the window is known", health["max_context"] == 200_000 and health["percent"] > 0, str(health))
    check("the cost is known", session["cost_usd"] > 0, str(session))
    check("tokens were saved", session["net_saved_tokens"] > 1000, str(session))
    check("money was saved", session["net_saved_usd"] > 0, str(session))


def got(url: str) -> dict[str, object]:
    with urlopen(url, timeout=PATIENCE_S) as answer:
        found: dict[str, object] = json.load(answer)
    return found


def seen(address: str, program: str) -> None:
    """Look at the dashboard as a person does."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(chromium.ARGUMENTS))
        page = browser.new_page(locale="en-GB")
        page.goto(f"{address}/")
        page.locator(".live-window").get_by_text(re.compile(r"\d ?%")).first.wait_for(timeout=60_000)
        text = page.locator("main").inner_text()
        browser.close()
    check("the dashboard shows the window", re.search(r"\d ?%", text) is not None, text)
    check("the dashboard shows the cost", re.search(r"\$ ?\d|\d ?\$", text) is not None, text)
    check("the dashboard shows what was saved", re.search(r"(?i)saved", text) is not None, text)
    check("the dashboard shows the title", "Why does the nightly import fail?" in text, text)


def check(what: str, holds: bool, found: str = "") -> None:
    if not holds:
        sys.exit(f"tour: {what}: no\n{found}")
    print(f"tour: {what}: yes")


if __name__ == "__main__":
    main()
