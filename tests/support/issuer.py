"""A small OpenID Connect issuer on a real port, and a browser that follows its redirects to a public name."""

import asyncio
import base64
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import httpx
from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from kimi_proxy.api.server import serve
from kimi_proxy.core.json import JsonObject

CLIENT, SECRET = "dashboard", "s:ec ret/"
FETCH = {"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors", "sec-fetch-dest": "empty"}
VISIT = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}


@cache
def key(name: str) -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": name, "use": "sig", "alg": "RS256"})


def sign(claims: JsonObject) -> str:
    return jwt.encode({"alg": "RS256", "kid": "one"}, claims, key("one"))


@dataclass
class Issuer:
    """Whoever comes is let in as `person`; `sign` makes the ID token."""

    address: str = ""
    person: JsonObject = field(default_factory=lambda: {"sub": "1", "preferred_username": "Ada"})
    claims: JsonObject = field(default_factory=dict)  # over those that are right
    sign: Callable[[JsonObject], str] = sign
    keys: tuple[str, ...] = ("one",)
    discovery: JsonObject = field(default_factory=dict)  # over what is right
    asked: Counter[str] = field(default_factory=Counter)
    given: dict[str, dict[str, str]] = field(default_factory=dict)  # what was asked for, by the code for it
    codes: list[str] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)

    async def configuration(self, request: Request) -> Response:
        self.asked["discovery"] += 1
        return JSONResponse(
            {
                "issuer": self.address,
                "authorization_endpoint": f"{self.address}/authorize",
                "token_endpoint": f"{self.address}/token",
                "jwks_uri": f"{self.address}/keys",
                **self.discovery,
            }
        )

    async def authorize(self, request: Request) -> Response:
        asked = dict(request.query_params)
        assert asked["response_type"] == "code" and asked["client_id"] == CLIENT
        assert asked["code_challenge_method"] == "S256" and asked["scope"] == "openid profile email"
        code = base64.urlsafe_b64encode(sha256(asked["state"].encode()).digest()).decode()
        self.given[code] = asked
        self.codes.append(code)
        query = urlencode({"code": code, "state": asked["state"], "session_state": "x", "iss": self.address})
        return RedirectResponse(f"{asked['redirect_uri']}?{query}", 302)

    async def token(self, request: Request) -> Response:
        form = dict(parse_qsl((await request.body()).decode()))
        basic = base64.b64encode(b"dashboard:s%3Aec+ret%2F").decode()
        is_client = request.headers.get("authorization") == f"Basic {basic}" or form.get("client_secret") == SECRET
        asked = self.given.pop(form["code"], None) if is_client else None
        challenge = base64.urlsafe_b64encode(sha256(form.get("code_verifier", "").encode()).digest()).decode()
        if asked is None or challenge.rstrip("=") != asked["code_challenge"]:
            return JSONResponse({"error": "invalid_grant"}, 400)
        assert form["redirect_uri"] == asked["redirect_uri"]
        now = int(time.time())
        right = {"iss": self.address, "aud": CLIENT, "iat": now, "exp": now + 300, "nonce": asked["nonce"]}
        self.tokens.append(self.sign({**right, **self.person, **self.claims}))
        return JSONResponse({"access_token": "at", "token_type": "Bearer", "id_token": self.tokens[-1]})

    async def key_set(self, request: Request) -> Response:
        self.asked["keys"] += 1
        other = {"kty": "OKP", "crv": "X25519", "x": "AAAA", "use": "enc", "kid": "enc"}
        return JSONResponse({"keys": [other, *KeySet([key(name) for name in self.keys]).as_dict()["keys"]]})


@asynccontextmanager
async def issuer() -> AsyncIterator[Issuer]:
    here, stop = Issuer(), asyncio.Event()
    ports: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    routes = [
        Route("/.well-known/openid-configuration", here.configuration),
        Route("/authorize", here.authorize),
        Route("/token", here.token, methods=["POST"]),
        Route("/keys", here.key_set),
    ]

    def ready(host: str, port: int) -> None:
        here.address = f"http://{host}:{port}"
        ports.set_result(port)

    app = Starlette(routes=routes)
    serving = asyncio.create_task(serve(app, "127.0.0.1", 0, stop=stop, token=True, on_ready=ready))
    try:
        await ports
        yield here
    finally:
        stop.set()
        await serving


class _Balancer(httpx.AsyncHTTPTransport):
    """Where a public name leads: one of our servers, each in its turn, and no TLS behind it."""

    def __init__(self, ports: list[int]) -> None:
        super().__init__()
        self.ports = ports

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.ports.append(self.ports.pop(0))
        url = request.url.copy_with(scheme="http", host="127.0.0.1", port=self.ports[-1])
        inner = httpx.Request(request.method, url, headers=request.headers, stream=request.stream)
        return await super().handle_async_request(inner)


class Browser:
    """Keeps cookies, follows no redirect unasked, and says of each request what a browser says."""

    def __init__(self, public_url: str, *ports: int) -> None:
        self.http = httpx.AsyncClient(
            base_url=public_url,
            mounts={f"all://{urlsplit(public_url).hostname}": _Balancer(list(ports))},
            trust_env=False,
            verify=False,
            timeout=60,
        )

    async def __aenter__(self) -> "Browser":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.http.aclose()

    async def fetch(self, path: str, method: str = "GET", **more: object) -> httpx.Response:
        return await self.http.request(method, path, headers=FETCH, **more)  # type: ignore[arg-type]

    async def visit(self, url: str) -> httpx.Response:
        return await self.http.get(url, headers=VISIT)

    async def start(self, place: str = "") -> str:
        """Return where the login begins at the issuer."""
        answer = await self.http.get("/api/login/start", params={"place": place}, headers=FETCH)
        assert answer.status_code == 303, answer.text
        return answer.headers["location"]

    async def at_issuer(self, place: str = "") -> str:
        """Return the address to which the issuer sends the browser back."""
        answer = await self.visit(await self.start(place))
        assert answer.status_code == 302, answer.text
        return answer.headers["location"]

    async def log_in(self, place: str = "") -> str:
        """Return where the browser ends."""
        answer = await self.visit(await self.at_issuer(place))
        assert answer.status_code == 303, answer.text
        return answer.headers["location"]

    async def person(self) -> str:
        """Return who is logged in, and as what; "" if no one is."""
        answer = await self.fetch("/api/me")
        return f"{answer.json()['person']} {answer.json()['role']}" if answer.status_code == 200 else ""


def changed(url: str, **values: str) -> str:
    """Return an address with other values in its query; an empty one is left out."""
    query = {name: value for name, (value,) in parse_qs(urlsplit(url).query).items()} | values
    return f"{url.partition('?')[0]}?{urlencode({name: value for name, value in query.items() if value})}"
