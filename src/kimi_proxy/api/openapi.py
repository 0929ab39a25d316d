"""The OpenAPI 3.1 description of an application, generated from its routes.

Each route has a RouteSpec. Bodies and queries are described by the pydantic models that validate them, responses by
types, errors by their classes. Other data, such as events and recordings, has a JSON Schema.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Literal, NotRequired, TypedDict

import msgspec
from pydantic import BaseModel, TypeAdapter
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from kimi_proxy import __version__
from kimi_proxy.api.routing import Access, DescribedRoute, LateRoutes, RouteSpec, gzip_answer, union_members
from kimi_proxy.core.errors import InvalidParams, KimiProxyError, ParseError, StoreUnavailable
from kimi_proxy.core.json import JsonObject, JsonValue, OpenObject
from kimi_proxy.features.chat.context import ReinjectedFields
from kimi_proxy.features.chat.memory import MemoryInjectedFields
from kimi_proxy.features.metering import LogCountFields
from kimi_proxy.features.models.routing import ModelRoutedFields, RoutingUnavailableFields
from kimi_proxy.features.recording import RecordedLine, RecordingHeadLine
from kimi_proxy.features.sanitizer.stage import SanitizerFields
from kimi_proxy.services.chat.admission import BudgetAlert
from kimi_proxy.services.chat.models import UnknownModelBody
from kimi_proxy.services.chat.summaries import SummaryCost
from kimi_proxy.services.gateway import GatewayFields
from kimi_proxy.services.journal import DeletedFields, MetricFields, SessionFields
from kimi_proxy.services.pruner import PruneFields
from kimi_proxy.services.serialize import (
    CompressionEventFields,
    MemoryMetricBody,
    SinkAlertBody,
    UndoneFields,
    WindowAlertBody,
)
from kimi_proxy.services.sessions import MetricsBody, Snapshot
from kimi_proxy.services.settings import SwitchedFields


class EventFrame(TypedDict):
    seq: int
    at: str
    owner: NotRequired[str]  # whose it is, where an admin of a team sees that of another: person/ada


class StageEventFrame(EventFrame):
    """Of events that a stage reports: whose request it was."""

    session_id: str
    request_id: str


class InitEvent(EventFrame, Snapshot):
    type: Literal["init"]


class SessionEvent(EventFrame, SessionFields):
    type: Literal["session_created", "session_renamed"]


class SessionDeletedEvent(EventFrame, DeletedFields):
    type: Literal["session_deleted"]


class MetricEvent(EventFrame, MetricFields):
    type: Literal["metric", "metric_updated"]


class ContextAlertEvent(EventFrame, WindowAlertBody):
    type: Literal["context_alert"]


class BudgetAlertEvent(EventFrame, BudgetAlert):
    type: Literal["budget_alert"]


class MemoryEvent(EventFrame, MemoryMetricBody):
    type: Literal["memory_metrics_update"]


class AttentionSinkEvent(EventFrame, SinkAlertBody):
    type: Literal["attention_sink_alert"]


class ReinjectedEvent(StageEventFrame, ReinjectedFields):
    type: Literal["instructions_reinjected"]


class ModelRoutedEvent(StageEventFrame, ModelRoutedFields):
    type: Literal["model_routed"]


class RoutingUnavailableEvent(StageEventFrame, RoutingUnavailableFields):
    type: Literal["routing_unavailable"]


class MemoryInjectedEvent(StageEventFrame, MemoryInjectedFields):
    type: Literal["memory_injected"]


class CompressionPaidEvent(StageEventFrame, SummaryCost):
    type: Literal["compression_paid"]


class SanitizerEvent(StageEventFrame, SanitizerFields):
    type: Literal["sanitizer_event"]


class CompressionEvent(EventFrame, CompressionEventFields):
    type: Literal["compression_event"]
    request_id: NotRequired[str]  # of an automatic one


class UndoneEvent(EventFrame, UndoneFields):
    type: Literal["compression_event"]


class ModelUnknownEvent(EventFrame, UnknownModelBody):
    type: Literal["model_unknown"]


class LogCountEvent(EventFrame, LogCountFields):
    type: Literal["log_count"]


class PruneEvent(EventFrame, PruneFields):
    type: Literal["prune_event"]


class SettingsEvent(EventFrame, SwitchedFields):
    type: Literal["settings_event"]


class GatewayEvent(EventFrame, GatewayFields):
    type: Literal["gateway_event"]


class GapEvent(TypedDict):
    type: Literal["gap"]
    seq: int
    missed: int


EVENTS: tuple[object, ...] = (
    InitEvent,
    SessionEvent,
    SessionDeletedEvent,
    MetricEvent,
    ContextAlertEvent,
    BudgetAlertEvent,
    MemoryEvent,
    AttentionSinkEvent,
    ReinjectedEvent,
    ModelRoutedEvent,
    RoutingUnavailableEvent,
    MemoryInjectedEvent,
    CompressionPaidEvent,
    SanitizerEvent,
    CompressionEvent,
    UndoneEvent,
    ModelUnknownEvent,
    LogCountEvent,
    PruneEvent,
    SettingsEvent,
    GatewayEvent,
    GapEvent,
)


PATH = "/api/openapi.json"
JSON = "application/json"
REF = "#/components/schemas/{}"

# Statuses that the guard, the router or a stopping server may return on every route.
REFUSALS: Mapping[int, tuple[str, ...]] = {
    400: ("body_incomplete",),
    401: ("token_required",),
    403: ("origin", "cross_site", "other_user"),
    408: ("body_timeout",),
    413: ("body_too_large",),
    415: ("content_type", "content_encoding"),
    421: ("host",),
    431: ("head_too_large",),
    500: (KimiProxyError.code,),
    503: ("crowded", "stopping", StoreUnavailable.code),
}
PARAMETER = re.compile(r"\{(\w+)(?::(\w+))?\}")
PARAMETER_SCHEMAS: Mapping[str, JsonObject] = {
    "": {"type": "string", "pattern": "^[^/]+$"},
    "int": {"type": "integer", "minimum": 0},
    "path": {"type": "string", "minLength": 1},
}

DIALECT = "https://json-schema.org/draft/2020-12/schema"
DEFINED = "#/$defs/{}"
# The possible documents of each kind: a frame of `/ws`, the file of /api/export/json, a line of a recording.
KINDS: Mapping[str, tuple[str, tuple[object, ...]]] = {
    "events": ("A frame of /ws", EVENTS),
    "export": ("The file of /api/export/json", (MetricsBody,)),
    "recording": ("A line of a recording", (RecordingHeadLine, RecordedLine)),
}


def with_description(routes: Sequence[BaseRoute], late: Sequence[LateRoutes] = ()) -> list[BaseRoute]:
    """Return `routes`, and those that describe them and the late ones."""

    @cache
    def make_document() -> JsonObject:
        return document([*all_routes, *(route for each in late for route in each.routes()), *PROBES])

    # Not async: it takes a quarter of a second to make, in a worker thread.
    def show(request: Request) -> Response:
        return gzip_answer(request, make_document())

    def schema(request: Request) -> Response:
        return gzip_answer(request, schema_of(str(request.path_params["name"])))

    all_routes = [
        *routes,
        DescribedRoute(
            "GET", PATH, show, RouteSpec("Describe every route in OpenAPI 3.1", OpenObject, access=Access.PEOPLE)
        ),
        DescribedRoute("GET", "/api/schemas/{name}", schema, SCHEMA),
    ]
    return all_routes


class LiveBody(TypedDict):
    status: Literal["live"]


class ReadyBody(TypedDict):
    status: Literal["ready"]


class StoppingBody(TypedDict):
    status: Literal["stopping"]


# Described here alone: the server answers them before the guard and the router see the request (api/server.py).
PROBES = (
    DescribedRoute(
        "GET",
        "/health/live",
        Response(),
        RouteSpec("Report that the process is alive", LiveBody, access=Access.EVERYONE),
    ),
    DescribedRoute(
        "GET",
        "/health/ready",
        Response(),
        RouteSpec("Report whether requests may be sent", ReadyBody, more={503: StoppingBody}, access=Access.EVERYONE),
    ),
)
SCHEMA = RouteSpec(
    "Return a JSON Schema: of events, exports or recordings", OpenObject, raises=(InvalidParams,), access=Access.PEOPLE
)


def document(routes: Iterable[BaseRoute]) -> JsonObject:
    """Return the description of those routes that have a spec."""
    found = [route for route in routes if isinstance(route, DescribedRoute)]
    components = Components([kind for route in found for kind in _answer_types(route.spec)])
    paths: dict[str, JsonObject] = {}
    for route in found:
        path = PARAMETER.sub(r"{\1}", route.path)
        for method in sorted((route.methods or set()) - {"HEAD"}):
            operation = _operation(method, path, route, components)
            paths[path] = {**paths.get(path, {}), method.lower(): operation}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "kimi-proxy",
            "version": __version__,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "jsonSchemaDialect": DIALECT,
        "paths": paths,
        "components": {
            "schemas": components.schemas,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
            },
        },
        # On loopback no token is needed, unless one is set.
        "security": [{}, {"bearer": []}, {"key": []}],
    }


class Components:
    """The named schemas of a description."""

    def __init__(self, answers: Sequence[object]) -> None:
        kinds = list(dict.fromkeys(map(_key, answers)))
        by_key = {_key(kind): kind for kind in answers}
        made, self.schemas = of_types([by_key[key] for key in kinds], REF)
        self._answers = dict(zip(kinds, made, strict=True))

    def answer(self, kind: object) -> JsonObject:
        return self._answers[_key(kind)]

    def request(self, kind: object) -> JsonObject:
        """Return the schema of the values that a pydantic type accepts."""
        adapter: TypeAdapter[object] = TypeAdapter(kind)  # type: ignore[arg-type]  # any type of a body
        made = adapter.json_schema(ref_template=REF.format("{model}"))
        self.schemas.update(made.pop("$defs", {}))
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            self.schemas[kind.__name__] = made
            return {"$ref": REF.format(kind.__name__)}
        return made


def _key(kind: object) -> str:
    return repr(kind)


def _answer_types(spec: RouteSpec) -> Iterator[object]:
    yield from (spec.error, *spec.more.values())
    if spec.answer is not None:
        yield from union_members(spec.answer)


def _operation(method: str, path: str, route: DescribedRoute, components: Components) -> JsonObject:
    spec = route.spec
    made: dict[str, JsonValue] = {
        "operationId": re.sub(r"\W+", "_", f"{method.lower()}{path}").strip("_"),
        "summary": spec.summary,
        "tags": [path.strip("/").split("/")[1 if path.startswith(("/api/", "/v1/")) else 0]],
        "parameters": [*_path_parameters(route.path), *_query_parameters(spec)],
        "responses": _responses(spec, has_path="{" in path, components=components),
    }
    if spec.access < Access.PEOPLE:
        made["security"] = [{}]
    if spec.body is not None and method != "GET":
        schema = components.request(spec.body)
        made["requestBody"] = {"required": spec.is_body_required, "content": {JSON: {"schema": schema}}}
    return made


def _path_parameters(path: str) -> Iterator[JsonObject]:
    for name, kind in PARAMETER.findall(path):
        yield {"name": name, "in": "path", "required": True, "schema": PARAMETER_SCHEMAS[kind]}


def _query_parameters(spec: RouteSpec) -> Iterator[JsonObject]:
    if spec.query is None:
        return
    schema = spec.query.model_json_schema()
    for name, value in schema.get("properties", {}).items():
        yield {"name": name, "in": "query", "required": name in schema.get("required", ()), "schema": value}


def _responses(spec: RouteSpec, has_path: bool, components: Components) -> JsonObject:
    codes: dict[int, list[str]] = {status: list(known) for status, known in REFUSALS.items()}
    if has_path:
        codes[404] = ["not_found"]
    if spec.access is Access.ADMINS:
        codes[403].append("admins_only")
    for error in (*spec.raises, *((ParseError, InvalidParams) if spec.body or spec.query else ())):
        codes.setdefault(error.http_status, []).append(error.code)
    made: dict[str, JsonValue] = {}
    for status, known in codes.items():
        kinds = [spec.error] if status not in spec.more else [spec.error, spec.more[status]]
        listed = ", ".join(f"`{code}`" for code in dict.fromkeys(known))
        made[str(status)] = {"description": f"Error: {listed}", **_content(kinds, components)}
    for status in spec.more.keys() - codes.keys():
        made[str(status)] = {"description": "As the other server says", **_content([spec.more[status]], components)}
    if spec.is_relayed:
        made["default"] = {"description": "What the upstream answers: its status, headers and body"}
    else:
        made[str(spec.status)] = {"description": spec.summary, **_success(spec, components)}
    if spec.is_silent:
        made["202"] = {"description": "Taken; a notification gets no answer"}
    return dict(sorted(made.items()))


def _content(kinds: Sequence[object], components: Components, media_type: str = JSON) -> JsonObject:
    found: list[JsonValue] = [components.answer(kind) for kind in kinds]
    return {"content": {media_type: {"schema": found[0] if len(found) == 1 else {"anyOf": found}}}}


def _success(spec: RouteSpec, components: Components) -> JsonObject:
    if spec.answer is None:
        return {"content": {spec.media_type: {"schema": {"type": "string"}}}}
    return _content(union_members(spec.answer), components, spec.media_type)


@cache
def schema_of(name: str) -> JsonObject:
    """Return the schema of `events`, `export` or `recording`. Raise InvalidParams for another name."""
    if name not in KINDS:
        raise InvalidParams("name", f"use one of {', '.join(KINDS)}")
    title, kinds = KINDS[name]
    made, defined = of_types(kinds, DEFINED)
    one: JsonObject = made[0] if len(made) == 1 else {"oneOf": made}
    return {"$schema": DIALECT, "title": title, **one, "$defs": defined}


def of_types(kinds: Sequence[object], ref: str) -> tuple[list[JsonObject], dict[str, JsonValue]]:
    """Return the schema of each type, and those that they refer to by name."""
    made, defined = msgspec.json.schema_components(kinds, schema_hook=_anything, ref_template=ref.format("{name}"))
    return [dict(each) for each in made], dict(defined)


def _anything(kind: type) -> JsonObject:
    """Return the schema of `object`: any JSON. Raise NotImplementedError for what JSON cannot hold."""
    if kind is object:
        return {"description": "any JSON"}
    raise NotImplementedError(kind)
