from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agentcore_rl_toolkit.client import BatchItem, Progress, RolloutClient, call
from agentcore_rl_toolkit.errors import ConfigError, ContractError
from agentcore_rl_toolkit.rollout import FailureKind

from .fake_aws import ARN, BUCKET, FakeAws
from .waiting import until

Make = Callable[..., RolloutClient]
Run = Callable[..., Any]


@pytest.fixture(params=["sync", "async"])
def run(request: pytest.FixtureRequest) -> Callable[..., list[BatchItem]]:
    """Runs a batch to its end, in one way and the other."""

    def sync(client: RolloutClient, *args: Any, **kwargs: Any) -> list[BatchItem]:
        return list(client.run_batch(*args, **kwargs))

    def asynchronous(client: RolloutClient, *args: Any, **kwargs: Any) -> list[BatchItem]:
        async def collect() -> list[BatchItem]:
            return [item async for item in client.run_batch_async(*args, **kwargs)]

        return asyncio.run(collect())

    return sync if request.param == "sync" else asynchronous


def test_items_come_in_completion_order_with_their_index(client: RolloutClient, run: Run) -> None:
    payloads = [{"sleep": 1.2}, {"sleep": 0.0}, {"sleep": 0.6}]
    items = run(client, payloads, 3)
    assert [item.index for item in items] == [1, 2, 0]
    assert all(item.success and item.error is None for item in items)
    assert [item.elapsed >= payloads[item.index]["sleep"] for item in items] == [True] * 3


def test_sessions_never_exceed_the_limit(aws: FakeAws, client: RolloutClient, run: Run) -> None:
    items = run(client, [{"sleep": 0.01}] * 12, 3)
    assert len(items) == 12
    assert aws.peak <= 3


def test_a_result_of_status_500_is_no_success_and_is_kept(client: RolloutClient, run: Run) -> None:
    bad = {"status_code": 500, "stop_reason": "boom", "traceback": "…"}
    items = run(client, [{"result": bad}, {}], 2)
    item = next(item for item in items if item.index == 0)
    assert not item.success
    assert item.result == bad
    assert item.error == "agent: status 500: boom"
    assert item.failure is not None
    assert item.failure.kind is FailureKind.AGENT


def test_one_rollout_that_fails_is_an_item(aws: FakeAws, client: RolloutClient, run: Run) -> None:
    client.invoke({}).result(5)
    aws.script.append((424, "RuntimeClientError", "Received error (500) from runtime."))
    items = run(client, [{}] * 4, 2)
    assert sorted(item.success for item in items) == [False, True, True, True]


def test_a_payload_that_cannot_be_sent_is_an_item(client: RolloutClient, run: Run) -> None:
    items = run(client, [{"x": object()}, {}, {"y": object()}], 1)
    assert sorted((item.index, item.success) for item in items) == [
        (0, False),
        (1, True),
        (2, False),
    ]


def test_what_would_recur_on_every_rollout_ends_the_batch(
    aws: FakeAws, client: RolloutClient, run: Run
) -> None:
    aws.script.extend([(404, "ResourceNotFoundException", "no such runtime")])
    with pytest.raises(ContractError, match="no such runtime"):
        run(client, [{"sleep": 60}] * 100, 4)
    assert aws.count["invoke"] <= 4
    assert not aws.live


def test_a_refused_submission_is_reported_at_once(
    aws: FakeAws, make_client: Make, run: Run
) -> None:
    client = make_client(max_retry_attempts=0)
    aws.script.append((500, "InternalServerException", "oops"))
    items = run(client, [{"sleep": 0.0}, {"sleep": 4.0}], 2)
    assert not items[0].success, "long before the other one ends"


def test_the_first_result_does_not_wait_for_the_last_submission(
    aws: FakeAws, make_client: Make, run: Run
) -> None:
    client = make_client(tps_limit=4)
    items = run(client, [{}] * 14, 14)
    assert items[0].elapsed is not None
    assert items[0].elapsed < 2.5, "the last one is submitted after more than three seconds"


def test_the_timeout_is_for_each_rollout_from_its_acceptance(
    aws: FakeAws, client: RolloutClient, run: Run
) -> None:
    items = run(client, [{"vanish": True}, {"cold": 0.8}, {}], 3, timeout=0.6)
    failed = [item for item in items if not item.success]
    assert [item.index for item in failed] == [0]
    assert failed[0].failure is not None
    assert failed[0].failure.kind is FailureKind.TIMEOUT
    assert client._caller.flush(5)
    assert not aws.live


def test_no_timeout_is_allowed(client: RolloutClient, run: Run) -> None:
    assert run(client, [{}], 1, timeout=None)[0].success


def test_infrastructure_failures_are_run_again_when_asked(
    aws: FakeAws, client: RolloutClient, run: Run
) -> None:
    items = run(client, [{"n": n} for n in range(3)], 3, retry=1)
    assert all(item.success for item in items)
    vanishing = run(client, [{"vanish": True}], 1, timeout=0.2, retry=1)
    assert not vanishing[0].success
    assert client.report().attempts == 5


def test_payloads_are_consumed_lazily(client: RolloutClient, run: Run) -> None:
    taken: list[int] = []

    def payloads() -> Iterator[dict[str, Any]]:
        for n in range(1000):
            taken.append(n)
            yield {"sleep": 60 if n else 0}

    for _ in client.run_batch(payloads(), 3):
        break
    assert len(taken) <= 4


