"""The tools of the Responses API as functions: which name and arguments each has there, and which item calls it."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256

from kimi_proxy.core import json
from kimi_proxy.core.chat import read
from kimi_proxy.core.chat.wires.openai_chat import ChatToolCall
from kimi_proxy.core.chat.wires.openai_responses import DEFAULT_NAMESPACE
from kimi_proxy.core.errors import ParseError
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.features import completions as chat
from kimi_proxy.features.completions import Dropped, refuse

MAX_NAME_CHARS = 64
BETWEEN = "__"  # a namespace and the name of a tool in it

_UNFIT = re.compile(r"[^A-Za-z0-9_-]")
_MEMBERS = frozenset({"type", "name", "description", "parameters", "strict", "format", "environment", "execution"})
# Codex offers these whatever it is asked; others are offered where the request is about them.
_LEFT_OUT = ("web_search", "image_generation")
_TEXT: JsonObject = {"type": "string"}


def _schema(*required: str, **properties: JsonValue) -> JsonObject:
    return {"type": "object", "properties": properties, "required": [*required], "additionalProperties": False}


# What clients run themselves, each with the schema of its arguments, which are a member of the item that calls it.
_LOCAL: Mapping[str, tuple[str, JsonObject]] = {
    "local_shell": (
        "Runs a command on this machine, given as a list of words.",
        _schema(
            "command",
            command={"type": "array", "items": _TEXT},
            working_directory=_TEXT,
            timeout_ms={"type": "integer"},
        ),
    ),
    "shell": (
        "Runs commands in a shell on this machine.",
        _schema(
            "commands",
            commands={"type": "array", "items": _TEXT},
            timeout_ms={"type": "integer"},
            max_output_length={"type": "integer"},
        ),
    ),
    "apply_patch": (
        "Creates, changes or deletes a file; `diff` is in the V4A format, and left out to delete.",
        _schema(
            *("type", "path"),
            type={"type": "string", "enum": ["create_file", "update_file", "delete_file"]},
            path=_TEXT,
            diff=_TEXT,
        ),
    ),
}
_IDS = {
    "function_call": "fc",
    "custom_tool_call": "ctc",
    "local_shell_call": "lsh",
    "shell_call": "sh",
    "apply_patch_call": "apc",
    "tool_search_call": "tsc",
}


@dataclass(frozen=True, slots=True)
class ResponseTool:
    call: str  # the type of the items that call it
    name: str
    namespace: str = ""


class ResponseTools:
    """The tools of one request; `functions` are those of the chat request."""

    def __init__(self, dropped: Dropped) -> None:
        self.functions: list[JsonObject] = []
        self._dropped = dropped
        self._by_name: dict[str, ResponseTool] = {}
        self._names: dict[ResponseTool, str] = {}

    def add(self, tools: Iterable[JsonObject], namespace: str = "") -> list[str]:
        """Add tools that are not known; return the names of all in the chat request.

        Raise InvalidParams for one that others run, where the request is about it.
        """
        names: list[str] = []
        for tool in tools:
            kind = read.as_text(tool.get("type"))
            name = read.as_text(tool.get("name"))
            if kind.startswith(_LEFT_OUT):
                self._dropped.add(f"tools.{kind}")
            elif kind == "namespace":
                inner = "" if name == DEFAULT_NAMESPACE else name  # clients take calls without it
                names += self.add(read.as_objects(tool.get("tools")), inner)
            else:
                self._dropped.all_but((each for each, value in tool.items() if value), _MEMBERS, "tools.")
                names.append(self._add(tool, kind, name, namespace))
        return names

    def name_of(self, call: str, name: str, namespace: str = "") -> str:
        """Return what a tool is called in the chat request, whether it is offered there or was once."""
        tool = ResponseTool(call, name, namespace)
        return self._names.get(tool) or _name(tool)

    def choice(self, choice: JsonValue) -> JsonValue:
        """Return the client's choice of a tool. Raise InvalidParams for one that cannot be made here."""
        if choice in ("auto", "none", "required"):
            return choice
        wanted = read.as_object(choice)
        kind = read.as_text(wanted.get("type"))
        name = read.as_text(wanted.get("name"))
        call = "custom_tool_call" if kind == "custom" else f"{kind}_call"
        tool = ResponseTool(call, name or kind, read.as_text(wanted.get("namespace")))
        if tool not in self._names:
            raise refuse("tool_choice", f"the choice {str(kind or choice)[:40]!r}")
        return {"type": "function", "function": {"name": self._names[tool]}}

    def item(self, call: ChatToolCall, call_id: str, id: str, is_whole: bool = True) -> JsonObject:
        """Return the item that calls a tool; without its arguments if they have not come yet.

        Raise UpstreamUnreadable if a tool of the API itself is called with something that is no JSON object.
        """
        tool = self.tool(call.name)
        head: JsonObject = {"type": tool.call, "id": f"{_IDS[tool.call]}_{id}", "call_id": call_id}
        head["status"] = "completed" if is_whole else "in_progress"
        named: JsonObject = {"name": tool.name, **({"namespace": tool.namespace} if tool.namespace else {})}
        written = "".join(call.arguments) if is_whole else ""
        if tool.call == "function_call":
            return head | named | {"arguments": written}
        if tool.call == "custom_tool_call":
            return head | named | {"input": _free_text(written)}
        arguments = chat.arguments_of(call) if is_whole else {}
        match tool.call:
            case "tool_search_call":
                return head | {"execution": "client", "arguments": arguments}
            case "apply_patch_call":
                return head | {"operation": arguments}
            case "local_shell_call":
                return head | {"action": {"type": "exec", "env": {}, **arguments}}
        return head | {"action": arguments}

    def tool(self, name: str) -> ResponseTool:
        """Return the tool behind a name of the chat request; a model may call what it was not offered."""
        return self._by_name.get(name) or ResponseTool("function_call", name)

    def _add(self, tool: JsonObject, kind: str, name: str, namespace: str) -> str:
        description = tool.get("description")
        schema = tool.get("parameters")
        match kind:
            case "function":
                strict: JsonObject = {"strict": tool["strict"]} if tool.get("strict") else {}
                return self._offer(ResponseTool("function_call", name, namespace), description, schema, strict)
            case "custom":
                called = ResponseTool("custom_tool_call", name, namespace)
                return self._offer(called, _describe_custom_tool(tool), _schema("input", input=_TEXT))
            case "tool_search" if tool.get("execution") == "client":
                return self._offer(ResponseTool("tool_search_call", kind), description, schema)
            case "local_shell" | "shell" | "apply_patch":
                environment = read.as_text(read.as_object(tool.get("environment")).get("type"))
                if environment in ("", "local"):
                    return self._offer(ResponseTool(f"{kind}_call", kind), *_LOCAL[kind])
        raise refuse("tools", f"{kind[:60]} runs on OpenAI's own servers, or only its models know it")

    def _offer(
        self, tool: ResponseTool, description: JsonValue, schema: JsonValue, more: JsonObject | None = None
    ) -> str:
        if tool in self._names:
            return self._names[tool]
        known = _name(tool)
        known = _short(known, tool) if known in self._by_name else known
        self._names[tool] = known
        self._by_name[known] = tool
        described: JsonObject = {"description": description} if description else {}
        parameters = schema or {"type": "object", "properties": {}}
        function: JsonObject = {"name": known, **described, "parameters": parameters, **(more or {})}
        self.functions.append({"type": "function", "function": function})
        return known


