"""A real S3 server, moto's, with one bucket in memory."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import botocore.session
import pytest
from botocore.config import Config
from tests.support.replicas.fleet import free_port, wait_for

from kimi_proxy.proxy.s3 import Bucket
from kimi_proxy.services.store.postgres.objects import ObjectSettings

BUCKET = "originals"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "eu-west-3"}


class S3Server:
    """What the bucket holds, as another client sees it."""

    def __init__(self, url: str) -> None:
        self.url = url
        session = botocore.session.Session()
        settings = Config(s3={"addressing_style": "path"}, retries={"max_attempts": 1})
        self._client = session.create_client("s3", region_name="eu-west-3", endpoint_url=url, config=settings)
        self._client.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "eu-west-3"})

    def settings(self, prefix: str, min_bytes: int = 1, timeout_s: float = 30.0) -> ObjectSettings:
        place = f"s3://{BUCKET}/{prefix}"
        return ObjectSettings(Bucket(place, self.url, timeout_s), place, min_bytes)

    def objects(self, prefix: str) -> dict[str, bytes]:
        """Return what there is below a prefix."""
        listed = self._client.list_objects_v2(Bucket=BUCKET, Prefix=f"{prefix}/").get("Contents", [])
        return {one["Key"]: self._client.get_object(Bucket=BUCKET, Key=one["Key"])["Body"].read() for one in listed}

    def put(self, key: str, body: bytes) -> None:
        self._client.put_object(Bucket=BUCKET, Key=key, Body=body)

    def delete(self, key: str) -> None:
        self._client.delete_object(Bucket=BUCKET, Key=key)


@contextmanager
def s3_server() -> Iterator[S3Server]:
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with pytest.MonkeyPatch.context() as environment, subprocess.Popen(command, **quiet) as process:
        for name, value in CREDENTIALS.items():
            environment.setenv(name, value)
        try:
            wait_for(f"http://127.0.0.1:{port}/moto-api/")
            yield S3Server(f"http://127.0.0.1:{port}")
        finally:
            process.kill()
