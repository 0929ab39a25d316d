"""Prunes and masks over HTTP: those that were made, a playground that stores nothing, and swe-pruner's `/prune`."""

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.routing import Route

from kimi_proxy.api.routing import Access, RouteSpec, body, caller_of, json_route, query
from kimi_proxy.core import json
from kimi_proxy.core.errors import InvalidParams, InvalidRange, PruneIdNotFound
from kimi_proxy.core.prune import Question
from kimi_proxy.features.pruning.explain import LineWhy
from kimi_proxy.features.tool import validate
from kimi_proxy.services.cuts import Cuts, CutsBody, HitsBody, OneCutBody
from kimi_proxy.services.pruner import PruneAnswer, PruneBody, Pruner
from kimi_proxy.services.tools import pruning
from kimi_proxy.services.tools.prune_text import PruneText
from kimi_proxy.services.tools.pruning import SwePrune, SwePrunedBody


class _Query(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class CutPage(_Query):
    limit: int = Field(default=50, ge=1, le=200)
    before: int | None = Field(default=None, ge=0, le=2**62)


class CutLines(_Query):
    start: int = Field(default=1, ge=1, le=10**9, alias="from")
    lines: int = Field(default=2000, ge=1, le=5000)


class CutSearch(_Query):
    q: str = Field(max_length=500)
    limit: int = Field(default=50, ge=1, le=200)


class Preview(PruneText):
    """The arguments of `prune_text`, and whether each line should be explained."""

    explain: bool = False


PAGE = RouteSpec("List every prune and mask, newest first", query=CutPage, access=Access.PEOPLE)
SEARCH = RouteSpec("Search the newest originals", query=CutSearch, access=Access.PEOPLE)
ONE = RouteSpec(
    "Show an original beside what was sent of it",
    query=CutLines,
    raises=(PruneIdNotFound, InvalidRange),
    access=Access.PEOPLE,
)
PREVIEW = RouteSpec("Show what prune_text would cut; nothing is stored", body=Preview, access=Access.PEOPLE)
SWE_PRUNE = RouteSpec("Prune as swe-pruner does", body=SwePrune, access=Access.PEOPLE)


class PreviewBody(PruneBody):
    lines: Sequence[LineWhy]


def cut_routes(cuts: Cuts) -> list[Route]:
    """`/api/cuts`: the list of prunes and masks, one next to its sent text, and a search in the originals."""

    async def page(request: Request) -> CutsBody:
        asked = query(request, CutPage)
        return await cuts.page(caller_of(request), asked.limit, asked.before)

    async def one(request: Request) -> OneCutBody:
        asked = query(request, CutLines)
        return await cuts.one(caller_of(request), str(request.path_params["cut_id"]), asked.start, asked.lines)

    async def search(request: Request) -> HitsBody:
        asked = query(request, CutSearch)
        return await cuts.search(caller_of(request), asked.q, asked.limit)

    return [
        json_route("GET", "/api/cuts", page, PAGE, compressed=True),
        json_route("GET", "/api/cuts/search", search, SEARCH),
        json_route("GET", "/api/cuts/{cut_id}", one, ONE, compressed=True),
    ]


def playground_route(pruner: Pruner) -> Route:
    async def preview(request: Request) -> PreviewBody:
        asked = await body(request, Preview, "send the arguments of prune_text")
        question = Question(asked.text, asked.goal_hint, asked.source_type, asked.options.plain())
        pruned, why = await pruner.preview(question, asked.explain)
        return {**PruneAnswer(None, pruned).json(), "lines": why}

    return json_route("POST", "/api/playground/prune", preview, PREVIEW)


def swe_prune_route(pruner: Pruner) -> Route:
    async def prune(request: Request) -> SwePrunedBody:
        value = json.decode(await request.body())
        if not isinstance(value, dict):
            raise InvalidParams("body", "must be an object with code and query")
        return await pruning.prune(caller_of(request), validate(SwePrune, value), pruner)

    return json_route("POST", "/prune", prune, SWE_PRUNE)
