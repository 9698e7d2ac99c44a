"""What a caller of the app sees, and what is refused before any work."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import boto3
import pytest
from bedrock_agentcore.runtime import BedrockAgentCoreApp
from moto.server import ThreadedMotoServer

from agentcore_rl_toolkit import AgentCoreRLApp

from .conftest import KEY, LOCATION, SESSION, Live, Store, one, wait_for


def sync_handler(payload: Any) -> Any:
    return {"rewards": 0.5, "saw": payload["x"]}


def sync_with_context(payload: Any, context: Any) -> Any:
    return {"rewards": 0.5, "saw": payload["x"], "session": context.session_id}


async def async_handler(payload: Any) -> Any:
    await asyncio.sleep(0)
    return {"rewards": 0.5, "saw": payload["x"]}


async def async_with_context(payload: Any, context: Any) -> Any:
    return {"rewards": 0.5, "saw": payload["x"], "session": context.session_id}


@pytest.mark.parametrize(
    "handler", [sync_handler, sync_with_context, async_handler, async_with_context]
)
def test_a_rollout_is_accepted_at_once_and_its_result_saved(
    live: Any, store: Store, handler: Any
) -> None:
    agent = live(handler)
    status, answer = agent.rollout(x=3)
    assert (status, answer) == (
        200,
        {"status": "processing", "s3_bucket": "rollouts", "result_key": KEY},
    )
    result = store.result()
    session = result.pop("session", SESSION)
    assert session == SESSION
    timing = result.pop("timing")
    assert timing["handler_s"] >= timing["reward_s"] == 0.0
    assert result == {
        "status_code": 200,
        "stop_reason": "end_turn",
        "rewards": 0.5,
        "saw": 3,
        "input_id": "in-1",
        "s3_bucket": "rollouts",
        "result_key": KEY,
        "payload": {"x": 3, "_rollout": LOCATION},
    }


@pytest.mark.parametrize(
    "handler", [sync_handler, sync_with_context, async_handler, async_with_context]
)
@pytest.mark.parametrize(
    "payload",
    [{"x": 1}, {"x": 1, "_rollout": {"base_url": "http://m/v1"}}, {}, {"x": "é"}],
    ids=["plain", "model but no location", "handler raises", "text"],
)
def test_without_a_location_the_answer_is_that_of_a_production_app(
    live: Any, handler: Any, payload: Any
) -> None:
    ours = live(handler)
    production = BedrockAgentCoreApp()
    production.entrypoint(handler)
    theirs = Live(production)
    try:
        assert ours.post(payload) == theirs.post(payload)
    finally:
        theirs.close()


@pytest.mark.parametrize("asynchronous", [False, True], ids=["def", "async def"])
def test_a_production_handler_that_exits_is_an_error_and_the_app_goes_on(
    live: Any, asynchronous: bool
) -> None:
    def plain(payload: dict[str, Any]) -> dict[str, Any]:
        if "exit" in payload:
            sys.exit(payload["exit"])
        return {"said": "hello"}

    async def awaited(payload: dict[str, Any]) -> dict[str, Any]:
        return plain(payload)

    agent = live(awaited if asynchronous else plain)
    status, said = agent.post({"exit": 5})
    assert (status, said) == (500, {"error": "the handler raised SystemExit(5)"})
    assert agent.post({}) == (200, {"said": "hello"})


def test_moto_as_the_store_holds_the_same_result(
    live: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://{host}:{port}")
    client = boto3.client("s3", region_name="us-east-1", endpoint_url=f"http://{host}:{port}")
    try:
        client.create_bucket(Bucket="rollouts")
        agent = live(sync_handler)
        agent.rollout(x=1)
        wait_for(lambda: agent.ping() == "Healthy")
        got = client.get_object(Bucket="rollouts", Key=KEY)
        assert got["ContentType"] == "application/json"
        with got["Body"] as body:
            assert json.load(body)["saw"] == 1
    finally:
        client.close()
        server.stop()


# --- refused before any work ------------------------------------------------------------------

BAD = [
    ({"exp_id": None}, "exp_id"),
    ({"input_id": None}, "input_id"),
    ({"s3_bucket": None}, "s3_bucket"),
    ({"exp_id": "../other"}, "exp_id"),
    ({"exp_id": "/abs"}, "exp_id"),
    ({"input_id": "a//b"}, "input_id"),
    ({"input_id": ""}, "input_id"),
    ({"input_id": "a\nb"}, "input_id"),
    ({"input_id": 7}, "input_id"),
    ({"s3_bucket": "Not_A_Bucket"}, "s3_bucket"),
    ({"done_url": "file:///etc/passwd"}, "done_url"),
    ({"action": "stop"}, "action"),
    ({"action": "status"}, "result_key"),
]


@pytest.mark.parametrize(("change", "field"), BAD, ids=[str(change) for change, _ in BAD])
def test_a_partial_or_hostile_location_is_refused_by_name_before_any_work(
    live: Any, store: Store, change: dict[str, Any], field: str
) -> None:
    ran: list[Any] = []
    agent = live(ran.append)
    status, answer = agent.rollout(rollout=change)
    assert status == 400
    assert field in answer["error"]
    assert agent.ping() == "Healthy"
    assert (ran, store.puts) == ([], [])


def test_a_rollout_without_a_session_or_with_a_block_that_is_no_object_is_refused(
    live: Any,
) -> None:
    agent = live(one)
    status, answer = agent.rollout(session=None)
    assert (status, "session_id" in answer["error"]) == (400, True)
    status, answer = agent.post({"_rollout": "yes"})
    assert (status, "must be an object" in answer["error"]) == (400, True)


def test_a_generator_is_refused_when_it_is_registered() -> None:
    def stream(payload: Any) -> Any:
        yield {"rewards": 1.0}

    async def async_stream(payload: Any) -> Any:
        yield {"rewards": 1.0}

    for handler in (stream, async_stream):
        with pytest.raises(TypeError, match="generator"):
            AgentCoreRLApp().rollout_entrypoint(handler)
