"""Objects that tests put into buckets with clients that are not ours."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import boto3
from botocore.config import Config
from obstore.store import S3Store

from tests.support.stack import S3ForTests


def amazons_client(s3: S3ForTests) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=s3.endpoint,
        region_name=s3.region,
        aws_access_key_id=s3.access_key,
        aws_secret_access_key=s3.secret_key,
        config=Config(s3={"addressing_style": "path"}),
    )


def put(s3: S3ForTests, bucket: str, contents: Mapping[str, bytes]) -> None:
    client = amazons_client(s3)
    for key, content in contents.items():
        client.put_object(Bucket=bucket, Key=key, Body=content)


def put_many(s3: S3ForTests, bucket: str, contents: Mapping[str, bytes]) -> None:
    """Faster, for keys that are paths."""
    store = S3Store(
        bucket,
        endpoint=s3.endpoint,
        region=s3.region,
        access_key_id=s3.access_key,
        secret_access_key=s3.secret_key,
        client_options={"allow_http": True},
    )
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda entry: store.put(*entry), contents.items()))
