"""A runtime that others can reach: who gets in, what they are told, who else can read its state."""

from __future__ import annotations

import json
import os
import socket
import stat
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from agentcore_rl_toolkit import RolloutClient, local
from agentcore_rl_toolkit.errors import ConfigError
from agentcore_rl_toolkit.runtime import key
from agentcore_rl_toolkit.runtime.thread import RuntimeThread

from .conftest import AGENTS, ASGI_AGENT, PROCESS, Aws


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("open") / "home"


@pytest.fixture(scope="module")
def opened(home: Path) -> Iterator[RuntimeThread]:
    """Listens on every address of the machine; its keys are made at the first start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ART_HOME", str(home))
        with RuntimeThread(host="0.0.0.0", home=home) as runtime:
            yield runtime


@pytest.fixture(scope="module")
def keyed(opened: RuntimeThread) -> Iterator[Aws]:
    keys = local.credentials(opened.url)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "CREDENTIALS", keys)
        clients = Aws(opened.url)
    yield clients
    clients.close()


def client(url: str, service: str, **keys: str) -> Any:
    options = Config(retries={"total_max_attempts": 1})
    return boto3.client(service, endpoint_url=url, region_name="us-east-1", config=options, **keys)


def keys_with(opened: RuntimeThread, **changes: str) -> dict[str, str]:
    return {**local.credentials(opened.url), **changes}


@pytest.mark.parametrize(
    ("changes", "s3_code", "agentcore_code"),
    [
        pytest.param(
            {"aws_secret_access_key": "guess"},
            "SignatureDoesNotMatch",
            "InvalidSignatureException",
            id="a wrong secret",
        ),
        pytest.param(
            {"aws_access_key_id": "nobody"},
            "InvalidAccessKeyId",
            "UnrecognizedClientException",
            id="an unknown key",
        ),
        pytest.param(
            {"aws_session_token": "token"},
            "InvalidToken",
            "UnrecognizedClientException",
            id="a session token",
        ),
    ],
)
def test_boto3_is_told_what_is_wrong_with_its_keys(
    opened: RuntimeThread, changes: dict[str, str], s3_code: str, agentcore_code: str
) -> None:
    keys = keys_with(opened, **changes)
    s3, control = (client(opened.url, s, **keys) for s in ("s3", "bedrock-agentcore-control"))
    with pytest.raises(ClientError) as refused:
        s3.list_objects_v2(Bucket="rollouts")
    assert refused.value.response["Error"]["Code"] == s3_code
    with pytest.raises(ClientError) as refused:
        control.list_agent_runtimes()
    assert refused.value.response["Error"]["Code"] == agentcore_code
    with pytest.raises(ClientError) as refused:
        s3.head_object(Bucket="rollouts", Key="x")
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] in (400, 403)
    for one in (s3, control):
        one.close()


def test_the_default_credentials_of_a_loopback_runtime_do_not_open_it(
    opened: RuntimeThread,
) -> None:
    s3 = client(opened.url, "s3", aws_access_key_id="local", aws_secret_access_key="local")
    with pytest.raises(ClientError, match="InvalidAccessKeyId"):
        s3.list_buckets()
    s3.close()


@pytest.mark.parametrize(
    "key_name", ["plain", "with space+plus", "é/ü", "a//b/../c", "%2F", "q?x=1&y#z", "~.-_"]
)
def test_s3_calls_with_odd_keys_are_signed_alike(keyed: Aws, key_name: str) -> None:
    body = os.urandom(100)
    keyed.s3.put_object(Bucket="rollouts", Key=key_name, Body=body, Metadata={"a": "x  y"})
    assert keyed.s3.get_object(Bucket="rollouts", Key=key_name)["Body"].read() == body
    found = keyed.s3.list_objects_v2(Bucket="rollouts", Prefix=key_name)
    assert [one["Key"] for one in found["Contents"]] == [key_name]
    keyed.s3.delete_object(Bucket="rollouts", Key=key_name)


def test_presigned_urls_open_one_object_for_their_time(opened: RuntimeThread, keyed: Aws) -> None:
    s3 = boto3.client(
        "s3",
        endpoint_url=opened.url,
        region_name="us-east-1",
        config=Config(signature_version="s3v4"),
        **local.credentials(opened.url),
    )
    keyed.s3.put_object(Bucket="rollouts", Key="gift", Body=b"content")
    url = s3.generate_presigned_url("get_object", {"Bucket": "rollouts", "Key": "gift"})
    with urllib.request.urlopen(url, timeout=60) as answer:
        assert answer.read() == b"content"
    for changed in (
        url.replace("gift", "other"),
        url.replace("X-Amz-Expires=3600", "X-Amz-Expires=9"),
    ):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(changed, timeout=60)
        with refused.value as error:
            assert error.code == 403
            assert b"SignatureDoesNotMatch" in error.read()
    s3.close()


def test_a_large_upload_in_parts_and_an_unsigned_payload(
    opened: RuntimeThread, keyed: Aws, tmp_path: Path
) -> None:
    big = tmp_path / "big"
    big.write_bytes(os.urandom(9 * 1024 * 1024))
    keyed.s3.upload_file(str(big), "rollouts", "big")
    assert keyed.s3.head_object(Bucket="rollouts", Key="big")["ContentLength"] == big.stat().st_size
    s3 = boto3.client(
        "s3",
        endpoint_url=opened.url,
        region_name="us-east-1",
        config=Config(s3={"payload_signing_enabled": False}, signature_version="s3v4"),
        **local.credentials(opened.url),
    )
    s3.put_object(Bucket="rollouts", Key="unsigned", Body=b"x" * 1000)
    s3.close()
    keyed.s3.delete_object(Bucket="rollouts", Key="big")


def test_a_large_invocation_is_checked_and_passed_on(keyed: Aws, sid: str) -> None:
    arn = keyed.deploy(ASGI_AGENT)
    assert keyed.ask(arn, b"z" * 3_000_000, sid)["length"] == 3_000_000
    keyed.stop(arn, sid)
    keyed.forget()


@pytest.mark.parametrize("variables", [{}, PROCESS], ids=["its best level", "level process"])
def test_a_rollout_of_a_session_that_knows_no_key_of_ours(
    opened: RuntimeThread, keyed: Aws, variables: dict[str, str]
) -> None:
    """The client finds the keys by itself, and its events are live."""
    arn = keyed.deploy(AGENTS / "echo_agent", environmentVariables=variables)
    with RolloutClient(agent_runtime_arn=arn, s3_bucket="rollouts", exp_id="open") as rollouts:
        future = rollouts.invoke({"prompt": "x"})
        assert future.result(timeout=30)["rewards"] == 1.0
        assert rollouts._watcher.live, "results are pushed, not polled for"
    keyed.forget()


def test_our_own_paths_are_signed_too(opened: RuntimeThread) -> None:
    for path in ("/_art/", "/_art/sessions", "/_art/metrics", "/_art/openapi.json"):
        url = opened.url + path
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(url, timeout=60)
        with refused.value as error:
            assert error.code == 403
        request = urllib.request.Request(url, headers=local.sign(url))
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert answer.status == 200


def test_browsers_are_refused_whatever_they_hold(opened: RuntimeThread) -> None:
    url = opened.url + "/_art/"
    request = urllib.request.Request(url, headers={**local.sign(url), "Origin": "http://evil"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=60)
    with refused.value as error:
        assert b"does not answer browsers" in error.read()


def test_the_address_of_the_machine_leads_to_it(opened: RuntimeThread) -> None:
    """Host is whatever name the caller knows it by: it is part of what is signed."""
    url = f"http://{socket.gethostbyname(socket.gethostname())}:{opened.server.port}"
    s3 = client(url, "s3", **local.credentials(opened.url))
    assert s3.list_buckets()["Buckets"]
    s3.close()


# --- keys and state ---------------------------------------------------------------------------


def test_keys_are_made_once_and_kept(opened: RuntimeThread, home: Path) -> None:
    path = home / "access-keys"
    assert path.stat().st_mode & 0o777 == 0o600
    assert key.load(path).secrets == key.load(path).secrets
    assert json.loads((home / "runtime.json").read_text())["access_keys"] == str(path)


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        pytest.param("", 0o600, "holds no access key", id="empty"),
        pytest.param("not an ini file", 0o600, "cannot be read", id="another format"),
        pytest.param("[a]\naws_access_key_id=x\n", 0o600, "holds no access key", id="half a key"),
        pytest.param(
            "[a]\naws_access_key_id=x\naws_secret_access_key=y\n", 0o644, "chmod 600", id="readable"
        ),
        pytest.param(
            f"[a]\naws_access_key_id={key.SESSION_KEY}\naws_secret_access_key=y\n",
            0o600,
            "which is taken",
            id="the name of the sessions' own",
        ),
    ],
)
def test_a_key_file_that_does_not_do_is_told(
    tmp_path: Path, text: str, mode: int, said: str
) -> None:
    path = tmp_path / "keys"
    path.write_text(text)
    path.chmod(mode)
    with pytest.raises(ConfigError, match=said):
        RuntimeThread(home=tmp_path / "home", access_keys=path).start()


def test_everything_of_the_runtime_is_private_to_its_user(tmp_path: Path, sid: str) -> None:
    old = os.umask(0)
    try:
        with RuntimeThread(host="0.0.0.0", home=tmp_path / "home", isolation="process") as runtime:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("ART_HOME", str(tmp_path / "home"))
                patch.setattr(local, "CREDENTIALS", local.credentials(runtime.url))
                aws = Aws(runtime.url)
            arn = aws.deploy(ASGI_AGENT)
            aws.ask(arn, {}, sid)
            aws.s3.put_object(Bucket="rollouts", Key="a", Body=b"x")
            private(tmp_path / "home")
            aws.stop(arn, sid)
            aws.close()
    finally:
        os.umask(old)


def private(home: Path) -> None:
    """The folder keeps others out; what tells most is private by itself as well."""
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    runtime = home / "runtime"
    for folder in (runtime, runtime / "objects", runtime / "logs", runtime / "agents"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700, folder
    files = [home / "runtime.json", home / "access-keys", *(runtime / "logs").iterdir()]
    files += [path for path in (runtime / "objects").rglob("*") if path.is_file()]
    assert len(files) > 4
    for file in files:
        assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0, file
