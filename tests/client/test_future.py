from __future__ import annotations

import asyncio
import concurrent.futures
import io
import json
import threading
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import MagicMock

import pytest
from botocore.exceptions import ClientError

from agentcore_rl_toolkit.client import RolloutClient
from agentcore_rl_toolkit.errors import ConfigError, RolloutTimeoutError
from agentcore_rl_toolkit.rollout import FailureKind

from .fake_aws import ARN, BUCKET, FakeAws
from .waiting import until

Make = Callable[..., RolloutClient]


def test_invoke_returns_once_accepted_and_result_waits(aws: FakeAws, client: RolloutClient) -> None:
    future = client.invoke({"sleep": 0.4})
    assert not future.done()
    assert future.result()["rewards"] == 1.0
    assert future.done()
    assert future.failure is None
    taken = future.elapsed()
    assert 0.3 < taken < 5
    assert future.elapsed() == taken


def test_a_timeout_is_honoured_and_stops_the_session(aws: FakeAws, client: RolloutClient) -> None:
    future = client.invoke({"sleep": 60})
    began = time.monotonic()
    with pytest.raises(TimeoutError) as caught:
        future.result(timeout=0.3)
    assert 0.3 <= time.monotonic() - began < 5
    assert isinstance(caught.value, RolloutTimeoutError)
    assert future.session_id in str(caught.value)
    until(lambda: not aws.live)
    assert client.report().failed == {"timeout": 1}


async def test_an_async_timeout_is_honoured_and_stops_the_session(
    aws: FakeAws, client: RolloutClient
) -> None:
    future = await client.invoke_async({"sleep": 60})
    with pytest.raises(asyncio.TimeoutError):
        await future.result_async(timeout=0.2)
    assert future.failure is not None
    assert future.failure.kind is FailureKind.TIMEOUT
    await asyncio.to_thread(until, lambda: not aws.live)


def test_timeout_zero_checks_the_store_once_and_never_waits_for_ever(
    aws: FakeAws, client: RolloutClient
) -> None:
    running = client.invoke({"sleep": 60})
    ready = client.invoke({})
    until(lambda: ready.result_key in aws.objects)
    assert ready.result(timeout=0)["rewards"] == 1.0
    with pytest.raises(TimeoutError):
        running.result(timeout=0)


def test_a_result_of_status_500_is_returned_and_counted_as_a_failure(
    aws: FakeAws, client: RolloutClient
) -> None:
    future = client.invoke({"result": {"status_code": 500, "stop_reason": "boom"}})
    assert future.result(5)["stop_reason"] == "boom"
    assert str(future.failure) == "agent: status 500: boom"
    assert client.report().failed == {"agent": 1}


def test_cancel_wakes_every_waiter_and_stops_the_session(
    aws: FakeAws, client: RolloutClient
) -> None:
    future = client.invoke({"sleep": 60})
    caught: list[BaseException] = []

    def wait() -> None:
        try:
            future.result()
        except BaseException as error:
            caught.append(error)

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    until(lambda: future._waiters == 3)
    assert future.cancel()
    for thread in threads:
        thread.join(5)
    assert [type(error) for error in caught] == [concurrent.futures.CancelledError] * 3
    assert future.cancelled
    assert not future.cancel() or future.cancelled
    until(lambda: not aws.live)
    assert client.report().failed == {"cancelled": 1}


async def test_cancelling_while_someone_awaits_gives_cancelled_error(
    aws: FakeAws, client: RolloutClient
) -> None:
    future = await client.invoke_async({"sleep": 60})
    tasks = [asyncio.ensure_future(future.result_async()) for _ in range(2)]
    await asyncio.sleep(0)
    assert await future.cancel_async()
    assert not aws.live
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results] == [asyncio.CancelledError] * 2


async def test_cancelling_the_only_task_that_awaits_stops_the_session(
    aws: FakeAws, client: RolloutClient
) -> None:
    future = await client.invoke_async({"sleep": 60})
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(future, 0.1)
    assert future.cancelled
    await asyncio.to_thread(until, lambda: not aws.live)


async def test_one_of_two_waiting_tasks_may_be_cancelled(client: RolloutClient) -> None:
    future = await client.invoke_async({"sleep": 0.4})
    leaving, staying = (asyncio.ensure_future(future.result_async()) for _ in range(2))
    await asyncio.sleep(0.05)
    leaving.cancel()
    assert (await staying)["rewards"] == 1.0
    assert not future.cancelled


async def test_futures_are_awaited_and_gathered(client: RolloutClient) -> None:
    futures = [await client.invoke_async({"result": {"rewards": n}}) for n in range(5)]
    results = await asyncio.gather(*futures)
    assert [result["rewards"] for result in results] == list(range(5))
    assert (await futures[0])["rewards"] == 0
    assert await futures[0].done_async()


async def test_128_cold_starts_do_not_queue_behind_each_other(
    aws: FakeAws, client: RolloutClient
) -> None:
    began = time.monotonic()
    futures = await asyncio.gather(*(client.invoke_async({"cold": 0.5}) for _ in range(128)))
    # One pool of CPU count + 4 threads would take ten seconds.
    assert time.monotonic() - began < 9
    assert len(aws.started) == 128
    await asyncio.gather(*futures)


