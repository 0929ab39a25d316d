"""Login to the dashboard of a team at a real OpenID Connect issuer, over real HTTP, and every way to forge one."""

import asyncio
import base64
import hmac
import json
import logging
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from joserfc import jwt
from pydantic import SecretStr
from tests.support.api.proxy_world import Proxy, proxy
from tests.support.fakes import Clock
from tests.support.issuer import CLIENT, FETCH, SECRET, Browser, Issuer, changed, issuer, key, sign
from tests.support.services.store import postgres_server
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from kimi_proxy.assembly.runtime import running
from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.config import parse
from kimi_proxy.core.config.team import OidcSettings
from kimi_proxy.core.errors import ConfigError, LoginFailed
from kimi_proxy.core.json import JsonObject
from kimi_proxy.team import oidc
from kimi_proxy.team.logins import MAX_BEGUN_EACH
from kimi_proxy.team.tables import team_tables

TOKEN = "the-server's-own-token"
PUBLIC = "https://kimi.example.org"


@dataclass(frozen=True)
class World:
    issuer: Issuer
    proxy: Proxy
    browser: Browser
    public: str

    def another(self) -> Browser:
        return Browser(self.public, self.proxy.port)

    async def add(self, name: str, role: str = "member") -> str:
        assert self.proxy.runtime.team
        return (await self.proxy.runtime.team.people.add(LOCAL, name, "admin" if role == "admin" else "member")).token


def toml(address: str, more: str = "", public: str = PUBLIC) -> str:
    return f"""[team]
enabled = true
[team.oidc]
issuer = "{address}"
client_id = "{CLIENT}"
public_url = "{public}"
{more}
"""


@asynccontextmanager
async def world(home: Path, more: str = 'new_people = "member"', public: str = PUBLIC) -> AsyncIterator[World]:
    environment = {"KIMI_PROXY_TOKEN": TOKEN, "KIMI_PROXY_OIDC_CLIENT_SECRET": SECRET}
    async with (
        issuer() as here,
        proxy(home, toml(here.address, more, public), **environment) as p,
        Browser(public, p.port) as browser,
    ):
        yield World(here, p, browser, public)


async def test_a_login_at_the_issuer_opens_the_dashboard_as_a_token_would(tmp_path: Path):
    async with world(tmp_path) as w:
        assert (await w.browser.fetch("/api/login")).json() == {"oidc": True}
        assert await w.browser.person() == ""

        assert await w.browser.log_in("sessions/ses_1") == "/#/sessions/ses_1"

        assert await w.browser.person() == "ada member"
        assert (await w.browser.fetch("/api/sessions")).status_code == 200
        assert (await w.browser.fetch("/api/audit-log")).json()["error"]["code"] == "admins_only"
        (kept,) = [cookie for cookie in w.browser.http.cookies.jar if cookie.value]
        assert (kept.name, kept.secure, kept.path) == ("__Host-kimi-proxy-session", True, "/")
        assert 12 * 3600 - 60 < kept.expires - time.time() <= 12 * 3600
        async with w.another() as other:
            assert await other.person() == ""
            assert await other.log_in() == "/#/"
        # The issuer was asked once for what it says of itself, and once for its keys.
        assert w.issuer.asked == {"discovery": 1, "keys": 1}
        audit = await w.proxy.http.get("/api/audit-log", headers={"x-api-key": TOKEN})
        did = [(one["person"], one["action"]) for one in reversed(audit.json()["entries"])]
        assert did == [("ada", "add_person"), ("ada", "login"), ("ada", "call"), ("ada", "login")]


