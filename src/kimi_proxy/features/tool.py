"""What an MCP tool is: a name, a contract for its arguments, and a function."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Generic, Protocol, TypeVar

from pydantic import BaseModel, BeforeValidator, ValidationError

from kimi_proxy.core.errors import InvalidParams
from kimi_proxy.core.types import JsonObject, JsonValue

Arguments = TypeVar("Arguments", bound=BaseModel)


def _whole(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


# JSON Schema's integer, for strict models: 3.0 is one, true is not.
Integer = Annotated[int, BeforeValidator(_whole)]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a tool says: text for the model, the same as JSON where a program reads it too."""

    text: str
    structured: JsonObject | None = None
    is_error: bool = False
    meta: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tool(Generic[Arguments]):
    """A tool as every door offers it. `schema` is what clients see, `arguments` is what we check."""

    name: str
    description: str
    schema: JsonObject
    arguments: type[Arguments]
    function: Callable[[Arguments], Awaitable[Answer]]
    title: str = ""
    aliases: tuple[str, ...] = ()
    read_only: bool = True

    async def call(self, arguments: Mapping[str, JsonValue]) -> Answer:
        """Check `arguments` and run the tool; InvalidParams names the field that is wrong."""
        return await self.function(checked(self.arguments, arguments))


class AnyTool(Protocol):
    """A tool whatever its arguments are: what a door needs of the tools in its registry."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def schema(self) -> JsonObject: ...
    @property
    def title(self) -> str: ...
    @property
    def read_only(self) -> bool: ...

    async def call(self, arguments: Mapping[str, JsonValue]) -> Answer: ...


def checked(model: type[Arguments], arguments: Mapping[str, JsonValue]) -> Arguments:
    try:
        return model.model_validate(arguments)
    except ValidationError as e:
        problem = e.errors(include_url=False, include_input=False)[0]
        raise InvalidParams(".".join(map(str, problem["loc"])) or "arguments", problem["msg"]) from e
