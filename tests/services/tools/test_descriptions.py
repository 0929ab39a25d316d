"""What the tools cost on every turn of every agent that has them."""

from kimi_proxy.core import json, tokens
from kimi_proxy.services.tools import bash, grep, read
from kimi_proxy.services.tools.bash import Bash
from kimi_proxy.services.tools.grep import Grep
from kimi_proxy.services.tools.read import Read

MAX_TOKENS = 900


def cost(name: str, description: str, schema: object) -> int:
    return tokens.count(json.encode({"name": name, "description": description, "inputSchema": schema}).decode())


def test_the_three_descriptions_are_short():
    costs = {
        "read": cost("read", read.DESCRIPTION, read.SCHEMA),
        "bash": cost("bash", bash.DESCRIPTION, bash.SCHEMA),
        "grep": cost("grep", grep.DESCRIPTION, grep.SCHEMA),
    }
    print(f"tokens of the descriptions: {costs}, together {sum(costs.values())}")

    assert sum(costs.values()) <= MAX_TOKENS


def test_a_schema_names_exactly_the_arguments_that_are_accepted():
    for schema, model in ((read.SCHEMA, Read), (bash.SCHEMA, Bash), (grep.SCHEMA, Grep)):
        properties = schema["properties"]
        assert isinstance(properties, dict)
        assert set(properties) == set(model.model_fields)
        required = {name for name, field in model.model_fields.items() if field.is_required()}
        assert set(schema.get("required", ())) == required  # type: ignore[arg-type]
