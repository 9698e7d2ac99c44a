"""Agents as users have them, run as rollouts on the local runtime through boto3's own wire."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import boto3
import pytest

from agentcore_rl_toolkit import RolloutClient

from .conftest import ECHO, MATH, ROOT, Stack, wait_until

AGENTS = [
    pytest.param(MATH, id="strands"),
    pytest.param(ROOT / "tests" / "agents" / "langgraph_agent", id="langgraph"),
    pytest.param(ROOT / "tests" / "agents" / "openai_agent", id="plain-openai"),
]
PROBLEMS = [
    {"prompt": "What is 12 + 30?", "answer": "42"},
    {"prompt": "What is (7 - 2) * 9?", "answer": "45"},
    {"prompt": "What is 8 * 8?", "answer": "63"},
]


def boto(stack: Stack) -> Any:
    return boto3.client(
        "bedrock-agentcore",
        endpoint_url=stack.url,
        region_name="us-east-1",
        aws_access_key_id="local",
        aws_secret_access_key="local",
    )


@pytest.mark.parametrize("folder", AGENTS)
def test_an_adapted_agent_is_rewarded_for_right_answers(
    stack: Stack, model_url: str, folder: Path
) -> None:
    arn = stack.deploy(folder)
    with RolloutClient(
        agent_runtime_arn=arn,
        s3_bucket="rollouts",
        exp_id="agents",
        base_url=model_url,
        model_id="scripted",
        endpoint_url=stack.url,
    ) as client:
        items = {item.index: item for item in client.run_batch(PROBLEMS, 3, timeout=60)}
        report = client.report()
    assert [items[i].error for i in range(3)] == [None] * 3
    assert [items[i].result["rewards"] for i in range(3)] == [1.0, 1.0, 0.0]
    assert (report.submitted, report.succeeded, report.running) == (3, 3, 0)
    wait_until(lambda: not stack_sessions(stack), "every session is stopped")


def stack_sessions(stack: Stack) -> list[Any]:
    import urllib.request

    with urllib.request.urlopen(f"{stack.url}/_art/sessions") as answer:
        return [s for s in json.load(answer)["sessions"] if s["state"] != "stopped"]


def test_the_production_agent_answers_plain_boto3(stack: Stack, model_url: str) -> None:
    arn = stack.deploy(
        MATH, "basic_app.py", MODEL_URL=model_url, MODEL_KEY="EMPTY", MODEL_ID="scripted"
    )
    answer = boto(stack).invoke_agent_runtime(
        agentRuntimeArn=arn,
        runtimeSessionId=str(uuid.uuid4()),
        payload=json.dumps({"prompt": "What is 12 + 30?"}),
    )
    assert "#### 42" in json.loads(answer["response"].read())["response"]


def test_two_sessions_share_nothing(stack: Stack) -> None:
    arn, client = stack.deploy(ECHO), boto(stack)

    def call(session_id: str) -> Any:
        answer = client.invoke_agent_runtime(
            agentRuntimeArn=arn,
            runtimeSessionId=session_id,
            payload=json.dumps({"return": {"ok": 1}}),
        )
        return json.loads(answer["response"].read())

    first, second = str(uuid.uuid4()), str(uuid.uuid4())
    assert call(first) == call(second) == {"ok": 1}
    pids = {session["pid"] for session in stack_sessions(stack)}
    assert len(pids) == 2
