"""The items of the Responses API as the messages of chat completions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kimi_proxy.addons.translation.response_tools import ResponseTools
from kimi_proxy.core import json
from kimi_proxy.core.chat import read
from kimi_proxy.core.errors import InvalidParams
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.features import completions as chat
from kimi_proxy.features.completions import SUMMARY, Dropped, refuse

_SYSTEM = ("system", "developer")  # few providers know the second
_DETAILS = ("auto", "low", "high")
_ALWAYS = ("type", "id", "status")  # of every item; they say nothing to a model
# Traces of what OpenAI's servers did: what the model made of it is in its answer.
_LEFT_OUT = ("web_search_call", "image_generation_call")
_TEXTS = ("input_text", "output_text", "text", "summary_text")

COMPACT = """\
Stop here and sum this conversation up, so that another model can go on with the work from your summary alone: what \
the user wants and how, what was decided and why, what was done with which files and commands, what failed, and what \
is to be done next. Keep names, paths, numbers and error messages as they are. Answer with the summary and nothing \
else."""
SUMMED_UP = "The conversation before this was replaced by a summary. Go on from here:\n\n"


@dataclass(slots=True)
class _Turn:
    """One message of the model's: here its thoughts, its words and its calls are items of their own."""

    thoughts: dict[str, str] = field(default_factory=dict)
    parts: list[JsonObject] = field(default_factory=list)
    calls: list[JsonObject] = field(default_factory=list)

    def to_json(self) -> JsonObject:
        text = chat.content(self.parts) if self.parts else None
        called: JsonObject = {"tool_calls": self.calls} if self.calls else {}
        return {"role": "assistant", "content": text, **self.thoughts, **called}