async def test_cookies_are_for_the_browser_alone_and_secure_where_the_address_is(tmp_path: Path):
    for public, secure in ((PUBLIC, True), ("http://kimi.example.org", False)):
        async with world(tmp_path / str(secure), public=public) as w:
            begun = await w.browser.fetch("/api/login/start")
            made = await w.browser.visit((await w.browser.visit(begun.headers["location"])).headers["location"])
            lax, (strict, gone) = begun.headers["set-cookie"], made.headers.get_list("set-cookie")
            assert "HttpOnly" in lax and "SameSite=lax" in lax and "Max-Age=600" in lax and "Domain" not in lax
            assert "HttpOnly" in strict and "SameSite=strict" in strict and "Max-Age=43200" in strict
            assert "Max-Age=0" in gone and "-login=" in gone
            assert all(("Secure" in one, one.startswith("__Host-")) == (secure, secure) for one in (lax, strict, gone))
            assert made.headers["cache-control"] == "no-store" and made.headers["referrer-policy"] == "no-referrer"
            assert await w.browser.person() == "ada member"


async def test_a_login_that_was_not_begun_here_or_comes_twice_opens_nothing(tmp_path: Path):
    async with world(tmp_path) as w:
        back = await w.browser.at_issuer()
        async with w.another() as other:  # someone else's link: this browser began no login
            assert (await other.visit(back)).headers["location"] == "/?login=expired"
            assert await other.person() == ""
        wrong = await w.browser.visit(changed(back, state="x"))
        assert wrong.headers["location"] == "/?login=expired"
        again = await w.browser.visit(back)  # it was taken by the wrong one
        assert again.headers["location"] == "/?login=expired"

        back = await w.browser.at_issuer()
        begun = {cookie.name: cookie.value for cookie in w.browser.http.cookies.jar if cookie.value}
        assert (await w.browser.visit(back)).headers["location"] == "/#/"
        async with w.another() as thief:  # with the cookie, the code and the state of a login that was made
            thief.http.cookies.update(begun)
            assert (await thief.visit(back)).headers["location"] == "/?login=expired"
            thief.http.cookies.clear()
            mine = await thief.at_issuer()  # a code of another's in a login of one's own
            assert (await thief.visit(changed(mine, code=w.issuer.codes[-2]))).headers["location"] == "/?login=invalid"
            assert await thief.person() == ""
        for query in ({"code": ""}, {"error": "access_denied", "code": ""}):
            back = await w.browser.at_issuer()
            assert (await w.browser.visit(changed(back, **query))).headers["location"] == "/?login=denied"
        back = await w.browser.at_issuer()
        other_issuer = await w.browser.visit(changed(back, iss="https://evil.example.org"))
        assert other_issuer.headers["location"] == "/?login=invalid"


async def test_a_code_without_the_verifier_of_its_login_is_refused(tmp_path: Path):
    async with world(tmp_path) as w:
        begun = await w.browser.start()
        assert "code_challenge=" in begun
        # The code is of a login with another challenge, as a stolen one would be.
        back = (await w.browser.visit(changed(begun, code_challenge="another"))).headers["location"]
        assert (await w.browser.visit(back)).headers["location"] == "/?login=invalid"
        assert await w.browser.person() == ""


def _none(claims: JsonObject) -> str:
    return ".".join((_coded({"alg": "none", "typ": "JWT"}), _coded(claims), ""))


def _coded(value: JsonObject) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def _hmac(claims: JsonObject, secret: bytes) -> str:
    text = f"{_coded({'alg': 'HS256', 'typ': 'JWT', 'kid': 'one'})}.{_coded(claims)}"
    signature = hmac.digest(secret, text.encode(), "sha256")
    return f"{text}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def _by_another_key(claims: JsonObject) -> str:
    return jwt.encode({"alg": "RS256", "kid": "one"}, claims, key("stolen"))


def _changed_after(claims: JsonObject) -> str:
    head, _, signature = sign(claims).split(".")
    return ".".join((head, _coded({**claims, "preferred_username": "dee"}), signature))


def _with_own_key(claims: JsonObject) -> str:
    own = key("stolen")
    return jwt.encode({"alg": "RS256", "jwk": own.as_dict(private=False)}, claims, own)


