"""The client with a real local runtime: events, deaths of sessions, restarts."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.parse
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from agentcore_rl_toolkit.client import RolloutClient
from agentcore_rl_toolkit.errors import ConfigError, ContractError, SessionLostError
from agentcore_rl_toolkit.local import DEFAULT_BUCKET

from .conftest import Local, deploy_echo, start_runtime
from .waiting import until


@pytest.fixture
def client(local_runtime: Local) -> Iterator[RolloutClient]:
    with RolloutClient(
        local_runtime.arn, DEFAULT_BUCKET, "exp", tps_limit=1000, endpoint_url=local_runtime.url
    ) as client:
        yield client


def sessions(url: str) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{url}/_art/sessions") as response:
        return list(json.load(response)["sessions"])


def test_a_rollout_gives_its_result_and_leaves_no_session(
    client: RolloutClient, local_runtime: Local
) -> None:
    future = client.invoke({"task": 1})
    result = future.result(30)
    assert result["echo"] == {"task": 1}
    assert result["session_id"] == future.session_id
    assert client._caller.flush(10)
    assert future.session_id not in {s["session_id"] for s in sessions(local_runtime.url)}


def test_a_small_result_comes_with_its_event_and_is_not_read_again(
    client: RolloutClient,
) -> None:
    client.invoke({}).result(30)
    until(lambda: client._watcher.live)
    with patch.object(client.s3_client, "get_object") as read:
        assert client.invoke({"sleep": 0.2}).result(30)["rewards"] == 1.0
    read.assert_not_called()


def test_a_big_result_is_read_from_the_store(client: RolloutClient) -> None:
    text = "x" * 200_000
    assert client.invoke({"return": {"text": text}}).result(30)["text"] == text


def test_a_dead_session_is_noticed_at_once(client: RolloutClient) -> None:
    client.invoke({}).result(30)
    until(lambda: client._watcher.live)
    future = client.invoke({"sleep": 0.3, "exit": 3})
    began = time.monotonic()
    with pytest.raises(SessionLostError, match="exit code 3"):
        future.result(60)
    assert time.monotonic() - began < 10


def test_a_lost_session_is_tried_again_in_a_batch(client: RolloutClient) -> None:
    items = list(client.run_batch([{"sleep": 0.2, "exit": 3}, {}], 2, retry=1))
    assert sorted(item.success for item in items) == [False, True]
    assert client.report().attempts == 3


def test_an_agent_that_raises_gives_its_error(client: RolloutClient) -> None:
    future = client.invoke({"raise": "boom"})
    assert future.result(30)["stop_reason"] == "boom"
    assert str(future.failure) == "agent: status 500: boom"


def test_leaving_a_batch_early_leaves_no_session(
    client: RolloutClient, local_runtime: Local
) -> None:
    for _ in client.run_batch([{"sleep": 0 if n == 0 else 60} for n in range(6)], 4):
        break
    until(lambda: not sessions(local_runtime.url))  # the first one's stop is under way


async def test_many_rollouts_in_async_code(client: RolloutClient) -> None:
    payloads = ({"n": n} for n in range(24))
    items = [item async for item in client.run_batch_async(payloads, 8)]
    assert sorted(item.result["echo"]["n"] for item in items if item.result) == list(range(24))
    report = client.report()
    assert report.submitted == report.succeeded == 24


def test_an_unknown_runtime_says_which_and_what_to_do(local_runtime: Local) -> None:
    arn = "arn:aws:bedrock-agentcore:local:000000000000:runtime/nothing-AbCdEf0123"
    with (
        RolloutClient(arn, DEFAULT_BUCKET, "exp", endpoint_url=local_runtime.url) as client,
        pytest.raises(ContractError, match=r"nothing-AbCdEf0123.*Deploy"),
    ):
        client.invoke({})


def test_a_runtime_that_is_restarted_loses_its_sessions_and_says_so(tmp_path: Path) -> None:
    with start_runtime(tmp_path) as url:
        port = urllib.parse.urlsplit(url).port
        arn = deploy_echo(url)
        client = RolloutClient(arn, DEFAULT_BUCKET, "exp", endpoint_url=url)
        saved = client.invoke({})
        assert saved.result(30)
        running = client.invoke({"sleep": 60})
        until(lambda: client._watcher.live)
    assert port is not None
    with start_runtime(tmp_path, port), client:
        with pytest.raises(SessionLostError):
            running.result(20)
        again = client.attach(saved.result_key, saved.session_id)
        assert again.result(10)["rewards"] == 1.0
        assert asyncio.run(client.invoke_async({})).result(30)["rewards"] == 1.0


def test_a_proxy_of_the_environment_is_not_asked_for_loopback(
    local_runtime: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with RolloutClient(
        local_runtime.arn, DEFAULT_BUCKET, "exp", endpoint_url=local_runtime.url
    ) as client:
        assert client.invoke({}).result(30)["rewards"] == 1.0


def test_attaching_to_a_session_that_never_started_says_so_at_once(client: RolloutClient) -> None:
    session_id = str(uuid.uuid4())
    future = client.attach(f"exp/task/{session_id}.json", session_id)
    with pytest.raises(SessionLostError):
        future.result(timeout=60)


def test_a_session_holds_one_rollout_at_a_time(client: RolloutClient) -> None:
    running = client.invoke({"sleep": 30})
    with pytest.raises(ConfigError, match="session of its own"):
        client.invoke({}, session_id=running.session_id)
    running.cancel()


def test_payloads_that_cannot_be_sent_are_in_the_report(client: RolloutClient) -> None:
    items = list(client.run_batch([{}, {"x": object()}, {"y": float("nan")}], 2))
    report = client.report()
    assert [item.success for item in sorted(items, key=lambda item: item.index or 0)] == [
        True,
        False,
        False,
    ]
    assert (report.submitted, report.succeeded, report.failed) == (3, 1, {"contract": 2})
