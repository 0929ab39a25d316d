"""What the tests of agents recall share with others."""

import json
import re
from dataclasses import dataclass, field

from tests.clients.programs.worker import api_of, say
from tests.support import outputs
from tests.support.evil import Heard, Line
from tests.support.model import Call, Says

from kimi_proxy.core.chat import Wire, parse
from kimi_proxy.core.json import JsonObject, JsonValue

LOG = outputs.pytest_log(300)

DONE = "All done, 你好."

STEADY = ("tools", "system", "instructions")

ID = re.compile(rb"prune_id=(prn_[0-9a-z]{16}) lignes (\d+)-(\d+)")


@dataclass(slots=True)
class Reader:
    """A model that prints a log with a tool of the agent, reads back what was cut of it, and is done."""

    tool: Call
    namespace: str = ""  # with which the model calls our tool
    requests: list[bytes] = field(default_factory=list)
    recovered: list[str] = field(default_factory=list)

    async def __call__(self, heard: Heard, line: Line) -> None:
        wire = await api_of(heard, line)
        if wire is None:
            return
        says = self._says(wire, heard.body) if parse(heard.body, wire).tool_names else Says("a title")
        await say(wire, says, heard, line)

    def _says(self, wire: Wire, raw: bytes) -> Says:
        self.requests.append(raw)
        at = f"resp_{len(self.requests)}"
        results = [part.text for m in parse(raw, wire).messages for part in m.parts if part.kind == "tool_result"]
        marker = ID.search(raw)
        if not results:
            return Says("", (self.tool,), tokens=(20_000, 50), id=at)
        if marker is None:
            return Says("nothing was cut", tokens=(25_000, 9), id=at)
        if not self.recovered:
            self.recovered.append("")
            asked: JsonObject = {"id": marker[1].decode(), "start_line": int(marker[2]), "end_line": int(marker[2]) + 1}
            call = Call("own_1", "recover_text", asked, namespace=self.namespace)
            return Says("Hm.", (call,), tokens=(24_000, 40), id=at)
        self.recovered.append(results[-1])
        return Says(DONE, tokens=(24_100, 9), id=at)


def unmarked(value: JsonValue) -> JsonValue:
    """Without the marks for the prompt cache, which Claude Code moves along: a text without one is no block."""
    match value:
        case [{"type": "text", "text": str(text), **more}] if set(more) <= {"cache_control"}:
            return text
        case dict():
            return {key: unmarked(inner) for key, inner in value.items() if key != "cache_control"}
        case list():
            return [unmarked(inner) for inner in value]
    return value


def check(model: Reader, wire: Wire) -> None:
    first, cut, again = (parse(raw, wire) for raw in model.requests[:3])
    assert first.tool_names == cut.tool_names and "recover_text" in cut.tool_names
    marker = ID.search(cut.body)
    assert marker is not None
    assert model.recovered[1] in LOG.text and model.recovered[1].count("\n") == 1
    assert model.recovered[1].split("\n")[0].encode() not in cut.body
    # What the provider has of the conversation is repeated: tools, system and all that was said.
    for before, after in ((first, cut), (cut, again)):
        old, new = (json.loads(json.dumps(unmarked(json.loads(each.body)))) for each in (before, after))
        said = wire.format.conversation
        assert {name: new.get(name) for name in STEADY} == {name: old.get(name) for name in STEADY}
        assert new[said][: len(old[said])] == old[said]


SCRIPT = 'const r = await tools.exec_command({cmd: "cat app.log", max_output_tokens: 100000}); text(r.output);'

RUN_SCRIPT = Call("call_1", "exec", script=f'// @exec: {{"max_output_tokens": 100000}}\n{SCRIPT}')

RUN_COMMAND = Call("call_1", "exec_command", {"cmd": "cat app.log", "max_output_tokens": 100_000})
