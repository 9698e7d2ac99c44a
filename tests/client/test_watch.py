"""How results are noticed on plain S3."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ConnectionClosedError as ConnectionClosed

from agentcore_rl_toolkit.client import RolloutClient, attempt, call, watch
from agentcore_rl_toolkit.errors import AgentError, ContractError, SessionLostError, StoreError

from .fake_aws import FakeAws
from .waiting import until

Make = Callable[..., RolloutClient]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call, "BACKOFF_S", 0.01)


async def gather(client: RolloutClient, payloads: list[dict[str, Any]]) -> list[dict[str, Any]]:
    futures = await asyncio.gather(*(client.invoke_async(payload) for payload in payloads))
    return await asyncio.gather(*futures)


async def test_a_hundred_results_that_are_ready_together_arrive_together(
    aws: FakeAws, client: RolloutClient
) -> None:
    began = time.monotonic()
    await gather(client, [{"cold": 0.2, "sleep": 0.5}] * 100)
    assert time.monotonic() - began < 20
    # One listing for all of them, not one request each.
    assert aws.count["list"] < 20
    assert aws.count["head"] < 20


async def test_trouble_of_the_store_passes_and_fails_no_rollout(
    aws: FakeAws, client: RolloutClient
) -> None:
    aws.s3_faults = 15
    results = await gather(client, [{}] * 10)
    assert len(results) == 10
    assert aws.s3_faults == 0


def test_a_result_that_cannot_be_read_for_long_is_a_store_error(
    aws: FakeAws, client: RolloutClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "FETCH_TRIES", 2)
    future = client.invoke({})
    until(lambda: future.result_key in aws.objects)
    monkeypatch.setattr(client.s3_client, "get_object", _raise(ConnectionClosed(endpoint_url="x")))
    with pytest.raises(StoreError, match="cannot be read"):
        future.result(10)
    until(lambda: not aws.live)


async def test_a_long_listing_gives_way_to_single_requests(
    aws: FakeAws, client: RolloutClient
) -> None:
    aws.page_size = 10
    aws.objects.update({f"exp/{uuid.UUID(int=n << 112)}/old.json": b"{}" for n in range(3000)})
    aws.objects.update({f"exp/{n:x}/old.json": b"{}" for n in range(3000)})
    await gather(client, [{"sleep": 0.8}] * 5)
    assert aws.count["head"] >= 5
    assert aws.count["list"] < 20


async def test_without_the_right_to_list_keys_are_asked_for(
    aws: FakeAws, client: RolloutClient
) -> None:
    aws.list_denied = aws.head_denied = True
    await gather(client, [{"sleep": 0.2}] * 5)
    assert aws.count["list"] == 1
    future = await client.invoke_async({"sleep": 60})
    await asyncio.to_thread(until, lambda: client._store.hint)
    with pytest.raises(TimeoutError, match="s3:ListBucket"):
        await future.result_async(timeout=0.2)


def test_a_listing_that_raises_anything_does_not_end_the_watch(
    aws: FakeAws, client: RolloutClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client.s3_client, "list_objects_v2", _raise(RuntimeError("odd")))
    assert client.invoke({"sleep": 0.3}).result(10)["rewards"] == 1.0


def test_a_bucket_that_does_not_exist_is_a_contract_error(aws: FakeAws, make_client: Make) -> None:
    client = make_client(s3_bucket="not-there")
    with pytest.raises(ContractError, match="not-there does not exist"):
        client.invoke({}).result(10)


def test_a_result_that_is_not_json_is_the_agents_failure(
    aws: FakeAws, client: RolloutClient
) -> None:
    future = client.invoke({"sleep": 60})
    aws.objects[future.result_key] = b"<html>"
    with pytest.raises(AgentError, match="not JSON"):
        future.result(10)


def test_keys_of_another_experiment_and_bucket_are_watched_too(
    aws: FakeAws, client: RolloutClient
) -> None:
    first, second = client.invoke({}), client.invoke({}, exp_id="other")
    assert second.result_key.startswith("other/")
    assert [f.result(10)["rewards"] for f in (first, second)] == [1.0, 1.0]


def test_done_looks_without_ending_the_rollout(aws: FakeAws, client: RolloutClient) -> None:
    future = client.invoke({"sleep": 60})
    assert not future.done()
    aws.objects[future.result_key] = b'{"rewards": 2}'
    until(future.done)
    assert future.result(0) == {"rewards": 2}


@pytest.mark.parametrize(
    "answer",
    [{"status": "done", "result": {"rewards": 3}}, {"status": "unknown"}],
    ids=["done", "unknown"],
)
def test_a_silent_session_is_asked_whether_it_still_lives(
    aws: FakeAws,
    client: RolloutClient,
    monkeypatch: pytest.MonkeyPatch,
    answer: dict[str, Any],
) -> None:
    monkeypatch.setattr(attempt.Attempt, "quiet_s", 0.1)
    answers = iter([{"status": "running"}, answer])
    aws.status = lambda session: next(answers)
    future = client.invoke({"vanish": True})
    if answer["status"] == "done":
        assert future.result(10) == {"rewards": 3}
    else:
        with pytest.raises(SessionLostError, match=future.session_id):
            future.result(10)
    assert aws.count["status"] == 2
    until(lambda: not aws.live)


def test_the_watcher_rests_when_nothing_is_pending(aws: FakeAws, client: RolloutClient) -> None:
    client.invoke({}).result(5)
    asked = aws.count["list"] + aws.count["head"]
    time.sleep(0.7)
    assert aws.count["list"] + aws.count["head"] <= asked + 1


def test_a_big_result_is_read_whole(aws: FakeAws, client: RolloutClient) -> None:
    text = "x" * 3_000_000
    assert client.invoke({"result": {"text": text}}).result(10)["text"] == text


def _raise(error: Exception) -> Callable[..., Any]:
    def fail(**_: object) -> Any:
        raise error

    return fail


def test_a_tick_that_falls_into_a_slow_listing_is_made_good(
    aws: FakeAws, client: RolloutClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, release = threading.Event(), threading.Event()
    keys = client._store.keys

    def slow(*arguments: Any) -> Any:
        if entered.is_set():
            return keys(*arguments)
        entered.set()
        release.wait(20)
        return iter(())

    monkeypatch.setattr(client._store, "keys", slow)
    first = client.invoke({})
    assert entered.wait(20)
    second = client.invoke({})
    watcher = client._watcher
    until(lambda: watcher._due is not None and watcher._due + 0.1 < time.monotonic())
    release.set()
    until(lambda: first._outcome.done() and second._outcome.done())