FORGED: dict[str, Callable[[JsonObject], str]] = {
    "alg none": _none,
    "HS256 with the public key": lambda claims: _hmac(claims, key("one").as_pem(private=False)),
    "HS256 with the client's secret": lambda claims: _hmac(claims, SECRET.encode()),
    "another key": _by_another_key,
    "a key that it brings along": _with_own_key,
    "changed afterwards": _changed_after,
    "no signature": lambda claims: sign(claims).rpartition(".")[0] + ".",
    "no token": lambda claims: "",
    "nonsense": lambda claims: "a.b.c",
}
NOW = int(time.time())
WRONG: dict[str, JsonObject] = {
    "nonce": {"nonce": "another"},
    "no nonce": {"nonce": None},
    "aud": {"aud": "another"},
    "aud of several": {"aud": ["another", "third"]},
    "azp": {"aud": [CLIENT, "another"], "azp": "another"},
    "several without azp": {"aud": [CLIENT, "another"]},
    "iss": {"iss": "https://evil.example.org"},
    "expired": {"exp": NOW - 120},
    "no exp": {"exp": None},
    "never": {"exp": "later"},
    "issued tomorrow": {"iat": NOW + 86_400},
    "no sub": {"sub": None},
}


async def test_no_forged_or_foreign_id_token_lets_anyone_in(tmp_path: Path):
    async with world(tmp_path) as w:
        await w.add("dee", "admin")
        for name, forge in FORGED.items():
            w.issuer.sign = forge
            assert await w.browser.log_in() == "/?login=invalid", name
            assert await w.browser.person() == "", name
        w.issuer.sign = sign
        for name, claims in WRONG.items():
            w.issuer.claims = claims
            assert await w.browser.log_in() == "/?login=invalid", name
            assert await w.browser.person() == "", name
        assert w.issuer.asked["keys"] <= 2  # forged ones do not make us ask each time
        w.issuer.claims = {"aud": [CLIENT, "another"], "azp": CLIENT}
        assert await w.browser.log_in() == "/#/"
        assert await w.browser.person() == "ada member"


async def test_a_session_that_was_changed_guessed_or_ended_is_no_ones(tmp_path: Path):
    async with world(tmp_path) as w:
        await w.browser.log_in()
        name, value = next((one.name, one.value) for one in w.browser.http.cookies.jar if one.value)
        cookies = [value[:-1], value + "a", value.swapcase(), "", "x" * 5000, "ada", 'ada"; Path=/', "\u00e9"]
        for wrong in [*cookies, value.encode().hex()]:
            header = {**FETCH, "cookie": f"{name}={wrong}".encode()}
            assert (await w.proxy.http.get("/api/me", headers=header)).status_code == 401, wrong
        twice = {**FETCH, "cookie": f"{name}={value}; {name}=x"}
        assert (await w.proxy.http.get("/api/me", headers=twice)).status_code == 401
        good = {**FETCH, "cookie": f"other=1; {name}={value}"}
        assert (await w.proxy.http.get("/api/me", headers=good)).json()["person"] == "ada"

        assert (await w.browser.fetch("/api/logout", "POST")).json() == {"ended": True}
        assert [one for one in w.browser.http.cookies.jar if one.value] == []
        assert (await w.proxy.http.get("/api/me", headers=good)).status_code == 401  # a copy of the cookie, too
        assert (await w.browser.fetch("/api/logout", "POST")).json() == {"ended": False}


async def test_who_is_revoked_or_gets_a_new_token_is_logged_out_and_stays_out(tmp_path: Path):
    async with world(tmp_path) as w:
        people = w.proxy.runtime.team.people if w.proxy.runtime.team else None
        assert people
        await w.browser.log_in()
        id = next(one.value for one in w.browser.http.cookies.jar if one.value)
        await people.revoke("ada")
        await _until_out(w, id)
        assert await w.browser.log_in() == "/?login=revoked"
        await people.rotate(LOCAL, "ada")
        w.browser.http.cookies.set("__Host-kimi-proxy-session", id, domain="kimi.example.org")
        assert await w.browser.person() == ""  # the login of before does not come back with the person
        assert await w.browser.log_in() == "/#/"