def _name(tool: ResponseTool) -> str:
    """Return a name as chat completions allow it, the same for the same tool in every request."""
    joined = f"{tool.namespace}{BETWEEN}{tool.name}" if tool.namespace else tool.name
    fit = _UNFIT.sub("_", joined)
    return fit if fit == joined and len(fit) <= MAX_NAME_CHARS else _short(fit, tool)


def _short(name: str, tool: ResponseTool) -> str:
    digest = sha256("\0".join((tool.call, tool.namespace, tool.name)).encode("utf-8", "surrogatepass")).hexdigest()
    return f"{name[: MAX_NAME_CHARS - 9]}_{digest[:8]}"


def _describe_custom_tool(tool: JsonObject) -> str:
    """Return what a tool that takes free text is for, and how that text has to look: a function has no grammar."""
    grammar = read.as_object(tool.get("format"))
    texts = [read.as_text(tool.get("description")), "Give the text as `input`, without JSON inside of it."]
    if definition := read.as_text(grammar.get("definition")):
        texts.append(f"It has to follow this {read.as_text(grammar.get('syntax')) or 'grammar'}:\n{definition}")
    return "\n\n".join(filter(None, texts))


def _free_text(arguments: str) -> str:
    """Return what a model gives a tool that takes free text; some write it without the JSON around it."""
    try:
        value = json.decode(arguments.encode("utf-8", "surrogatepass"))
    except ParseError:
        return arguments
    match value:
        case {"input": str(text)}:
            return text
        case str(text):
            return text
    return arguments
