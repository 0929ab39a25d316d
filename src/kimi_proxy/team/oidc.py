"""An OpenID Connect issuer: its login page, and the claims in its signed ID tokens.

The signature is checked by joserfc, the typed successor of authlib's JOSE part: its algorithms are pinned with every
call, and it needs only `cryptography`. This module is loaded by the first login (team/logins.py).
"""

import base64
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from urllib.parse import quote_plus, urlencode

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import JWKRegistry, Key, KeySet
from pydantic import SecretStr

from kimi_proxy.core import json
from kimi_proxy.core.cache import LruCache
from kimi_proxy.core.config.team import OidcSettings, is_private_address
from kimi_proxy.core.errors import LoginFailed, ParseError
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.proxy import http

DISCOVERY = "/.well-known/openid-configuration"
# Signed by a private key of the issuer's. Neither "none", nor HS256: its key would be one that everyone can read.
ALGORITHMS = ("RS256", "PS256", "ES256", "ES384")
TIMEOUT_S = 10.0
MAX_ANSWER_BYTES = 1024**2
REMEMBER_S = 3600.0  # the issuer's metadata and keys
ASK_AGAIN_S = 30.0  # a token with a key that is not known makes us ask for the keys, at most so often
LEEWAY_S = 60  # between the issuer's clock and ours

_HEADERS = {"accept": "application/json", "accept-encoding": "identity"}


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The fields of the discovery document that we use."""

    authorization: str
    token: str
    keys: str
    is_secret_in_body: bool  # else it is sent as a password of HTTP


@dataclass(frozen=True, slots=True)
class _Keys:
    found: KeySet
    fetched: float


class Issuer:
    """Asks its own endpoints alone: no redirect is followed, no proxy is used, no answer is read beyond 1 MiB."""

    def __init__(
        self,
        settings: OidcSettings,
        secret: SecretStr | None,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._secret = secret.get_secret_value() if secret else ""
        self._now = now
        self._monotonic = monotonic
        self._endpoints: LruCache[str, Endpoints] = LruCache(1, ttl_s=REMEMBER_S, now=monotonic)
        self._keys: LruCache[str, _Keys] = LruCache(1, ttl_s=REMEMBER_S, now=monotonic)

    async def login_url(self, redirect_uri: str, state: str, nonce: str, verifier: str) -> str:
        """Return where a browser is sent to log in. Raise LoginFailed if the issuer is away."""
        endpoint = (await self._discover()).authorization
        challenge = base64.urlsafe_b64encode(sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        asked = {
            "response_type": "code",
            "client_id": self._settings.client_id,
            "redirect_uri": redirect_uri,
            "scope": " ".join(self._settings.scopes),
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(asked)}"

    async def claims(self, code: str, verifier: str, redirect_uri: str, nonce: str) -> JsonObject:
        """Return the issuer's claims about the person with `code`. Raise LoginFailed if they are not valid."""
        endpoints = await self._discover()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "client_id": self._settings.client_id,
            "code_verifier": verifier,
        }
        headers = {**_HEADERS, "content-type": "application/x-www-form-urlencoded"}
        if self._secret and endpoints.is_secret_in_body:
            form["client_secret"] = self._secret
        elif self._secret:
            headers["authorization"] = _basic(self._settings.client_id, self._secret)
        answer = await self._ask_issuer("POST", endpoints.token, urlencode(form).encode(), headers)
        token = answer.get("id_token")
        if not isinstance(token, str):
            raise LoginFailed("invalid", "the issuer's response contains no ID token")
        return self._check_claims(await self._verify_token(token, endpoints), nonce)

    async def _verify_token(self, token: str, endpoints: Endpoints) -> JsonObject:
        """Return the claims of a token that a key of the issuer's has signed."""
        keys = self._keys.get(endpoints.keys)
        if keys is not None:
            try:
                return _verify_signature(token, keys.found)
            except LoginFailed:
                if self._monotonic() - keys.fetched < ASK_AGAIN_S:
                    raise
        # Not asked for yet; or the issuer may have a new key.
        found = _key_set(await self._ask_issuer("GET", endpoints.keys))
        self._keys.put(endpoints.keys, _Keys(found, self._monotonic()))
        return _verify_signature(token, found)

    def _check_claims(self, claims: JsonObject, nonce: str) -> JsonObject:
        """Return `claims` if they are meant for us, and for this login."""
        ours = self._settings.client_id
        expected = jwt.JWTClaimsRegistry(
            now=lambda: int(self._now()),
            leeway=LEEWAY_S,
            iss={"essential": True, "value": self._settings.issuer.get_secret_value()},
            aud={"essential": True, "value": ours},
            exp={"essential": True},
            iat={"essential": True},
            sub={"essential": True},
        )
        try:
            expected.validate(dict(claims))
        except JoseError as e:
            raise LoginFailed("invalid", f"the ID token is not valid: {e.error}") from e
        audience = claims["aud"]
        is_for_others = isinstance(audience, list) and len(audience) > 1
        if claims.get("azp", None if is_for_others else ours) != ours:
            raise LoginFailed("invalid", "the ID token was issued to another client")
        if claims.get("nonce") != nonce:
            raise LoginFailed("invalid", "the ID token belongs to another login")
        return claims

    async def _discover(self) -> Endpoints:
        issuer = self._settings.issuer.get_secret_value()
        if (known := self._endpoints.get(issuer)) is not None:
            return known
        found = await self._ask_issuer("GET", issuer.rstrip("/") + DISCOVERY)
        if found.get("issuer") != issuer:
            raise LoginFailed("invalid", "team.oidc.issuer differs from the issuer's own name")
        methods = found.get("token_endpoint_auth_methods_supported")
        is_basic = not isinstance(methods, list) or "client_secret_basic" in methods
        endpoints = Endpoints(
            authorization=_address(found, "authorization_endpoint"),
            token=_address(found, "token_endpoint"),
            keys=_address(found, "jwks_uri"),
            is_secret_in_body=not is_basic,
        )
        self._endpoints.put(issuer, endpoints)
        return endpoints

    async def _ask_issuer(
        self, method: str, url: str, body: bytes = b"", headers: Mapping[str, str] = _HEADERS
    ) -> JsonObject:
        """Return the JSON object that the issuer answers."""
        try:
            if method == "POST":
                status, answer = await http.post(url, body, headers, TIMEOUT_S, MAX_ANSWER_BYTES)
            else:
                status, answer = await http.get(url, headers, TIMEOUT_S, MAX_ANSWER_BYTES)
        except http.FAILURES as e:
            raise LoginFailed("issuer_away", f"the issuer is not responding: {type(e).__name__}") from e
        if status != 200:
            is_refused = method == "POST" and 400 <= status < 500
            raise LoginFailed("invalid" if is_refused else "issuer_away", f"the issuer answered HTTP {status}")
        try:
            found = json.decode(answer)
        except ParseError as e:
            raise LoginFailed("issuer_away", "the issuer's response is not JSON") from e
        if not isinstance(found, dict):
            raise LoginFailed("issuer_away", "the issuer's response is not a JSON object")
        return found


