"""Claude Code itself goes on with a conversation in all the ways it has, and every cut and our tool stay in it.

One job goes on with `--continue` after an edit of CLAUDE.md and on another day, is resumed, forked, given to a
sub-agent in the words it began with, and compacted. In `--deep` only, because it installs two versions of 235 MB each;
tests/services/chat/test_known_again.py is the same with a script.
"""

import asyncio
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.clients.programs.agents import AGENTS, TASK, AgentCase, Command, Place
from tests.clients.programs.job import ERRAND
from tests.clients.programs.packages import INSTALL_S, npm_modules
from tests.clients.programs.running import PATIENCE_S, new_place, run
from tests.clients.programs.worker import api_of, say
from tests.support import outputs
from tests.support.api.proxy_world import proxy
from tests.support.clients import agents
from tests.support.conversations import results
from tests.support.deep import deep
from tests.support.evil import Evil, Heard, Line, evil
from tests.support.model import Call, Says

from kimi_proxy.core.chat import Request, Wire

OLD, NEW = "2.1.197", agents.PACKAGES[0].rpartition("@")[2]
WORDS = "Read the logs."
DELEGATE = "Let another agent do it."
SETTINGS = "[sanitizer]\nbudget_ms = 60_000\n"
COMMANDS = 2  # that the model gives for each prompt
PRUNED = re.compile(r"prn_[0-9a-z]{16}")
# A day apart at every moment, so that the next one is a new day wherever the test runs.
LATER, EARLIER = "Pacific/Kiritimati", "Etc/GMT+12"

pytestmark = [deep("it installs programs from npm or PyPI: minutes"), pytest.mark.timeout(INSTALL_S + 12 * PATIENCE_S)]


def claude(version: str) -> str:
    modules = npm_modules(f"claude-code-{version}", f"@anthropic-ai/claude-code@{version}")
    return str(next(path for path in modules.glob("@anthropic-ai/claude-code-*/claude") if os.access(path, os.X_OK)))


@dataclass
class Reader:
    """A model that prints a log with each command, and is done after two of them."""

    said: int = 0

    async def __call__(self, heard: Heard, line: Line) -> None:
        if await api_of(heard, line) is not None:
            await say(Wire.MESSAGES, self._says(Request(Wire.MESSAGES, heard.body)), heard, line)

    def _says(self, request: Request) -> Says:
        self.said += 1
        id = f"msg_{self.said}"
        if not request.tool_names:
            return Says("A title", id=id)
        read = [message for message in request.messages if message.role == "user"]
        asked = max(at for at, message in enumerate(read) if _words(message.parts))
        words = _words(read[asked].parts)
        if "detailed summary" in words:
            return Says("<summary>The logs were read.</summary>", id=id)
        done = sum(part.kind == "tool_result" for message in read[asked + 1 :] for part in message.parts)
        if words.endswith(DELEGATE) and not done:
            given = {"description": "read", "prompt": WORDS, "subagent_type": "general-purpose"}
            return Says("I ask.", (Call(f"toolu_{self.said}", "Agent", given),), id=id)
        if words.endswith(DELEGATE) or done >= COMMANDS:
            return Says("done", id=id)
        command = {"command": f"cat log-{self.said}.txt", "description": "a log"}
        return Says("I read.", (Call(f"toolu_{self.said}", "Bash", command),), id=id)


def _words(parts: tuple[object, ...]) -> str:
    texts = [part.text for part in parts if part.kind == "text"]  # type: ignore[attr-defined]
    return "\n".join(text for text in texts if not text.lstrip().startswith("<system-reminder>")).strip()


@dataclass
class Work:
    """A project, and Claude Code at work in it."""

    folder: Path
    program: str
    provider: Evil
    port: int = 0  # of the proxy

    async def run(self, *arguments: str, zone: str = EARLIER) -> list[Request]:
        """Run a step, and return its requests of the model with tools as they left, the newest last."""
        before = len(self.provider.heard)
        await agents.run(
            self.folder / "home",
            self.folder / "project",
            *(self.program, "-p", *arguments, "--allowedTools", "Bash,Agent", "--output-format", "json"),
            ANTHROPIC_BASE_URL=f"http://127.0.0.1:{self.port}",
            ANTHROPIC_API_KEY="sk-of-the-client",
            CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
            TZ=zone,
        )
        sent = [heard for heard in self.provider.heard[before:] if heard.body]
        return [request for heard in sent if (request := Request(Wire.MESSAGES, heard.body)).tool_names]

    @asynccontextmanager
    async def proxied(self) -> AsyncIterator[None]:
        async with proxy(self.folder / "state", self.provider.toml("anthropic") + SETTINGS) as p:
            self.port = p.port
            yield


