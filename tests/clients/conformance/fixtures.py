"""What the official conformance suite wants a server to have: tools, resources and prompts by these names.

They are no part of the product. Tests serve them through the product's own doors, and behind its gateway.
"""

from collections.abc import Callable, Mapping

from kimi_proxy.core import mcp
from kimi_proxy.core.json import JsonObject, JsonValue

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA="
SECRET = "signed by the fixture: "


class Refusal(Exception):
    def __init__(self, code: int, message: str, data: JsonObject) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


def text(words: str) -> JsonObject:
    return {"type": "text", "text": words}


IMAGE: JsonObject = {"type": "image", "data": PNG, "mimeType": "image/png"}


def resource(uri: str, kind: str, words: str) -> JsonObject:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": kind, "text": words}}


def says(*content: JsonObject) -> Callable[[JsonObject], JsonObject]:
    return lambda params: {"content": list(content)}


def ask(message: str, name: str, kind: str = "string") -> JsonObject:
    schema: JsonObject = {"type": "object", "properties": {name: {"type": kind}}, "required": [name]}
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


def sample(words: str, most: int) -> JsonObject:
    said: JsonObject = {"role": "user", "content": text(words)}
    return {"method": "sampling/createMessage", "params": {"messages": [said], "maxTokens": most}}


ROOTS: JsonObject = {"method": "roots/list", "params": {}}


def needs(state: str | None = None, **requests: JsonObject) -> JsonObject:
    carried: JsonObject = {} if state is None else {"requestState": SECRET + state}
    return {"resultType": "input_required", "inputRequests": requests, **carried}


def given(params: JsonObject) -> Mapping[str, JsonValue]:
    responses = params.get("inputResponses")
    return responses if isinstance(responses, Mapping) else {}


def is_answered(params: JsonObject, *names: str) -> bool:
    return all(isinstance(given(params).get(name), Mapping) for name in names)


def done(params: JsonObject, before: str = "") -> JsonObject:
    return {"content": [text(f"{before}{dict(given(params))!r}")], "resultType": "complete"}


def asks(state: str | None = None, **requests: JsonObject) -> Callable[[JsonObject], JsonObject]:
    """A tool that is done once every question is answered, and its state came back as it went out."""

    def tool(params: JsonObject) -> JsonObject:
        if not is_answered(params, *requests):
            return needs(state, **requests)
        if state is not None and params.get("requestState") != SECRET + state:
            raise Refusal(-32602, "this requestState is not mine", {})
        return done(params, "state-ok " if state else "")

    return tool


def multi_round(params: JsonObject) -> JsonObject:
    if params.get("requestState") == SECRET + "two" and is_answered(params, "step2"):
        return done(params)
    if params.get("requestState") == SECRET + "one" and is_answered(params, "step1"):
        return needs("two", step2=ask("Step 2: What is your favorite color?", "color"))
    return needs("one", step1=ask("Step 1: What is your name?", "name"))


def declared(params: JsonObject) -> Mapping[str, JsonValue]:
    found = mcp.meta_of({"params": params}).get(mcp.META_CAPABILITIES)
    return found if isinstance(found, Mapping) else {}


def by_capability(params: JsonObject) -> JsonObject:
    offered = {"elicitation": ask("What is your name?", "name"), "sampling": sample("Hello", 10), "roots": ROOTS}
    return needs(**{name: request for name, request in offered.items() if name in declared(params)})


def missing_capability(params: JsonObject) -> JsonObject:
    if "sampling" not in declared(params):
        raise Refusal(-32021, "this tool needs sampling", {"requiredCapabilities": {"sampling": {}}})
    return {"content": [text("you can sample")]}


