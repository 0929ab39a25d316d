"""Azure's paths: OpenAI's API below /openai, where one may contain a deployment, and Anthropic's below /anthropic."""

import re
from urllib.parse import parse_qsl, urlencode

from starlette.types import Scope

from kimi_proxy.core.chat import read
from kimi_proxy.core.chat.read import JsonBody, splice

DEPLOYMENT = "kimi_proxy.deployment"  # the scope's key for the name that a path contained

_DEPLOYED = re.compile(r"/openai/deployments/([^/]+)(/.+)")
AZURE_ROOTS = ("/openai/", "/anthropic/")
_PREFIXES = ("/openai/v1/", "/anthropic/v1/")


def rename_path(scope: Scope) -> None:
    """Give a request to a path of Azure's, below AZURE_ROOTS, the path of ours that answers it."""
    path = scope["path"]
    prefix = next((each for each in _PREFIXES if path.startswith(each)), "")
    if prefix:
        scope["path"] = f"/v1/{path.removeprefix(prefix)}"
        return
    if found := _DEPLOYED.fullmatch(path):
        scope[DEPLOYMENT] = found[1]
        path = f"/openai{found[2]}"
    if path.startswith("/openai/"):
        scope["path"] = f"/v1/{path.removeprefix('/openai/')}"
        scope["query_string"] = _without_version(scope["query_string"])


def name_deployment(scope: Scope, body: bytes) -> bytes:
    """Return the body with the deployment that its path named as the model: there the path decides."""
    deployment = scope.get(DEPLOYMENT)
    if deployment is None or not body.lstrip().startswith(b"{"):
        return body
    held = JsonBody(body)
    if read.string(held.members.get("model")) == deployment:
        return body
    return splice(body, [held.set("model", deployment)])


def _without_version(query: bytes) -> bytes:
    """Remove the API version, which only these paths have; no provider needs it."""
    if b"api-version" not in query:
        return query
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    return urlencode([pair for pair in pairs if pair[0] != "api-version"]).encode()
