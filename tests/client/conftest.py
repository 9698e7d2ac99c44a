from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import boto3
import pytest

from agentcore_rl_toolkit import local
from agentcore_rl_toolkit.client import RolloutClient, watch

from .fake_aws import ARN, BUCKET, FakeAws

ECHO_AGENT = Path(__file__).parent.parent / "agents" / "echo_agent"


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeAws]:
    server = FakeAws().start()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server.url)
    monkeypatch.setattr(watch, "TICK_S", 0.1)
    yield server
    server.close()


@pytest.fixture
def make_client(aws: FakeAws) -> Iterator[Callable[..., RolloutClient]]:
    """Clients of the scripted server, closed at the end."""
    with contextlib.ExitStack() as stack:

        def make(**changes: Any) -> RolloutClient:
            settings = {
                "agent_runtime_arn": ARN,
                "s3_bucket": BUCKET,
                "exp_id": "exp",
                "tps_limit": 1000,
                "endpoint_url": aws.url,
            }
            return stack.enter_context(RolloutClient(**{**settings, **changes}))

        yield make


@pytest.fixture
def client(make_client: Callable[..., RolloutClient]) -> RolloutClient:
    return make_client()


class Local(NamedTuple):
    url: str
    arn: str


@pytest.fixture(scope="session")
def local_runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Local]:
    """A real local runtime in its own process, with the echo agent deployed."""
    home = tmp_path_factory.mktemp("runtime")
    with start_runtime(home) as url:
        yield Local(url, deploy_echo(url))


@contextlib.contextmanager
def start_runtime(home: Path, port: int = 0) -> Iterator[str]:
    command = [sys.executable, "-m", "agentcore_rl_toolkit.runtime", "--port", str(port)]
    process = subprocess.Popen(
        [*command, "--home", str(home)], stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().split()[-1]
    finally:
        process.terminate()
        process.wait(20)
        process.stdout.close()


def deploy_echo(url: str) -> str:
    control = boto3.client(
        "bedrock-agentcore-control",
        region_name=local.REGION,
        endpoint_url=url,
        **local.CREDENTIALS,
    )
    made = control.create_agent_runtime(
        agentRuntimeName="echo",
        agentRuntimeArtifact={
            "containerConfiguration": {"containerUri": f"file://{ECHO_AGENT}#rl_app.py"}
        },
        roleArn="arn:aws:iam::000000000000:role/any",
        networkConfiguration={"networkMode": "PUBLIC"},
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        status = control.get_agent_runtime(agentRuntimeId=made["agentRuntimeId"])["status"]
        if status != "CREATING":
            break
        time.sleep(0.05)
    control.close()
    assert status == "READY"
    return str(made["agentRuntimeArn"])