NAME = ask("What is your name?", "name")
TOOLS: dict[str, Callable[[JsonObject], JsonObject]] = {
    "test_simple_text": says(text("This is a simple text response for testing.")),
    "test_image_content": says(IMAGE),
    "test_audio_content": says({"type": "audio", "data": WAV, "mimeType": "audio/wav"}),
    "test_embedded_resource": says(
        resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")
    ),
    "test_multiple_content_types": says(
        text("Multiple content types test:"),
        IMAGE,
        resource("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
    ),
    "test_error_handling": lambda params: {
        "isError": True,
        "content": [text("This tool intentionally returns an error for testing")],
    },
    "test_tool_with_progress": says(text("done, with or without an audience")),
    "test_missing_capability": missing_capability,
    "test_streaming_elicitation": asks(user_name=NAME),
    "test_logging_tool": says(text("nothing is logged")),
    "test_input_required_result_elicitation": asks(user_name=NAME),
    "test_input_required_result_sampling": asks(capital_question=sample("What is the capital of France?", 100)),
    "test_input_required_result_list_roots": asks(client_roots=ROOTS),
    "test_input_required_result_request_state": asks("confirm", confirm=ask("Please confirm", "ok", "boolean")),
    "test_input_required_result_multiple_inputs": asks(
        "many", user_name=NAME, greeting=sample("Generate a greeting", 50), client_roots=ROOTS
    ),
    "test_input_required_result_multi_round": multi_round,
    "test_input_required_result_tampered_state": asks("kept", confirm=ask("Please confirm", "ok", "boolean")),
    "test_input_required_result_capabilities": by_capability,
}
SCHEMA_2020: JsonObject = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


def list_tools(params: JsonObject) -> JsonObject:
    plain: JsonObject = {"type": "object", "properties": {}}
    schemas = {**dict.fromkeys(TOOLS, plain), "json_schema_2020_12_tool": SCHEMA_2020}
    return {"tools": [{"name": name, "description": name, "inputSchema": schemas[name]} for name in schemas]}


def call_tool(params: JsonObject) -> JsonObject:
    name = str(params.get("name"))
    if name not in TOOLS:
        raise Refusal(-32602, f"no tool {name!r}", {})
    return TOOLS[name](params)


RESOURCES: dict[str, JsonObject] = {
    "test://static-text": {"mimeType": "text/plain", "text": "This is the content of the static text resource."},
    "test://static-binary": {"mimeType": "image/png", "blob": PNG},
    "test://watched-resource": {"mimeType": "text/plain", "text": "watched"},
}
TEMPLATE = "test://template/{id}/data"


def list_resources(params: JsonObject) -> JsonObject:
    listed = [
        {"uri": uri, "name": uri, "description": uri, "mimeType": about["mimeType"]} for uri, about in RESOURCES.items()
    ]
    return {"resources": listed}


def list_templates(params: JsonObject) -> JsonObject:
    return {"resourceTemplates": [{"uriTemplate": TEMPLATE, "name": "template", "mimeType": "application/json"}]}


def read_resource(params: JsonObject) -> JsonObject:
    uri = str(params.get("uri"))
    head, _, tail = TEMPLATE.partition("{id}")
    about = RESOURCES.get(uri)
    if about is None and uri.startswith(head) and uri.endswith(tail):
        wanted = uri[len(head) : -len(tail)]
        words = f'{{"id":"{wanted}","templateTest":true,"data":"Data for ID: {wanted}"}}'
        about = {"mimeType": "application/json", "text": words}
    if about is None:
        raise Refusal(-32602, "Resource not found", {"uri": uri})
    return {"contents": [{"uri": uri, **about}], "ttlMs": 0, "cacheScope": "private"}


def user(content: JsonObject) -> JsonObject:
    return {"role": "user", "content": content}


def argued(params: JsonObject) -> JsonObject:
    found = params.get("arguments")
    arguments = found if isinstance(found, Mapping) else {}
    words = f"Prompt with arguments: arg1='{arguments.get('arg1')}', arg2='{arguments.get('arg2')}'"
    return {"messages": [user(text(words))]}


def embedding(params: JsonObject) -> JsonObject:
    found = params.get("arguments")
    uri = str(found.get("resourceUri")) if isinstance(found, Mapping) else ""
    shown = resource(uri, "text/plain", "Embedded resource content for testing.")
    return {"messages": [user(shown), user(text("Please process the embedded resource above."))]}


def asking_prompt(params: JsonObject) -> JsonObject:
    if not is_answered(params, "user_context"):
        return needs(user_context=ask("What context should the prompt use?", "context"))
    return {"messages": [user(text(repr(dict(given(params)))))], "resultType": "complete"}


PROMPTS: dict[str, tuple[tuple[str, ...], Callable[[JsonObject], JsonObject]]] = {
    "test_simple_prompt": ((), lambda params: {"messages": [user(text("This is a simple prompt for testing."))]}),
    "test_prompt_with_arguments": (("arg1", "arg2"), argued),
    "test_prompt_with_embedded_resource": (("resourceUri",), embedding),
    "test_prompt_with_image": (
        (),
        lambda params: {"messages": [user(IMAGE), user(text("Please analyze the image above."))]},
    ),
    "test_input_required_result_prompt": ((), asking_prompt),
}


def list_prompts(params: JsonObject) -> JsonObject:
    def described(name: str, arguments: tuple[str, ...]) -> JsonObject:
        listed = [{"name": argument, "description": argument, "required": True} for argument in arguments]
        return {"name": name, "description": name, "arguments": listed}

    return {"prompts": [described(name, arguments) for name, (arguments, _) in PROMPTS.items()]}


def get_prompt(params: JsonObject) -> JsonObject:
    name = str(params.get("name"))
    if name not in PROMPTS:
        raise Refusal(-32602, f"no prompt {name!r}", {"name": name})
    return PROMPTS[name][1](params)


def complete(params: JsonObject) -> JsonObject:
    return {"completion": {"values": ["paris", "park", "party"], "total": 3, "hasMore": False}}


def nothing(params: JsonObject) -> JsonObject:
    return {}


CAPABILITIES: JsonObject = {"tools": {}, "resources": {}, "prompts": {}, "completions": {}}
METHODS: dict[str, Callable[[JsonObject], JsonObject]] = {
    "tools/list": list_tools,
    "tools/call": call_tool,
    "resources/list": list_resources,
    "resources/templates/list": list_templates,
    "resources/read": read_resource,
    "prompts/list": list_prompts,
    "prompts/get": get_prompt,
    "completion/complete": complete,
}
# What only the handshake era has.
OLDER: dict[str, Callable[[JsonObject], JsonObject]] = {
    "logging/setLevel": nothing,
    "resources/subscribe": nothing,
    "resources/unsubscribe": nothing,
    "ping": nothing,
}
