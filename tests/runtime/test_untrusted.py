"""What the runtime stands from those it serves: archives, payloads, names and errors of agents."""

from __future__ import annotations

import io
import json
import os
import random
import zipfile
from pathlib import Path

import pytest

from agentcore_rl_toolkit.errors import ConfigError
from agentcore_rl_toolkit.runtime import egress, proxy, wire
from agentcore_rl_toolkit.runtime.agent import unpack_zip

from .conftest import Aws

ROLE = "arn:aws:iam::000000000000:role/local"


def archive(method: int = zipfile.ZIP_STORED, **members: str) -> bytearray:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", method) as packed:
        for name, text in ({"rl_app.py": "app = 1\n" * 100} | members).items():
            packed.writestr(name, text)
    return bytearray(raw.getvalue())


def with_field(raw: bytearray, local: int, central: int, value: int) -> bytes:
    """The same field of the first member, in its own head and in the directory's."""
    raw[local] = raw[raw.index(b"PK\x01\x02") + central] = value
    return bytes(raw)


def changed(method: int, seed: int) -> bytes:
    raw, chance = archive(method), random.Random(seed)
    for _ in range(8):
        raw[chance.randrange(39, raw.index(b"PK\x01\x02"))] ^= 1 << chance.randrange(8)
    return bytes(raw)


ARCHIVES = [
    pytest.param(with_field(archive(), 6, 8, 1), id="encrypted"),
    pytest.param(with_field(archive(), 8, 10, 99), id="packed in an unknown way"),
    *(
        pytest.param(changed(method, seed), id=f"damaged {method} {seed}")
        for method in (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
        for seed in range(4)
    ),
]


@pytest.mark.parametrize("raw", ARCHIVES)
def test_an_archive_that_cannot_be_unpacked_is_refused_and_leaves_nothing(
    tmp_path: Path, raw: bytes
) -> None:
    path = tmp_path / "code.zip"
    path.write_bytes(raw)
    with pytest.raises((ConfigError, OSError)):
        unpack_zip(os.open(path, os.O_RDONLY), len(raw), tmp_path / "copy", "rl_app.py")
    assert not list(tmp_path.glob("copy*"))


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("encrypted", with_field(archive(), 6, 8, 1)),
        ("name_too_long", bytes(archive(**{"a" * 300: ""}))),
        ("file_and_folder", bytes(archive(**{"a": "", "a/b": ""}))),
    ],
)
def test_such_an_archive_is_a_validation_error_of_the_control_plane(
    aws: Aws, name: str, raw: bytes
) -> None:
    aws.s3.put_object(Bucket="rollouts", Key=f"{name}.zip", Body=raw)
    code = {"s3": {"bucket": "rollouts", "prefix": f"{name}.zip"}}
    artifact = {"code": code, "runtime": "PYTHON_3_11", "entryPoint": ["rl_app.py"]}
    with pytest.raises(aws.control.exceptions.ValidationException):
        aws.control.create_agent_runtime(
            agentRuntimeName=name,
            agentRuntimeArtifact={"codeConfiguration": artifact},
            roleArn=ROLE,
        )
    aws.s3.delete_object(Bucket="rollouts", Key=f"{name}.zip")


@pytest.mark.parametrize(
    "target",
    ["CONNECT a\x9b2Jb:443", "GET http://a\x852b/", "CONNECT a\x1b]0;x\x07:1", "CONNECT \xad:443"],
)
def test_a_name_that_would_steer_the_terminal_of_the_log_is_refused(target: str) -> None:
    with pytest.raises(proxy.Refused) as refused:
        proxy._understand(f"{target} HTTP/1.1\r\n\r\n".encode("latin-1"))
    assert refused.value.status.startswith("400")


@pytest.mark.parametrize(
    "body", [b'{"_rollout":' + b"[" * 100_000, b'{"_rollout":' + b'{"a":' * 99_999]
)
def test_a_payload_that_is_nested_without_end_permits_nothing(body: bytes) -> None:
    assert egress._read(body) is None


def test_a_payload_that_is_nested_without_end_reaches_the_agent(
    aws: Aws, asgi_arn: str, sid: str
) -> None:
    """It is the agent's to refuse, and the runtime serves on."""
    with pytest.raises(aws.data.exceptions.RuntimeClientError, match="Agent said"):
        aws.invoke(asgi_arn, b'{"_rollout":' + b"[" * 100_000, sid)
    assert sid in aws.sessions()
    aws.stop(asgi_arn, sid)


def test_half_of_a_surrogate_pair_in_an_agents_error_is_told() -> None:
    answer = wire.json_response({"message": "cut \ud83d"})
    assert isinstance(answer.body, bytes)
    assert json.loads(answer.body) == {"message": "cut \ud83d"}
