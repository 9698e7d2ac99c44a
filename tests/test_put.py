"""The put without the SDK: signed as botocore signs, and only where it is known to be right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from agentcore_rl_toolkit import local, put
from agentcore_rl_toolkit.runtime.thread import RuntimeThread

HERE = {
    "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9",
    "AWS_ACCESS_KEY_ID": "me",
    "AWS_SECRET_ACCESS_KEY": "secret",
}
KEYS = ["exp/in/plain.json", "exp/a b+c~d/é=&?#.json", "exp/100%/x.json"]


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RuntimeThread]:
    """Checks every signature."""
    home = tmp_path_factory.mktemp("keyed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ART_HOME", str(home))
        with RuntimeThread(home=home, access_keys=Path(home) / "keys") as runtime:
            yield runtime


def place_of(runtime: RuntimeThread) -> put.Place:
    keys = local.credentials(runtime.url)
    found = put.find(
        {
            "AWS_ENDPOINT_URL": runtime.url,
            "AWS_ACCESS_KEY_ID": keys["aws_access_key_id"],
            "AWS_SECRET_ACCESS_KEY": keys["aws_secret_access_key"],
        }
    )
    assert found is not None
    return found


@pytest.mark.parametrize("key", KEYS)
def test_a_store_that_checks_signatures_takes_it(keyed: RuntimeThread, key: str) -> None:
    put.put(place_of(keyed), "rollouts", key, b'{"rewards": 1.0}')
    client = boto3.client(
        "s3",
        endpoint_url=keyed.url,
        region_name="us-east-1",
        **local.credentials(keyed.url),
    )
    try:
        found = client.get_object(Bucket="rollouts", Key=key, ChecksumMode="ENABLED")
        with found["Body"] as body:
            assert body.read() == b'{"rewards": 1.0}'
        assert found["ContentType"] == "application/json"
        assert found["ChecksumCRC32"]
    finally:
        client.close()


@pytest.mark.parametrize(
    ("bucket", "changes", "code"),
    [
        ("rollouts", {"secret": "wrong"}, "SignatureDoesNotMatch"),
        ("rollouts", {"key_id": "nobody"}, "InvalidAccessKeyId"),
        ("no-such-bucket", {}, "NoSuchBucket"),
    ],
)
def test_a_refusal_has_the_code_of_the_store(
    keyed: RuntimeThread, bucket: str, changes: dict[str, Any], code: str
) -> None:
    with pytest.raises(put.Refused) as refused:
        put.put(place_of(keyed)._replace(**changes), bucket, "k", b"{}")
    assert refused.value.code == code


@pytest.mark.parametrize("token", ["", "a-session-token"])
def test_it_is_signed_as_botocore_signs(token: str) -> None:
    place = put.Place("127.0.0.1", 9, "me", "secret", token, "eu-west-1")
    path = put.path_of("rollouts", KEYS[1])
    headers = put.signed_headers(place, path, b'{"rewards": 1.0}')
    theirs = AWSRequest("PUT", f"http://127.0.0.1:9{path}", headers, b'{"rewards": 1.0}')
    ours = theirs.headers["authorization"]
    del theirs.headers["authorization"]
    theirs.context["timestamp"] = headers["x-amz-date"]
    auth = S3SigV4Auth(Credentials("me", "secret", token or None), "s3", "eu-west-1")
    canonical = auth.canonical_request(theirs)
    signature = auth.signature(auth.string_to_sign(theirs, canonical), theirs)
    assert ours.endswith(f"Signature={signature}")
    assert f"SignedHeaders={auth.signed_headers(auth.headers_to_sign(theirs))}," in ours


def test_the_environment_of_a_session_names_its_store() -> None:
    assert put.find(HERE) == put.Place("127.0.0.1", 9, "me", "secret", "", "us-east-1")


@pytest.mark.parametrize(
    "changes",
    [
        {"AWS_ENDPOINT_URL_S3": ""},
        {"AWS_ENDPOINT_URL_S3": "https://127.0.0.1:9"},
        {"AWS_ENDPOINT_URL_S3": "http://store.example:9"},
        {"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9/below"},
        {"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:port"},
        {"AWS_ENDPOINT_URL_S3": "http://[::1:9"},
        {"AWS_ACCESS_KEY_ID": ""},
        {"AWS_SECRET_ACCESS_KEY": ""},
    ],
    ids=[
        "none",
        "https",
        "another host",
        "a path",
        "no port",
        "half an address",
        "no key",
        "no secret",
    ],
)
def test_anything_else_is_left_to_the_sdk(changes: dict[str, str]) -> None:
    assert put.find({**HERE, **changes}) is None
