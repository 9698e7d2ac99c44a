"""A listing is read for its keys alone, and only by the watcher."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from agentcore_rl_toolkit.client.store import Store, spare_listings

KEYS = ["e/a/1.json", "e/a/<Size>9</Size>.json", "e/ü/&.json"]


@pytest.fixture
def s3() -> Iterator[Any]:
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    client = boto3.client(
        "s3",
        endpoint_url=f"http://{host}:{port}",
        region_name="us-east-1",
        aws_access_key_id="local",
        aws_secret_access_key="local",
    )
    client.create_bucket(Bucket="listed-here")
    for key in KEYS:
        client.put_object(Bucket="listed-here", Key=key, Body=b"{}")
    yield client
    client.close()
    server.stop()


def test_the_dates_and_sizes_of_a_listing_are_not_read_by_the_watcher(s3: Any) -> None:
    spare_listings(s3)
    seen: list[bytes] = []
    s3.meta.events.register_last(
        "before-parse.s3.ListObjectsV2",
        lambda response_dict, **_: seen.append(response_dict["body"]),
    )
    assert list(Store(lambda: s3).keys("listed-here", "e/", "")) == [sorted(KEYS)]
    assert b"<Key>" in seen[0]
    assert not any(word in seen[0] for word in (b"<LastModified>", b"<Size>", b"<ETag>"))


def test_another_user_of_the_same_client_gets_the_whole_listing(s3: Any) -> None:
    spare_listings(s3)
    list(Store(lambda: s3).keys("listed-here", "e/", ""))
    found = s3.list_objects_v2(Bucket="listed-here")["Contents"]
    assert [entry["Key"] for entry in found] == sorted(KEYS)
    assert all(entry["LastModified"] and entry["Size"] == 2 and entry["ETag"] for entry in found)
