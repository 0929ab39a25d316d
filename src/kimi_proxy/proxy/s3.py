"""A bucket of an S3 server: objects are written, read and deleted by name, each within a time."""

import asyncio
import os
from urllib.parse import urlsplit

import aiohttp

from kimi_proxy.core.errors import ConfigError, NoProvider, UpstreamError, UpstreamUnreachable
from kimi_proxy.proxy.aws import AwsSigner
from kimi_proxy.proxy.http import FAILURES, MAX_LOCAL_ANSWER_BYTES, client, open_response, read

DEFAULT_REGION = "us-east-1"  # of servers that have no regions


class Bucket:
    """Signed by the credentials that botocore finds in the environment."""

    def __init__(self, place: str, endpoint: str, timeout_s: float) -> None:
        """`place` is `s3://BUCKET/PREFIX`; without an `endpoint` it is a bucket of AWS."""
        parts = urlsplit(place)
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or DEFAULT_REGION
        host = endpoint.rstrip("/") or f"https://s3.{region}.amazonaws.com"
        self._address = "/".join(filter(None, (host, parts.netloc, parts.path.strip("/"))))
        self._timeout_s = timeout_s
        self._signer = AwsSigner("s3", region)
        self._client: aiohttp.ClientSession | None = None

    async def find_credentials(self) -> None:
        """Raise ConfigError if requests cannot be signed; no request is sent."""
        try:
            await self._signer.sign("GET", self._address, b"")
        except NoProvider as e:
            raise ConfigError(f"store.object_storage: {e}") from e

    async def put(self, name: str, body: bytes) -> None:
        """Return once the object is written for good. Raise UpstreamError if it is not."""
        await self._ask("PUT", name, body)

    async def get(self, name: str) -> bytes | None:
        """Return an object, None if there is no such name. Raise UpstreamError if it cannot be read."""
        return await self._ask("GET", name)

    async def delete(self, name: str) -> None:
        """Delete an object, if there is one. Raise UpstreamError if that is not sure."""
        await self._ask("DELETE", name)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()

    async def _ask(self, method: str, name: str, body: bytes = b"") -> bytes | None:
        """Return the body of a successful answer, None for 404."""
        url = f"{self._address}/{name}"
        self._client = self._client or client()
        try:
            async with asyncio.timeout(self._timeout_s):
                headers = dict(await self._signer.sign(method, url, body))
                async with open_response(self._client, method, url, body or None, headers) as response:
                    answer = await read(response, MAX_LOCAL_ANSWER_BYTES)
        except NoProvider as e:
            raise UpstreamError(f"object storage: {e}") from e
        except FAILURES as e:
            raise UpstreamUnreachable(f"object storage at {self._address} does not answer: {type(e).__name__}") from e
        if response.status == 404 and method != "PUT":
            return None
        if response.status not in (200, 204) or answer is None:
            raise UpstreamError(f"object storage at {self._address} answered {method} with {response.status}")
        return answer