class ResponseItems:
    """Assembles the messages of one request.

    In chat completions results must directly follow their calls. Messages between them, such as Codex's system
    messages, and images of results follow after the last result.
    """

    def __init__(self, tools: ResponseTools, dropped: Dropped) -> None:
        self._tools = tools
        self._dropped = dropped
        self._said: list[JsonObject | _Turn] = []
        self._open: set[str] = set()  # calls without a result
        self._late: list[JsonObject] = []  # what waits for those
        self.is_compaction = False  # the client wants a summary in place of the conversation
        self._kinds: Mapping[str, Callable[[JsonObject, str], None]] = {
            "message": self._message,
            "": self._message,
            "reasoning": self._reasoning,
            "function_call": self._function_call,
            "custom_tool_call": self._custom_call,
            "local_shell_call": self._local_call,
            "shell_call": self._local_call,
            "apply_patch_call": self._local_call,
            "tool_search_call": self._local_call,
            "function_call_output": self._result,
            "custom_tool_call_output": self._result,
            "local_shell_call_output": self._result,
            "apply_patch_call_output": self._result,
            "shell_call_output": self._shell_result,
            "tool_search_output": self._found_tools,
            "additional_tools": self._more_tools,
            "compaction_trigger": self._compact,
            "compaction": self._summary,
            "compaction_summary": self._summary,
            "context_compaction": self._summary,
        }

    def messages(self, instructions: JsonValue, items: JsonValue) -> list[JsonObject]:
        """Raise InvalidParams for an item that cannot be carried and must not be left out."""
        if instructions:
            parts = self._parts(instructions, "instructions")
            self._add({"role": "system", "content": chat.content(parts)})
        if isinstance(items, str):
            self._add({"role": "user", "content": items})
        for at, item in enumerate(() if isinstance(items, str) else _objects(items, "input")):
            self._item(item, f"input.{at}")
        self._add_waiting()
        return [each.to_json() if isinstance(each, _Turn) else each for each in self._said]

    def _item(self, item: JsonObject, where: str) -> None:
        kind = read.as_text(item.get("type"))
        if kind in _LEFT_OUT:
            self._dropped.add(f"input.{kind}")
        elif kind in self._kinds:
            self._kinds[kind](item, where)
        else:
            raise refuse(where, f"an item of type {kind[:80]!r}")

    # What is said

    def _message(self, item: JsonObject, where: str) -> None:
        self._drop(item, "message", "role", "content")
        parts = self._parts(item.get("content"), f"{where}.content")
        match role := item.get("role"):
            case "assistant":
                self._turn().parts += parts
            case "user":
                self._add({"role": "user", "content": chat.content(parts)})
            case str() if role in _SYSTEM:
                self._add({"role": "system", "content": chat.content(parts)})
            case other:
                raise refuse(f"{where}.role", f"the role {str(other)[:40]!r}")

    def _reasoning(self, item: JsonObject, where: str) -> None:
        self._drop(item, "reasoning", "summary", "content", "encrypted_content")
        name, thought = chat.kept_in(item.get("encrypted_content"))
        if name and name != SUMMARY:
            thoughts = self._turn().thoughts
            thoughts[name] = thoughts.get(name, "") + thought
        else:
            self._dropped.add("input.reasoning")  # only OpenAI's models can read what is encrypted

    def _compact(self, item: JsonObject, where: str) -> None:
        """Ask the model for the steps that OpenAI's servers would do on their own."""
        self.is_compaction = True
        self._add_waiting()
        self._add({"role": "user", "content": COMPACT})

    def _summary(self, item: JsonObject, where: str) -> None:
        name, summary = chat.kept_in(item.get("encrypted_content"))
        if name != SUMMARY:
            raise refuse(where, "history compacted by OpenAI, which only its models can read")
        self._add({"role": "user", "content": SUMMED_UP + summary})

    def _add(self, message: JsonObject) -> None:
        (self._late if self._open else self._said).append(message)

    def _turn(self) -> _Turn:
        """Return the message that the model is saying; a new one where something was said after the last."""
        last = self._said[-1] if self._said else None
        if isinstance(last, _Turn):
            return last
        self._add_waiting()
        turn = _Turn()
        self._said.append(turn)
        return turn

    def _add_waiting(self) -> None:
        """Add what had to wait for the results of calls."""
        self._open.clear()
        self._said += self._late
        self._late = []

    # Calls

    def _function_call(self, item: JsonObject, where: str) -> None:
        self._drop(item, "function_call", "call_id", "name", "namespace", "arguments")
        self._call(item, read.as_text(item.get("arguments")) or "{}")

    def _custom_call(self, item: JsonObject, where: str) -> None:
        self._drop(item, "custom_tool_call", "call_id", "name", "namespace", "input")
        self._call(item, {"input": item.get("input")})

    def _local_call(self, item: JsonObject, where: str) -> None:
        """Add the call of a tool of the API itself, whose arguments are one of these members."""
        kind = read.as_text(item.get("type"))
        self._drop(item, kind, "call_id", "action", "operation", "arguments", "execution", "environment")
        given = read.as_object(item.get("action") or item.get("operation") or item.get("arguments"))
        arguments = {name: value for name, value in given.items() if (name, value) != ("type", "exec") and value}
        self._call({**item, "name": kind.removesuffix("_call")}, arguments)

    def _call(self, item: JsonObject, arguments: JsonValue) -> None:
        kind = read.as_text(item.get("type"))
        name = read.as_text(item.get("name"))
        called = self._tools.name_of(kind, name, read.as_text(item.get("namespace")))
        id = _call_id(item)
        function = chat.function(called, arguments)
        self._turn().calls.append({"id": id, "type": "function", "function": function})
        self._open.add(id)

    # Results

    def _result(self, item: JsonObject, where: str) -> None:
        kind = read.as_text(item.get("type"))
        # Codex names the tool again.
        self._drop(item, kind, "call_id", "output", "name", "namespace")
        output = item.get("output")
        if isinstance(output, str) or output is None:
            parts = [chat.text_part(output)]
        elif isinstance(output, list | tuple):
            parts = self._parts(output, f"{where}.output")
        else:
            parts = [chat.text_part(json.encode(output).decode())]
        failed = [chat.text_part("[failed]")] if item.get("status") == "failed" else []
        self._answer(item, [*failed, *parts])

    def _shell_result(self, item: JsonObject, where: str) -> None:
        self._drop(item, "shell_call_output", "call_id", "output", "max_output_length")
        self._answer(item, [chat.text_part(_printed_text(block)) for block in read.as_objects(item.get("output"))])

    def _found_tools(self, item: JsonObject, where: str) -> None:
        """Add the tools that a search found to those that are offered."""
        self._drop(item, "tool_search_output", "call_id", "tools", "execution")
        found = ", ".join(self._tools.add(read.as_objects(item.get("tools"))))
        self._answer(
            item, [chat.text_part(f"You can call these tools now: {found}" if found else "No tool was found.")]
        )

    def _more_tools(self, item: JsonObject, where: str) -> None:
        self._tools.add(read.as_objects(item.get("tools")))

    def _answer(self, item: JsonObject, parts: list[JsonObject]) -> None:
        texts = [part for part in parts if part.get("type") == "text"]
        others: list[JsonValue] = [part for part in parts if part.get("type") != "text"]
        id = _call_id(item)
        self._said.append({"role": "tool", "tool_call_id": id, "content": chat.content(texts)})
        if others:
            self._late.append({"role": "user", "content": others})
        self._open.discard(id)
        if not self._open:
            self._add_waiting()

    # Contents

    def _parts(self, content: JsonValue, where: str) -> list[JsonObject]:
        if isinstance(content, str):
            return [chat.text_part(content)]
        return [self._part(part, where) for part in _objects(content, where)]

    def _part(self, part: JsonObject, where: str) -> JsonObject:
        kind = read.as_text(part.get("type"))
        filled = {name for name, value in part.items() if value}
        match part:
            case {"type": str(), "text": str(text)} if kind in _TEXTS:
                self._dropped.all_but(filled, ("type", "text"), f"input.{kind}.")
                return chat.text_part(text)
            case {"type": "refusal", "refusal": str(text)}:
                return chat.text_part(text)
            case {"type": "input_image", "image_url": str(url)}:
                self._dropped.all_but(filled, ("type", "image_url", "detail"), "input.input_image.")
                return chat.image_part(url, self._detail(part.get("detail")))
            case {"type": "input_file", "file_data": str(data)}:
                self._dropped.all_but(filled, ("type", "file_data", "filename"), "input.input_file.")
                name = read.as_text(part.get("filename")) or "document.pdf"
                return {"type": "file", "file": {"filename": name, "file_data": data}}
            case {"type": "input_audio", "input_audio": dict(audio)}:
                return {"type": "input_audio", "input_audio": audio}
        raise refuse(where, f"a part of type {kind[:60]!r}" + (" by its id" if part.get("file_id") else ""))

    def _detail(self, detail: JsonValue) -> JsonValue:
        if detail and detail not in _DETAILS:
            self._dropped.add("input.input_image.detail")
        return detail if detail in _DETAILS else None

    def _drop(self, item: JsonObject, kind: str, *known: str) -> None:
        filled = (name for name, value in item.items() if value is not None)
        self._dropped.all_but(filled, (*_ALWAYS, *known), f"input.{kind}.")


def _objects(value: JsonValue, where: str) -> list[JsonObject]:
    """Raise InvalidParams for what is no list of objects: nothing may be left out unsaid."""
    found = read.as_objects(value)
    if value is not None and (not isinstance(value, list | tuple) or len(found) < len(value)):
        raise InvalidParams(where, "must be a string, or a list of objects")
    return found


def _call_id(item: JsonObject) -> str:
    """Return what joins a call and its result; older items of a local shell have no other id."""
    return read.as_text(item.get("call_id")) or read.as_text(item.get("id"))


def _printed_text(block: JsonObject) -> str:
    """Return what a command printed, and how it ended."""
    outcome = read.as_object(block.get("outcome"))
    ended = f"[exit code {outcome['exit_code']}]" if "exit_code" in outcome else f"[{outcome.get('type') or 'ended'}]"
    texts = (read.as_text(block.get("stdout")), read.as_text(block.get("stderr")), ended)
    return "\n".join(text.removesuffix("\n") for text in texts if text)
