"""Signs requests to Bedrock and S3 with the user's own AWS credentials, where botocore finds them."""

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
# Of each service: the signer in `botocore.auth`, and the advice for a server without credentials.
_SERVICES = {
    SERVICE: ("SigV4Auth", _ADVICE),
    "s3": ("S3SigV4Auth", "or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
}


class _Credentials(Protocol):
    def get_frozen_credentials(self) -> object: ...


class _Session(Protocol):
    """The part of `botocore.session.Session` that we use."""

    def get_credentials(self) -> _Credentials | None: ...
    def get_config_variable(self, name: str) -> str | None: ...


class AwsSigner:
    """Finds the credentials once; botocore renews those that expire."""

    def __init__(self, service: str = SERVICE, region: str = "") -> None:
        """`region` is used where the address of a request names none."""
        self._service = service
        self._region = region
        self._algorithm, self._advice = _SERVICES[service]
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
            extra = f"pip install 'kimi-proxy[{self._service}]'"
            raise NoProvider(f"signing for {self._service} needs botocore: {extra}, {self._advice}") from e
        try:
            self._session = session = self._session or session_module.Session()
            credentials = session.get_credentials()
            region = (
                _region(url) or self._region or os.environ.get("AWS_REGION") or session.get_config_variable("region")
            )
            if credentials is None:
                raise NoProvider(f"no AWS credentials found: run `aws configure sso`, {self._advice}")
            if not region:
                raise NoProvider("the address contains no AWS region: set AWS_REGION in kimi-proxy's environment")
            request = requests.AWSRequest(method=method, url=url, data=body)
            signer = getattr(auth, self._algorithm)
            signer(credentials.get_frozen_credentials(), self._service, region).add_auth(request)
        except failures as e:
            raise NoProvider(
                f"the AWS credentials do not work ({type(e).__name__}): log in again, {self._advice}"
            ) from e
        return [(str(name).lower(), str(value)) for name, value in request.headers.items()]


def _region(url: str) -> str:
    found = _REGION.search(urlsplit(url).hostname or "")
    return found[1] if found else ""