def session_of(provider: Evil) -> str:
    return provider.heard[-1].header("x-claude-code-session-id") or ""


def cuts(request: Request) -> dict[str, str]:
    """Return the logs in a request as they are shown; each must be cut, and our tool must be there."""
    shown = {id: text for id, text in results(request).items() if "test session starts" in text}
    assert all("⟦PRUNÉ" in text for text in shown.values()), {id: len(text) for id, text in shown.items()}
    assert "recover_text" in request.tool_names
    return shown


def ids(shown: dict[str, str]) -> set[str]:
    return {id for text in shown.values() for id in PRUNED.findall(text)}


@pytest.mark.parametrize("restarts", [False, True], ids=["", "restarted"])
@pytest.mark.parametrize("version", [OLD, NEW])
async def test_claude_code_goes_on_and_every_cut_stays(tmp_path: Path, version: str, restarts: bool):
    program = await asyncio.to_thread(claude, version)
    project = tmp_path / "project"
    project.mkdir()
    for number in range(60):
        (project / f"log-{number}.txt").write_text(outputs.pytest_log(150, number).text)
    (project / "CLAUDE.md").write_text("Rule one.\n")
    async with evil(Reader()) as provider:
        work = Work(tmp_path, program, provider)

        async def go_on(*arguments: str, zone: str = EARLIER) -> list[Request]:
            async with work.proxied() if restarts else nullcontext():
                return await work.run(*arguments, zone=zone)

        async with nullcontext() if restarts else work.proxied():
            begun = cuts((await go_on(WORDS))[-1])
            session = session_of(provider)
            (project / "CLAUDE.md").write_text("Rule one.\nRule two.\n")
            edited = cuts((await go_on("Go on.", "--continue"))[-1])
            next_day = cuts((await go_on("Go on.", "--continue", zone=LATER))[-1])
            resumed = cuts((await go_on("Go on.", "--resume", session, zone=LATER))[-1])
            forked = cuts((await go_on("Go on.", "--resume", session, "--fork-session", zone=LATER))[0])
            fork = session_of(provider)
            *subs, main = await go_on(DELEGATE, "--resume", session, zone=LATER)
            delegated, by_sub = cuts(main), cuts(subs[-1])
            await go_on("/compact", "--resume", session, zone=LATER)
            compacted = cuts((await go_on("Go on.", "--resume", session, zone=LATER))[-1])

    assert fork != session
    assert len(begun) == COMMANDS and len(edited) == 2 * COMMANDS
    assert begun.keys() < edited.keys() < next_day.keys() < resumed.keys()
    assert {id: forked[id] for id in resumed} == resumed == {id: delegated[id] for id in resumed}
    assert len(by_sub) == COMMANDS and ids(by_sub).isdisjoint(ids(delegated))
    assert len(compacted) == COMMANDS and compacted.keys().isdisjoint(resumed)


RESUMING = {"qwen": "--continue", "gemini": "--resume"}


@pytest.mark.parametrize("name", RESUMING)
async def test_an_agent_without_session_ids_goes_on_in_its_session_on_another_day(tmp_path: Path, name: str):
    """They put the date among the first words, and write it anew when they resume; Gemini CLI repeats results then."""
    case = next(case for case in AGENTS if case.name == name)
    model = case.worker(recalls=False)
    async with evil(case.provider(model)) as provider:
        toml = provider.toml(case.provider_type) + SETTINGS
        async with proxy(tmp_path / "state", toml) as p:
            place = new_place(tmp_path, f"http://127.0.0.1:{p.port}")
            begun = await run(in_zone(case, EARLIER), place)
            before = model.requests[-1]
            resumed = await run(in_zone(case, LATER, RESUMING[name]), place)
            sessions = (await p.http.get("/api/sessions")).json()["sessions"]
    after = model.requests[len(ERRAND) + 1]
    kept, shown = (set(PRUNED.findall(raw.decode())) for raw in (before, after))

    assert begun.is_success and resumed.code == 0, (begun, resumed)
    assert kept and kept <= shown
    assert "recover_text" in Request(case.wire, after).tool_names
    assert len([session for session in sessions if session["requests"] > 1]) == 1


def in_zone(case: AgentCase, zone: str, flag: str = "") -> AgentCase:
    """Return the agent with a clock in another time zone, told by a flag to resume what it did last."""

    def prepare(place: Place) -> Command:
        command = case.prepare(place)
        words = [word for word in command.argv if word != TASK]
        words = words[:-1] if words[-1] == "-p" else words
        argv = (*words, *([flag] if flag else []), "-p", TASK)
        return replace(command, argv=argv, env={**command.env, "TZ": zone})

    return replace(case, prepare=prepare)
