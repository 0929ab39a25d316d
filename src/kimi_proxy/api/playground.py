"""`POST /api/playground/prune`: what the pruner would cut. Nothing is kept, so that one may try as one types."""

from collections.abc import Awaitable, Callable
from dataclasses import asdict

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kimi_proxy.api.body import object_in
from kimi_proxy.api.errors import json_answer
from kimi_proxy.core.prune import Question
from kimi_proxy.features.tool import checked
from kimi_proxy.services.prune_answer import PruneAnswer
from kimi_proxy.services.pruner import Pruner
from kimi_proxy.services.tools.prune_text import PruneText


class Try(PruneText):
    """The arguments of `prune_text`, and whether each line should be explained."""

    explain: bool = False


def routes(pruner: Pruner) -> list[Route]:
    return [Route("/api/playground/prune", _prune(pruner), methods=["POST"])]


def _prune(pruner: Pruner) -> Callable[[Request], Awaitable[Response]]:
    async def prune(request: Request) -> Response:
        asked = checked(Try, await object_in(request, "send the arguments of prune_text"))
        question = Question(asked.text, asked.goal_hint, asked.source_type, asked.options.plain())
        pruned, why = await pruner.preview(question, asked.explain)
        return json_answer({**PruneAnswer(None, pruned).json(), "lines": [asdict(line) for line in why]})

    return prune
