"""A model that prints a log, reads a hidden line back by whatever recall tool it finds, and tries our other tools."""

import re
from dataclasses import dataclass, field

from tests.clients.programs.job import DONE, LOG, Shell
from tests.clients.programs.worker import api_of, say
from tests.support.evil import Heard, Line
from tests.support.model import Call, Says

from kimi_proxy.core.chat import Request, Wire, parse
from kimi_proxy.core.json import JsonObject

MARKER = re.compile(rb"prune_id=(prn_[0-9a-z]{16}) lignes (\d+)-(\d+)|head=(\d+) tail=\d+ id=(msk_[0-9a-z]{16})")
ANOTHER = ("read", "grep", "bash")  # tools of ours that nobody has granted
SERVERS = ("pruner", "kimi-proxy")
STARTS = "test session starts"  # in the first lines of the log
PRINTS = 3


@dataclass(slots=True)
class Recaller:
    """It prefers a recall tool of the client's over one of the proxy's: that is where an agent may ask or refuse."""

    shell: Shell
    recalls: int = 2
    tries_others: bool = True
    ending: tuple[str, JsonObject] | None = None
    requests: list[bytes] = field(default_factory=list)
    called: list[str] = field(default_factory=list)  # the recall tools that were called
    answers: dict[str, str] = field(default_factory=dict)  # by the id of the call
    asked: str = ""  # the id of the newest call
    prints: int = 0  # how often the log was printed

    async def __call__(self, heard: Heard, line: Line) -> None:
        wire = await api_of(heard, line)
        if wire is None:
            return
        request = parse(heard.body, wire)
        is_ours = self.shell("")[0] in request.tool_names
        await say(wire, self._says(request) if is_ours else Says("A title"), heard, line)

    @property
    def printed(self) -> str:
        return self.answers.get(f"call_print_{self.prints}", "")

    @property
    def recalled(self) -> list[str]:
        """Return the ids of the recalls that were answered."""
        return [id for id in self.answers if id.startswith("call_recall_")]

    @property
    def read_back(self) -> list[bool]:
        """Return for each recall whether it brought a line that had been hidden."""
        return [self._is_read_back(self.answers.get(f"call_recall_{n}", "")) for n in range(len(self.called))]

    @property
    def granted(self) -> list[str]:
        """Return our other tools that an agent ran without a permission."""
        return [name for name in ANOTHER if LOG.text.split("\n")[150] in self.answers.get(f"call_{name}", "")]

    def _is_read_back(self, answer: str) -> bool:
        hidden = [row for row in LOG.text.split("\n") if len(row) > 60 and row not in self.printed]
        return any(row in answer for row in hidden)

    def _says(self, request: Request) -> Says:
        self.requests.append(request.body)
        parts = [part for message in request.messages for part in message.parts if part.kind == "tool_result"]
        if parts and self.asked:  # the newest call's, whatever the agent calls it: Copilot CLI has ids of its own
            self.answers[self.asked] = parts[-1].text
        says = self._says_next(request)
        self.asked = says.calls[0].id if says.calls else ""
        return says

    def _says_next(self, request: Request) -> Says:
        at = f"resp_{len(self.requests)}"
        # On a busy machine an agent may give a command up.
        if STARTS not in self.printed and self.prints < PRINTS:
            self.prints += 1
            id = f"call_print_{self.prints}"
            name, given = self.shell("cat app.log")
            call = Call(id, name, script=given) if isinstance(given, str) else Call(id, name, given)
            return Says("I print the log.", (call,), id=at)
        marker = MARKER.search(request.body)
        tool = _recall_tool(request)
        if marker and tool and len(self.called) < self.recalls:
            self.called.append(tool)
            id = f"call_recall_{len(self.called) - 1}"
            call = (_recall_by_proxy if _is_proxys(request, tool) else _recall_by_mcp)(id, tool, marker, request.wire)
            return Says("Hm.", (call,), id=at)
        for name in ANOTHER if self.tries_others else ():
            offered = next((each for each in request.tool_names if _is_named(each, name)), "")
            if offered and f"call_{name}" not in self.answers:
                return Says("", (Call(f"call_{name}", offered, _arguments(name)),), id=at)
        return Says("", (Call("call_end", *self.ending),), id=at) if self.ending else Says(DONE, id=at)


def _recall_tool(request: Request) -> str:
    """Return the client's recall tool if it is offered, else the proxy's."""
    names = [name for name in request.tool_names if name.endswith("recover_text")]
    theirs = [name for name in names if not _is_proxys(request, name)]
    return next(iter((*theirs, *names)), "")


def _is_proxys(request: Request, name: str) -> bool:
    """Return whether the proxy answers this tool; it takes another name where a client has one without a prefix."""
    if "kimi_proxy_recover_text" in request.tool_names:
        return name == "kimi_proxy_recover_text"
    return name == "recover_text"


def _is_named(offered: str, name: str) -> bool:
    return any(offered.endswith((f"{server}__{name}", f"{server}_{name}", f"{server}-{name}")) for server in SERVERS)


def _recall_by_proxy(id: str, tool: str, marker: re.Match[bytes], wire: Wire) -> Call:
    start = int(marker[2] or marker[4])
    return Call(id, tool, {"id": _id(marker), "start": start, "end": int(marker[3] or start + 2000)})


def _recall_by_mcp(id: str, tool: str, marker: re.Match[bytes], wire: Wire) -> Call:
    # What is cut by characters is one long line.
    lines: JsonObject = {"start_line": int(marker[2] or 1), "end_line": int(marker[3] or 1)}
    asked: JsonObject = {"prune_id": _id(marker), "ranges": [lines], "include_line_numbers": False}
    server, _, name = tool.rpartition("__")
    if wire is Wire.RESPONSES:
        return Call(id, name, asked, namespace=server)
    return Call(id, tool, asked)


def _id(marker: re.Match[bytes]) -> str:
    return (marker[1] or marker[5]).decode()


def _arguments(name: str) -> JsonObject:
    return {
        "read": {"file_path": "app.log", "context_focus_question": LOG.goal},
        "grep": {"pattern": "PASSED", "path": "app.log"},
        "bash": {"command": "cat app.log"},
    }[name]
