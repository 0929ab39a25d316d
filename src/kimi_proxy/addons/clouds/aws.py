"""Signs requests to Bedrock with the user's own AWS credentials, where botocore finds them."""

import asyncio
import os
import re
from importlib import import_module
from typing import Protocol
from urllib.parse import urlsplit

from kimi_proxy.core.errors import NoProvider

SERVICE = "bedrock"

_REGION = re.compile(r"(?:^|\.)bedrock-runtime(?:-fips)?\.([a-z0-9-]+)\.", re.ASCII)
_ADVICE = (
    'or let a Bedrock API key pay: api_key = "${AWS_BEARER_TOKEN_BEDROCK}" in the settings of the provider, or '
    "AWS_BEARER_TOKEN_BEDROCK for the client"
)


class _Credentials(Protocol):
    def get_frozen_credentials(self) -> object: ...


class _Session(Protocol):
    """The part of `botocore.session.Session` that we use."""

    def get_credentials(self) -> _Credentials | None: ...
    def get_config_variable(self, name: str) -> str | None: ...


class AwsSigner:
    """Finds the credentials once; botocore renews those that expire."""

    def __init__(self) -> None:
        self._session: _Session | None = None

    async def sign(self, method: str, url: str, body: bytes) -> list[tuple[str, str]]:
        """Return the headers of the signature. Raise NoProvider if botocore, or credentials, are missing.

        In a thread: credentials may have to be fetched.
        """
        return await asyncio.to_thread(self._sign, method, url, body)

    def _sign(self, method: str, url: str, body: bytes) -> list[tuple[str, str]]:
        try:
            session_module, auth, requests = map(
                import_module, ("botocore.session", "botocore.auth", "botocore.awsrequest")
            )
            failures = import_module("botocore.exceptions").BotoCoreError
        except ImportError as e:
            extra = "pip install 'kimi-proxy[bedrock]'"
            raise NoProvider(f"signing for {SERVICE} needs botocore: {extra}, {_ADVICE}") from e
        try:
            self._session = session = self._session or session_module.Session()
            credentials = session.get_credentials()
            region = _region(url) or os.environ.get("AWS_REGION") or session.get_config_variable("region")
            if credentials is None:
                raise NoProvider(f"no AWS credentials found: run `aws configure sso`, {_ADVICE}")
            if not region:
                raise NoProvider("the address contains no AWS region: set AWS_REGION in kimi-proxy's environment")
            request = requests.AWSRequest(method=method, url=url, data=body)
            auth.SigV4Auth(credentials.get_frozen_credentials(), SERVICE, region).add_auth(request)
        except failures as e:
            raise NoProvider(f"the AWS credentials do not work ({type(e).__name__}): log in again, {_ADVICE}") from e
        return [(str(name).lower(), str(value)) for name, value in request.headers.items()]


def _region(url: str) -> str:
    found = _REGION.search(urlsplit(url).hostname or "")
    return found[1] if found else ""