def _verify_signature(token: str, keys: KeySet) -> JsonObject:
    """Return the claims of a token that one of `keys` has signed, by an algorithm that we accept."""
    try:
        return dict(jwt.decode(token, keys, algorithms=ALGORITHMS).claims)
    except (JoseError, ValueError, TypeError, RecursionError) as e:
        what = e.error if isinstance(e, JoseError) else type(e).__name__
        raise LoginFailed("invalid", f"the ID token's signature is not valid: {what}") from e


def _key_set(answer: JsonObject) -> KeySet:
    """Return the usable signing keys; issuers also list keys of other kinds."""
    listed = answer.get("keys")
    keys = [key for each in (listed if isinstance(listed, list) else ()) if (key := _key(each)) is not None]
    if not keys:
        raise LoginFailed("issuer_away", "the issuer lists no supported key")
    return KeySet(keys)


def _key(given: JsonValue) -> Key | None:
    if not isinstance(given, dict) or given.get("kty") not in ("RSA", "EC") or given.get("use", "sig") != "sig":
        return None
    try:
        return JWKRegistry.import_key({name: value for name, value in given.items() if isinstance(value, str)})
    except (JoseError, ValueError, TypeError):
        return None


def _address(found: JsonObject, name: str) -> str:
    url = found.get(name)
    if not isinstance(url, str) or not is_private_address(url):
        raise LoginFailed("invalid", f"the issuer's {name} is not an https address")
    return url


def _basic(name: str, password: str) -> str:
    """Return both as HTTP sends them; OAuth has them quoted like a form first (RFC 6749, 2.3.1)."""
    return "Basic " + base64.b64encode(f"{quote_plus(name)}:{quote_plus(password)}".encode()).decode()