async def test_cancelling_an_invoke_leaves_no_session(aws: FakeAws, client: RolloutClient) -> None:
    task = asyncio.ensure_future(client.invoke_async({"cold": 0.3, "sleep": 60}))
    await asyncio.to_thread(until, lambda: len(aws.live) == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.to_thread(until, lambda: not aws.live)


def test_a_future_can_be_attached_after_a_restart(aws: FakeAws, make_client: Make) -> None:
    aws.objects["exp/task/" + "s" * 36 + ".json"] = b'{"rewards": 0.5}'
    client = make_client()
    future = client.attach("exp/task/" + "s" * 36 + ".json", "s" * 36)
    assert future.input_id == "task"
    assert future.result(5) == {"rewards": 0.5}
    assert client.report().submitted == client.report().succeeded == 1
    with pytest.raises(ConfigError, match="result_key"):
        client.attach("exp/task/other.json", "s" * 36)


def test_a_lost_rollout_is_run_again_in_a_new_session_when_asked(
    aws: FakeAws, make_client: Make
) -> None:
    client = make_client(retry=2, max_retry_attempts=0)
    aws.script.extend([(500, "InternalServerException", "oops")] * 2)
    future = client.invoke({"n": 1}, input_id="task")
    assert future.result(5)["rewards"] == 1.0
    assert future.attempts == 3
    assert future.input_id == "task"
    sessions = [body["_rollout"]["session_id"] for body in aws.payloads]
    assert len(set(sessions)) == 3
    assert future.session_id == sessions[-1]
    report = client.report()
    assert (report.submitted, report.succeeded, report.attempts) == (1, 1, 3)


def test_an_agents_own_failure_is_not_run_again(aws: FakeAws, make_client: Make) -> None:
    client = make_client(retry=2)
    client.invoke({"result": {"status_code": 500}}).result(5)
    assert len(aws.payloads) == 1


async def test_the_report_accounts_for_everything(aws: FakeAws, client: RolloutClient) -> None:
    payloads: list[dict[str, Any]] = [
        {},
        {},
        {"result": {"status_code": 500}},
        {"sleep": 60},
        {"sleep": 60},
    ]
    futures = [await client.invoke_async(payload) for payload in payloads]
    await asyncio.gather(*futures[:3])
    futures[3].cancel()
    report = client.report()
    assert report.submitted == 5
    assert (report.succeeded, report.running) == (2, 1)
    assert report.failed == {"agent": 1, "cancelled": 1}
    assert report.submitted == report.succeeded + sum(report.failed.values()) + report.running
    assert "5 submitted: 2 succeeded, 2 failed (1 agent, 1 cancelled), 1 running" in str(report)


async def test_the_client_is_an_async_context(aws: FakeAws, make_client: Make) -> None:
    async with make_client() as client:
        await client.invoke_async({"sleep": 60})
    assert not aws.live


# --- code in the field --------------------------------------------------------------------------


async def test_the_calls_of_rllm_work_verbatim(
    aws: FakeAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_BEDROCK_AGENTCORE", aws.url)
    client = RolloutClient(agent_runtime_arn=ARN, s3_bucket=BUCKET, exp_id="exp", tps_limit=25)
    future = await client.invoke_async(
        payload={"prompt": "1+1", "result": {"rewards": [1.0], "metrics": {"n": 1}}},
        session_id="rollout-0000-1111-2222-3333-444444444444",
        input_id="task-0:0",
        base_url="http://gateway/sessions/key/v1",
        model_id="policy",
    )
    result = await future.result_async(timeout=30)
    assert result.get("status_code", 200) == 200
    assert result["rewards"] == [1.0]
    assert result["metrics"] == {"n": 1}
    assert future.elapsed() > 0
    client.close()


def test_clients_that_a_test_assigns_are_used() -> None:
    client = RolloutClient(ARN, BUCKET, "exp")
    runtime, store = MagicMock(), MagicMock()
    answer = {"status": "processing", "s3_bucket": "other-bucket", "result_key": "some/key.json"}
    runtime.invoke_agent_runtime.return_value = {
        "response": io.BytesIO(json.dumps(answer).encode())
    }
    missing = ClientError({"Error": {"Code": "404"}}, "HeadObject")
    store.head_object.side_effect = [missing, missing, {}]
    store.get_object.return_value = {"Body": io.BytesIO(b'{"rewards": 1}')}
    client.agentcore_client, client.s3_client = runtime, store
    future = client.invoke({"prompt": "x"})
    assert (future.s3_bucket, future.result_key) == ("other-bucket", "some/key.json")
    assert future.result(timeout=10) == {"rewards": 1}
    client.close()
    store.get_object.assert_called_once_with(Bucket="other-bucket", Key="some/key.json")
    runtime.stop_runtime_session.assert_called_once_with(
        agentRuntimeArn=ARN, runtimeSessionId=future.session_id
    )
