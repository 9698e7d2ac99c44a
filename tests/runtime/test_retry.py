"""Which answers boto3 sends again, in its two retry modes: the reason why each has its class."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3
import pytest
from bedrock_agentcore._utils.config import WaitConfig
from bedrock_agentcore.runtime import AgentCoreRuntimeClient

from agentcore_rl_toolkit import local

from .conftest import PROCESS, Aws, until

SLOW = """
import os, time
from agentcore_rl_toolkit import AgentCoreRLApp
app = AgentCoreRLApp()
@app.entrypoint
def invoke(payload):
    return {}
if __name__ == "__main__":
    while not os.path.exists(GATE):
        time.sleep(0.01)
    app.run()
"""


def unknown(aws: Aws, arn: str, sid: str) -> None:
    aws.invoke(arn[:-10] + "0" * 10, {}, sid)


def invalid(aws: Aws, arn: str, sid: str) -> None:
    aws.invoke(arn, {}, sid + "!")


def failing(aws: Aws, arn: str, sid: str) -> None:
    aws.invoke(arn, {"status": 500, "body": "no"}, sid)


def stopped(aws: Aws, arn: str, sid: str) -> None:
    aws.stop(arn, sid)


def command(aws: Aws, arn: str, sid: str, timeout: int = 4000) -> None:
    aws.data.invoke_agent_runtime_command(
        agentRuntimeArn=arn, runtimeSessionId=sid, body={"command": "true", "timeout": timeout}
    )


@pytest.mark.parametrize("mode", ["standard", "legacy"])
@pytest.mark.parametrize(
    ("call", "name", "status"),
    [
        pytest.param(unknown, "ResourceNotFoundException", 404, id="an unknown runtime"),
        pytest.param(invalid, "ValidationException", 400, id="a bad session id"),
        pytest.param(failing, "RuntimeClientError", 424, id="an agent that fails"),
        pytest.param(stopped, "ResourceNotFoundException", 404, id="a session that is not there"),
        pytest.param(command, "ValidationException", 400, id="a bad command"),
    ],
)
def test_what_would_recur_is_raised_at_once(
    aws: Aws,
    connect: Any,
    asgi_arn: str,
    sid: str,
    call: Callable[[Aws, str, str], None],
    name: str,
    status: int,
    mode: str,
) -> None:
    clients = connect(aws.url, retries={"mode": mode, "total_max_attempts": 3})
    with pytest.raises(getattr(clients.data.exceptions, name)) as refused:
        call(clients, asgi_arn, sid)
    metadata = refused.value.response["ResponseMetadata"]
    assert (metadata["HTTPStatusCode"], metadata["RetryAttempts"]) == (status, 0)
    assert metadata["HTTPHeaders"]["x-amzn-requestid"]


@pytest.mark.parametrize(("mode", "again"), [("standard", 1), ("legacy", 0)])
def test_a_conflict_is_sent_again_in_standard_mode_only(
    aws: Aws, connect: Any, tmp_path: Path, sid: str, mode: str, again: int
) -> None:
    gate, folder = tmp_path / "open", tmp_path / "agent"
    folder.mkdir()
    (folder / "rl_app.py").write_text(SLOW.replace("GATE", repr(str(gate))))
    arn = aws.deploy(folder, environmentVariables={**PROCESS, "ART_ZYGOTE": "0"})
    clients = connect(aws.url, retries={"mode": mode, "total_max_attempts": 2})
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(aws.ask, arn, {}, sid)
        until(lambda: sid in aws.sessions(), "the session is being started")
        with pytest.raises(clients.data.exceptions.RetryableConflictException) as refused:
            command(clients, arn, sid, timeout=60)
        assert refused.value.response["ResponseMetadata"]["RetryAttempts"] == again
        gate.touch()
        assert first.result() == {}
    aws.stop(arn, sid)


def test_the_sdks_own_client_class_runs_an_agents_whole_life(
    aws: Aws, monkeypatch: pytest.MonkeyPatch, sid: str
) -> None:
    for service in ("BEDROCK_AGENTCORE", "BEDROCK_AGENTCORE_CONTROL"):
        monkeypatch.setenv(f"AWS_ENDPOINT_URL_{service}", aws.url)
    session = boto3.Session(region_name="us-east-1", **local.CREDENTIALS)
    client = AgentCoreRuntimeClient(region="us-east-1", session=session)
    soon = WaitConfig(max_wait=60, poll_interval=1)
    made = client.create_agent_runtime_and_wait(
        wait_config=soon, agentRuntimeName=f"sdk_{uuid.uuid4().hex[:8]}", **aws.body()
    )
    assert made["status"] == "READY"
    runtime_id, arn = made["agentRuntimeId"], made["agentRuntimeArn"]
    answer = client.invoke_agent_runtime(
        agentRuntimeArn=arn, runtimeSessionId=sid, payload=b'{"hello": 1}'
    )
    assert json.loads(json.loads(answer["response"].read())["body"]) == {"hello": 1}
    client.update_agent_runtime_and_wait(
        wait_config=soon, agentRuntimeId=runtime_id, **aws.body(description="second")
    )
    client.create_agent_runtime_endpoint_and_wait(
        wait_config=soon, agentRuntimeId=runtime_id, name="prod", agentRuntimeVersion="1"
    )
    assert client.get_aggregated_status(agent_runtime_id=runtime_id, endpoint_name="prod")
    client.stop_runtime_session(agentRuntimeArn=arn, runtimeSessionId=sid)
    client.delete_agent_runtime_and_wait(wait_config=soon, agentRuntimeId=runtime_id)
    listed = aws.control.list_agent_runtimes()["agentRuntimes"]
    assert runtime_id not in {one["agentRuntimeId"] for one in listed}