async def _until_out(w: World, id: str) -> None:
    """A good one is looked up again after two seconds: here at once."""
    assert w.proxy.runtime.team
    w.proxy.runtime.team.people.forget(sha256(id.encode()).digest())
    assert await w.browser.person() == ""


async def test_the_issuers_claims_make_admins_and_teams(tmp_path: Path):
    more = """new_people = "member"
admin_claim = "groups"
admin_values = ["kimi-admins"]
team_claim = "groups"
team_values = ["platform", "Web"]
"""
    async with world(tmp_path, more) as w:
        w.issuer.claims = {"groups": ["all", "Web", "kimi-admins"]}
        await w.browser.log_in()
        me = (await w.browser.fetch("/api/me")).json()
        assert me == {"is_team": True, "person": "ada", "team": "web", "role": "admin"}
        assert (await w.browser.fetch("/api/audit-log")).status_code == 200
        w.issuer.claims = {"groups": "platform"}
        async with w.another() as other:
            await other.log_in()
            assert await other.person() == "ada member"
            assert (await other.fetch("/api/me")).json()["team"] == "platform"


async def test_a_person_keeps_their_name_and_no_one_else_takes_it(tmp_path: Path):
    async with world(tmp_path, "") as w:
        assert await w.browser.log_in() == "/?login=unknown"  # new people are refused by default
        await w.add("ada")
        assert await w.browser.log_in() == "/#/"
        assert await w.browser.person() == "ada member"
        w.issuer.person = {"sub": "1", "preferred_username": "ada l"}  # renamed at the issuer
        assert await w.browser.log_in() == "/#/"
        assert await w.browser.person() == "ada member"
        async with w.another() as other:
            for person, reason in (
                ({"sub": "2", "preferred_username": "ada"}, "taken"),
                ({"sub": "2", "preferred_username": "ADA"}, "taken"),
                ({"sub": "2", "preferred_username": "ben"}, "unknown"),
                ({"sub": "2"}, "unknown"),
            ):
                w.issuer.person = person
                assert await other.log_in() == f"/?login={reason}", person
                assert await other.person() == ""


async def test_no_one_becomes_an_admin_by_a_name_that_they_can_choose(tmp_path: Path):
    async with world(tmp_path / "a", "") as w:
        await w.add("ada", "admin")
        assert await w.browser.log_in() == "/?login=unknown"
        assert await w.browser.person() == ""
    async with world(tmp_path / "b", 'name_claim = "email"') as w:
        await w.add("ada@example.org", "admin")
        w.issuer.person = {"sub": "2", "email": "ada@example.org", "email_verified": True}
        assert await w.browser.log_in() == "/#/"
        assert await w.browser.person() == "ada@example.org admin"


async def test_no_one_becomes_the_servers_own_admin_or_comes_by_an_unverified_address(tmp_path: Path):
    async with world(tmp_path / "a") as w:
        w.issuer.person = {"sub": "2", "preferred_username": "admin"}
        assert await w.browser.log_in() == "/?login=taken"
        for name in (None, True, 7, ["ada"], "", "a b", "../ada", "\u212aim", "x" * 65):  # one with a Kelvin sign
            w.issuer.person = {"sub": "2", "preferred_username": name}
            assert await w.browser.log_in() == "/?login=unknown", name
        assert w.proxy.runtime.team
        assert await w.proxy.runtime.team.people.list() == []
    async with world(tmp_path / "b", 'new_people = "member"\nname_claim = "email"') as w:
        w.issuer.person = {"sub": "2", "email": "Ada@example.org"}
        assert await w.browser.log_in() == "/?login=unknown"
        w.issuer.person = {"sub": "2", "email": "Ada@example.org", "email_verified": True}
        assert await w.browser.log_in() == "/#/"
        assert await w.browser.person() == "ada@example.org member"


