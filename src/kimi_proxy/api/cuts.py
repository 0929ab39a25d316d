"""`/api/cuts`: every prune and mask, one beside what was sent of it, and a search in the originals."""

from collections.abc import Awaitable, Callable
from dataclasses import asdict

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kimi_proxy.api.errors import json_answer, object_in, packed_answer
from kimi_proxy.core import json
from kimi_proxy.core.errors import InvalidParams
from kimi_proxy.core.prune import Question
from kimi_proxy.features.tool import checked
from kimi_proxy.services.cuts import Cuts
from kimi_proxy.services.pruner import PruneAnswer, Pruner
from kimi_proxy.services.runtime import Runtime
from kimi_proxy.services.tools import pruning
from kimi_proxy.services.tools.prune_text import PruneText
from kimi_proxy.services.tools.pruning import SwePrune

Endpoint = Callable[[Request], Awaitable[Response]]


class _Query(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Page(_Query):
    limit: int = Field(default=50, ge=1, le=200)
    before: int | None = Field(default=None, ge=0, le=2**62)


class Lines(_Query):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    start: int = Field(default=1, ge=1, le=10**9, alias="from")
    lines: int = Field(default=2000, ge=1, le=5000)


class Wanted(_Query):
    q: str = Field(max_length=500)
    limit: int = Field(default=50, ge=1, le=200)


def routes(cuts: Cuts) -> list[Route]:
    return [
        Route("/api/cuts", _page(cuts), methods=["GET"]),
        Route("/api/cuts/search", _search(cuts), methods=["GET"]),
        Route("/api/cuts/{cut_id}", _one(cuts), methods=["GET"]),
    ]


def _page(cuts: Cuts) -> Endpoint:
    async def page(request: Request) -> Response:
        asked = checked(Page, dict(request.query_params))
        return packed_answer(request, await cuts.page(asked.limit, asked.before))

    return page


def _one(cuts: Cuts) -> Endpoint:
    async def one(request: Request) -> Response:
        asked = checked(Lines, dict(request.query_params))
        return packed_answer(request, await cuts.one(str(request.path_params["cut_id"]), asked.start, asked.lines))

    return one


def _search(cuts: Cuts) -> Endpoint:
    async def search(request: Request) -> Response:
        asked = checked(Wanted, dict(request.query_params))
        return json_answer(await cuts.search(asked.q, asked.limit))

    return search


class Try(PruneText):
    """The arguments of `prune_text`, and whether each line should be explained."""

    explain: bool = False


def playground_routes(pruner: Pruner) -> list[Route]:
    return [Route("/api/playground/prune", _prune(pruner), methods=["POST"])]


def _prune(pruner: Pruner) -> Callable[[Request], Awaitable[Response]]:
    async def prune(request: Request) -> Response:
        asked = checked(Try, await object_in(request, "send the arguments of prune_text"))
        question = Question(asked.text, asked.goal_hint, asked.source_type, asked.options.plain())
        pruned, why = await pruner.preview(question, asked.explain)
        return json_answer({**PruneAnswer(None, pruned).json(), "lines": [asdict(line) for line in why]})

    return prune


def endpoint(runtime: Runtime) -> Callable[[Request], Awaitable[Response]]:
    async def prune(request: Request) -> Response:
        body = json.decode(await request.body())
        if not isinstance(body, dict):
            raise InvalidParams("body", "must be an object with code and query")
        return json_answer(await pruning.prune(checked(SwePrune, body), runtime.pruner))

    return prune