def test_an_error_of_the_payloads_is_raised_and_stops_everything(
    aws: FakeAws, client: RolloutClient, run: Run
) -> None:
    def payloads() -> Iterator[dict[str, Any]]:
        yield {"sleep": 60}
        raise OSError("the data set broke")

    with pytest.raises(OSError, match="data set broke"):
        run(client, payloads(), 2)
    assert not aws.live


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ({"max_concurrent_sessions": 0}, "max_concurrent_sessions"),
        ({"max_concurrent_sessions": 2.5}, "max_concurrent_sessions"),
        ({"timeout": 0}, "timeout"),
        ({"retry": -1}, "retry"),
        ({"max_interval": 0.1}, "max_interval"),
    ],
)
def test_bad_terms_are_refused_at_the_call(
    client: RolloutClient, terms: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        client.run_batch([], **{"max_concurrent_sessions": 1, **terms})
    with pytest.raises(ConfigError, match=message):
        client.run_batch_async([], **{"max_concurrent_sessions": 1, **terms})


def test_an_empty_batch_is_over(client: RolloutClient, run: Run) -> None:
    assert run(client, [], 3) == []


def test_progress_and_log_say_where_the_batch_stands(
    client: RolloutClient, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Progress] = []
    with caplog.at_level(logging.INFO, logger="agentcore_rl_toolkit.client.batch"):
        run(
            client,
            [{"sleep": 0.3}, {"result": {"status_code": 500}}],
            2,
            log_interval=0.05,
            progress=seen.append,
        )
    last = seen[-1]
    assert (last.submitted, last.done, last.running, last.failed) == (2, 2, 0, 1)
    assert last.by_kind == {"agent": 1}
    assert last.elapsed >= 0.3
    assert "batch under way" in caplog.text


# --- leaving early ------------------------------------------------------------------------------

LONG = [{"sleep": 0.0 if n == 0 else 60} for n in range(30)]


def test_break_stops_every_session_and_submits_nothing_more(
    aws: FakeAws, client: RolloutClient
) -> None:
    for _ in client.run_batch(LONG, 10):
        break
    assert not aws.live
    submitted = aws.count["invoke"]
    assert submitted <= 11
    time.sleep(0.2)
    assert aws.count["invoke"] == submitted
    report = client.report()
    assert (report.running, report.succeeded) == (0, 1)


def test_what_was_queued_leaves_the_queue_and_does_not_delay_the_stops(
    aws: FakeAws, make_client: Make
) -> None:
    client = make_client(tps_limit=8)
    for _ in client.run_batch([{}] * 200, 200):
        break
    assert not client._caller.limiter._pace._waiting["invoke"]
    assert client._caller.flush(5)
    assert not aws.live


def test_an_exception_in_the_loop_stops_every_session(aws: FakeAws, client: RolloutClient) -> None:
    def consume() -> None:
        for item in client.run_batch(LONG, 5):
            raise ZeroDivisionError(item)

    with pytest.raises(ZeroDivisionError):
        consume()
    assert not aws.live


async def test_leaving_an_async_loop_stops_every_session(
    aws: FakeAws, client: RolloutClient
) -> None:
    async for _ in client.run_batch_async(LONG, 5):
        break
    await asyncio.to_thread(until, lambda: not aws.live)


async def test_cancelling_the_task_of_a_batch_stops_every_session(
    aws: FakeAws, client: RolloutClient
) -> None:
    async def consume() -> None:
        async for _ in client.run_batch_async([{"sleep": 60}] * 20, 5):
            pass

    task = asyncio.create_task(consume())
    await asyncio.to_thread(until, lambda: len(aws.live) == 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not aws.live
    assert aws.count["invoke"] == 5


def test_ctrl_c_stops_every_session(aws: FakeAws) -> None:
    script = (
        "import sys; from agentcore_rl_toolkit.client import RolloutClient\n"
        f"c = RolloutClient({ARN!r}, {BUCKET!r}, 'exp', endpoint_url=sys.argv[1], tps_limit=500)\n"
        "try:\n    list(c.run_batch([{'sleep': 60}] * 20, 8))\n"
        "except KeyboardInterrupt:\n    sys.exit(7)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script, aws.url])
    until(lambda: len(aws.live) == 8, 20)
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(20) == 7
    assert not aws.live


def test_a_slow_consumer_does_not_keep_slots_empty(aws: FakeAws, client: RolloutClient) -> None:
    batch = iter(client.run_batch([{}] * 6, 2))
    next(batch)
    until(lambda: len(aws.started) == 6)
    assert len(list(batch)) == 5


async def test_a_slow_async_consumer_does_not_keep_slots_empty(
    aws: FakeAws, client: RolloutClient
) -> None:
    batch = client.run_batch_async(({} for _ in range(6)), 2)
    await anext(batch)
    await asyncio.to_thread(until, lambda: len(aws.started) == 6)
    assert len([item async for item in batch]) == 5


def test_one_store_error_does_not_abort_a_batch_and_leaks_nothing(
    aws: FakeAws, client: RolloutClient, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call, "BACKOFF_S", 0.01)
    aws.s3_faults = 10
    assert all(item.success for item in run(client, [{}] * 10, 5))
    assert client._caller.flush(5)
    assert not aws.live