async def test_while_the_issuer_is_away_the_login_says_so_and_tokens_and_sessions_work(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    async with AsyncExitStack() as alive:
        away = await alive.enter_async_context(world(tmp_path))
        ada = await away.add("ada")
        away.issuer.discovery = {"issuer": "https://evil.example.org"}
        assert await away.browser.start() == "/?login=invalid"
        away.issuer.discovery = {"token_endpoint": "http://evil.example.org/token"}  # where others could read the code
        assert await away.browser.start() == "/?login=invalid"
        away.issuer.discovery = {"more": "x" * 2**20}
        assert await away.browser.start() == "/?login=issuer_away"
        away.issuer.discovery = {"jwks_uri": f"{away.issuer.address}/nothing"}
        assert await away.browser.log_in() == "/?login=issuer_away"
    async with proxy(tmp_path, toml("http://127.0.0.1:9"), KIMI_PROXY_TOKEN=TOKEN) as p, Browser(PUBLIC, p.port) as b:
        assert await b.start() == "/?login=issuer_away"
        for token, person in ((ada, "ada"), (TOKEN, "admin")):
            answer = await p.http.get("/api/me", headers={"authorization": f"Bearer {token}"})
            assert answer.json()["person"] == person


async def test_a_new_key_of_the_issuers_is_asked_for_but_not_by_every_token(tmp_path: Path):
    clock = Clock()
    async with issuer() as here, httpx.AsyncClient(trust_env=False, verify=False) as browser:
        settings = OidcSettings(issuer=here.address, client_id=CLIENT, public_url=PUBLIC)
        client = oidc.Issuer(settings, SecretStr(SECRET), monotonic=clock)

        async def subject() -> object:
            url = await client.login_url(f"{PUBLIC}/back", "state", "nonce", "verifier")
            query = parse_qs(urlsplit((await browser.get(url)).headers["location"]).query)
            return (await client.claims(query["code"][0], "verifier", f"{PUBLIC}/back", "nonce"))["sub"]

        assert await subject() == "1"
        here.keys = ("two",)
        here.sign = lambda claims: jwt.encode({"alg": "RS256", "kid": "two"}, claims, key("two"))
        with pytest.raises(LoginFailed, match="signature"):
            await subject()
        assert here.asked == {"discovery": 1, "keys": 1}
        clock.at += 31
        assert await subject() == "1"
        assert here.asked == {"discovery": 1, "keys": 2}
        clock.at += 3601
        assert await subject() == "1"
        assert here.asked == {"discovery": 2, "keys": 3}


async def test_a_login_leads_to_no_other_site(tmp_path: Path):
    places = ["//evil.example.org", "https://evil.example.org", "/\\evil.example.org", "x\r\nset-cookie: a=b", "@evil"]
    async with world(tmp_path) as w:
        for place in places:
            answer = await w.browser.http.get("/api/login/start", params={"place": place}, headers=FETCH)
            ends = (await w.browser.log_in(place)) if answer.status_code == 303 else "/#/"
            assert ends.startswith("/#/"), place
            assert answer.status_code == (303 if place.startswith("//") else 400), place
        back = await w.browser.at_issuer()
        ends = (await w.browser.visit(f"{back}&place=//evil.example.org&next=//evil.example.org")).headers["location"]
        assert ends == "/#/"


async def test_pages_of_other_sites_can_do_nothing_with_a_login(tmp_path: Path):
    async with world(tmp_path) as w:
        await w.browser.log_in()
        name, value = next((one.name, one.value) for one in w.browser.http.cookies.jar if one.value)
        cookie = {"cookie": f"{name}={value}", "host": "kimi.example.org"}
        elsewhere: list[tuple[dict[str, str], str]] = [
            ({"origin": "https://evil.example.org"}, "origin"),
            ({"origin": "null"}, "origin"),
            ({"origin": "https://kimi.example.org.evil.example"}, "origin"),
            ({"sec-fetch-site": "cross-site"}, "cross_site"),
            ({"sec-fetch-site": "same-site"}, "cross_site"),
            ({"host": "evil.example.org"}, "host"),
        ]
        for headers, code in elsewhere:
            for method, path in (("GET", "/api/me"), ("DELETE", "/api/sessions"), ("POST", "/api/logout")):
                answer = await w.proxy.http.request(method, path, headers={**cookie, **headers})
                assert answer.json()["error"]["code"] == code
        form = await w.proxy.http.post("/api/memory/save", data={"content": "x"}, headers={**cookie})
        assert form.json()["error"]["code"] == "content_type"
        start = await w.proxy.http.get("/api/login/start", headers={**cookie, "sec-fetch-site": "cross-site"})
        assert start.json()["error"]["code"] == "cross_site"

        address, header = f"ws://127.0.0.1:{w.proxy.port}/ws", {"cookie": f"{name}={value}"}
        async with connect(address, proxy=None, additional_headers=header, subprotocols=["kimi-proxy"]) as socket:  # type: ignore[list-item]
            assert json.loads(await socket.recv())["type"] == "init"
        with pytest.raises(InvalidStatus):
            await connect(address, proxy=None, additional_headers=header, origin="https://evil.example.org")  # type: ignore[arg-type]
        assert await w.browser.person() == "ada member"


async def test_an_open_websocket_is_cut_when_its_login_ends(tmp_path: Path):
    async with world(tmp_path) as w:
        await w.browser.log_in()
        name, value = next((one.name, one.value) for one in w.browser.http.cookies.jar if one.value)
        address, header = f"ws://127.0.0.1:{w.proxy.port}/ws", {"cookie": f"{name}={value}"}
        async with asyncio.timeout(60), connect(address, proxy=None, additional_headers=header) as socket:
            assert json.loads(await socket.recv())["type"] == "init"
            assert (await w.browser.fetch("/api/logout", "POST")).json() == {"ended": True}
            await socket.wait_closed()
            assert (socket.close_code, socket.close_reason) == (1008, "log in again")


async def test_nothing_secret_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    async with world(tmp_path) as w:
        await w.browser.log_in()
        w.issuer.sign = _by_another_key
        await w.browser.log_in()
        cookies = [one.value or "" for one in w.browser.http.cookies.jar if one.value]
        ours = [one for one in caplog.records if one.name.startswith("kimi_proxy")]
    written = "\n".join(str(vars(record)) for record in ours)
    assert "a login failed" in written
    for secret in (*w.issuer.codes, *w.issuer.tokens, *cookies, SECRET):
        assert secret not in written


async def test_too_many_logins_that_begin_at_once_are_refused(tmp_path: Path):
    async with world(tmp_path) as w:
        ends = [await w.browser.start() for _ in range(MAX_BEGUN_EACH + 1)]
        assert ends[-1] == "/?login=busy"
        assert ends[-2].startswith(w.issuer.address)


async def test_many_logins_from_one_address_keep_no_one_from_another_address_out(tmp_path: Path):
    async with world(tmp_path) as w:
        logins = w.proxy.runtime.team.logins if w.proxy.runtime.team else None
        assert logins
        for _ in range(MAX_BEGUN_EACH):
            await logins.begin("", "203.0.113.9")
        with pytest.raises(LoginFailed):
            await logins.begin("", "203.0.113.9")
        assert (await logins.begin("", "198.51.100.7")).url.startswith(w.issuer.address)


@pytest.mark.parametrize(("settings", "is_told_apart"), [("", False), ('trusted_proxies = ["127.0.0.0/8"]', True)])
async def test_behind_a_trusted_proxy_logins_have_the_addresses_of_their_browsers(
    tmp_path: Path, settings: str, is_told_apart: bool
):
    async with world(tmp_path, more=f"[access]\n{settings}\n") as w:
        for _ in range(MAX_BEGUN_EACH):
            w.browser.http.headers["x-forwarded-for"] = "203.0.113.9"
            await w.browser.start()
        again = await w.browser.start()
        w.browser.http.headers["x-forwarded-for"] = "198.51.100.7"
        other = await w.browser.start()

    assert again == "/?login=busy"
    assert other.startswith(w.issuer.address) is is_told_apart


async def test_every_step_may_reach_another_server(tmp_path: Path):
    with postgres_server.serving() as server:
        url = postgres_server.url_of(server, tmp_path)
        environment = {
            "KIMI_PROXY_TOKEN": TOKEN,
            "KIMI_PROXY_OIDC_CLIENT_SECRET": SECRET,
            "KIMI_PROXY_DATABASE_URL": url,
        }
        async with issuer() as here:
            settings = toml(here.address, 'new_people = "member"')
            here.discovery = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
            async with (
                proxy(tmp_path / "1", settings, **environment) as one,
                proxy(tmp_path / "2", settings, **environment) as two,
                Browser(PUBLIC, one.port, two.port) as browser,
            ):
                back = await browser.at_issuer()  # begun at the first, and made at the second
                assert (await browser.visit(back)).headers["location"] == "/#/"
                assert [await browser.person() for _ in range(2)] == ["ada member"] * 2
                assert (await browser.visit(back)).headers["location"] == "/?login=expired"
                id = next(one.value or "" for one in browser.http.cookies.jar if one.value)
                await browser.fetch("/api/logout", "POST")
                hashed, now = sha256(id.encode()).digest(), time.time()
                assert await team_tables(one.runtime.store).person_logged_in(hashed, now) is None
                assert await browser.person() == ""


async def test_without_an_issuer_there_is_no_login(tmp_path: Path):
    async with proxy(tmp_path, "[team]\nenabled = true\n", KIMI_PROXY_TOKEN=TOKEN) as p:
        assert (await p.http.get("/api/login")).json() == {"oidc": False}
        assert (await p.http.get("/api/login/start")).headers["location"] == "/?login=off"
        assert (await p.http.get("/api/login/callback?code=a&state=b")).headers["location"] == "/?login=off"
        cookie = {"cookie": "kimi-proxy-session=x"}
        assert (await p.http.get("/api/me", headers=cookie)).status_code == 401


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (toml("http://login.example.org"), "team.oidc.issuer"),
        (toml("https://login.example.org", public="https://a.example.org/path"), "team.oidc.public_url"),
        (toml("https://login.example.org").replace(f'client_id = "{CLIENT}"', ""), "team.oidc"),
        (toml("https://login.example.org").replace("true", "false"), "enabled = true"),
        (toml("https://login.example.org", 'client_secret = "x"'), "KIMI_PROXY_OIDC_CLIENT_SECRET"),
        (toml("https://login.example.org", 'scopes = ["email"]'), "openid"),
        (toml("https://login.example.org", 'admin_claim = "groups"'), "admin_values"),
    ],
)
def test_settings_that_would_be_unsafe_or_useless_are_refused(settings: str, problem: str, tmp_path: Path):
    with pytest.raises(ConfigError, match=problem):
        parse(settings, {}, tmp_path)


async def test_the_cookie_of_a_login_does_not_open_the_pruner(tmp_path: Path):
    from kimi_proxy.assembly.apps import pruner_app

    async with world(tmp_path, public="http://localhost:8006") as w:
        await w.browser.log_in()
        cookies = {one.name: one.value or "" for one in w.browser.http.cookies.jar}
        transport = httpx.ASGITransport(pruner_app(w.proxy.runtime))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8006", cookies=cookies) as c:
            call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
            assert (await c.post("/rpc", json=call, headers=FETCH)).status_code == 401


async def test_without_the_package_for_it_a_server_with_a_login_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "joserfc", None)  # as if it were not installed
    with pytest.raises(ConfigError, match=r"joserfc.*kimi-proxy\[team\]"):
        async with running(parse(toml("https://login.example.org"), {}, tmp_path)):
            pass
