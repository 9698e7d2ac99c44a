"""AWS's quotas as boto3 sees them, in each of its retry modes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from agentcore_rl_toolkit.errors import ConfigError
from agentcore_rl_toolkit.runtime import wire
from agentcore_rl_toolkit.runtime.awsquota import PRESETS, AwsQuotas, Bucket, Meter
from agentcore_rl_toolkit.runtime.thread import RuntimeThread

from .conftest import Aws

MODES = ["standard", "legacy"]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_bucket_holds_a_second_and_fills_at_its_rate() -> None:
    bucket = Bucket(5, now=0.0)
    assert [bucket.take(0.0) for _ in range(6)] == [True] * 5 + [False]
    assert bucket.take(0.2)
    assert not bucket.take(0.2)
    assert [bucket.take(100.0) for _ in range(6)] == [True] * 5 + [False]


def test_a_slow_rate_lets_one_through_at_a_time() -> None:
    bucket = Bucket(0.5, now=0.0)
    assert [bucket.take(now) for now in (0.0, 1.0, 2.0, 3.0, 4.0)] == [
        *(True, False, True, False, True),
    ]


def test_rates_are_counted_per_agent_and_for_all() -> None:
    clock = Clock()
    meter = Meter(AwsQuotas(requests=3, agent_requests=2), clock)
    meter.request("one")
    meter.request("one")
    with pytest.raises(wire.WireError, match="ThrottlingException"):
        meter.request("one")
    with pytest.raises(wire.WireError, match="ThrottlingException"):
        meter.request("two")  # the account's bucket is empty, too
    clock.now = 1.0
    meter.request("two")


def test_nothing_is_bounded_by_default() -> None:
    meter = Meter()
    for _ in range(10_000):
        meter.request("one")
        meter.new_session(10_000)
        meter.control("mutations")
        meter.room("runtimes", 10_000)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", AwsQuotas()),
        ("none", AwsQuotas()),
        ("aws", PRESETS["aws"]),
        ("agent_requests=25", AwsQuotas(agent_requests=25)),
        ("aws, sessions=10", AwsQuotas(**{**PRESETS["aws"].__dict__, "sessions": 10})),
        ("sessions=10,aws", PRESETS["aws"]),
    ],
)
def test_quotas_are_written_as_names_and_values(text: str, expected: AwsQuotas) -> None:
    assert AwsQuotas.parse(text) == expected


@pytest.mark.parametrize(
    "text", ["azure", "tps=25", "sessions=many", "sessions=0", "requests=nan", "requests=-1"]
)
def test_what_is_not_a_quota_is_refused_with_what_is(text: str) -> None:
    with pytest.raises(ConfigError, match="quota"):
        AwsQuotas.parse(text)


@pytest.fixture
def bounded(tmp_path: Path) -> Iterator[Callable[..., tuple[RuntimeThread, str]]]:
    """A runtime with quotas, and an agent on it; the clock of its rates stands still."""
    running: list[RuntimeThread] = []

    def make(quotas: AwsQuotas, still: bool = True) -> tuple[RuntimeThread, str]:
        runtime = RuntimeThread(home=tmp_path / str(len(running)), isolation="process")
        running.append(runtime.start())
        clients = Aws(runtime.url)
        arn = clients.deploy()
        clients.close()
        if still:
            runtime.server.meter._clock = Clock()
        runtime.server.meter.quotas = quotas
        return runtime, arn

    yield make
    for runtime in running:
        runtime.stop()


def tries(clients: Aws) -> list[int]:
    """How often each call that follows is sent."""
    counted: list[int] = []

    def sent(request: Any, **_: Any) -> None:
        if request.headers["amz-sdk-request"].split(b";")[0] == b"attempt=1":
            counted.append(0)
        counted[-1] += 1

    clients.data.meta.events.register("before-send.bedrock-agentcore", sent)
    clients.control.meta.events.register("before-send.bedrock-agentcore-control", sent)
    return counted


@pytest.mark.parametrize("mode", MODES)
def test_a_rate_that_is_exceeded_is_throttling_and_sent_again(
    bounded: Any, connect: Any, sid: str, mode: str
) -> None:
    runtime, arn = bounded(AwsQuotas(agent_requests=1))
    retries = {"mode": mode, "total_max_attempts": 2}
    clients = connect(runtime.url, retries=retries)
    counted = tries(clients)
    assert clients.ask(arn, {}, sid)["calls"] == 1
    with pytest.raises(clients.data.exceptions.ThrottlingException) as refused:
        clients.invoke(arn, {}, sid)
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 429
    assert refused.value.response["Error"]["Message"] == "Rate exceeded"
    with pytest.raises(clients.data.exceptions.ThrottlingException):
        clients.stop(arn, sid)
    assert counted == [1, 2, 2]


@pytest.mark.parametrize("mode", [*MODES, "adaptive"])
def test_boto3_gets_through_a_rate_by_sending_again(
    bounded: Any, connect: Any, sid: str, mode: str
) -> None:
    runtime, arn = bounded(AwsQuotas(agent_requests=20), still=False)
    clients = connect(runtime.url, retries={"mode": mode, "total_max_attempts": 12})
    clients.ask(arn, {}, sid)
    with ThreadPoolExecutor(8) as pool:
        calls = list(pool.map(lambda _: clients.ask(arn, {}, sid)["calls"], range(30)))
    assert sorted(calls) == list(range(2, 32))


@pytest.mark.parametrize("mode", MODES)
def test_a_number_of_sessions_that_is_reached_is_a_quota_and_not_sent_again(
    bounded: Any, connect: Any, new_session: Callable[[], str], mode: str
) -> None:
    runtime, arn = bounded(AwsQuotas(sessions=1))
    clients = connect(runtime.url, retries={"mode": mode, "total_max_attempts": 3})
    first = new_session()
    clients.ask(arn, {}, first)
    counted = tries(clients)
    with pytest.raises(clients.data.exceptions.ServiceQuotaExceededException) as refused:
        clients.invoke(arn, {}, new_session())
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 402
    assert counted == [1]
    assert clients.ask(arn, {}, first)["calls"] == 2
    clients.stop(arn, first)
    clients.ask(arn, {}, new_session())


def test_new_sessions_have_a_rate_of_their_own(
    bounded: Any, connect: Any, new_session: Callable[[], str]
) -> None:
    runtime, arn = bounded(AwsQuotas(new_sessions=2))
    clients = connect(runtime.url)
    first = new_session()
    for one in (first, new_session()):
        clients.ask(arn, {}, one)
    with pytest.raises(clients.data.exceptions.ThrottlingException):
        clients.invoke(arn, {}, new_session())
    with pytest.raises(clients.data.exceptions.ThrottlingException):
        clients.data.invoke_agent_runtime_command(
            agentRuntimeArn=arn, runtimeSessionId=new_session(), body={"command": "true"}
        )
    clients.ask(arn, {}, first)


def test_payloads_over_the_quota_are_a_validation_error(
    bounded: Any, connect: Any, sid: str
) -> None:
    runtime, arn = bounded(AwsQuotas(payload_bytes=1000))
    clients = connect(runtime.url)
    clients.ask(arn, {}, sid)
    with pytest.raises(clients.data.exceptions.ValidationException, match="1000 bytes"):
        clients.invoke(arn, b"x" * 1001, sid)


def test_an_answer_that_does_not_begin_in_time_is_424(bounded: Any, connect: Any, sid: str) -> None:
    runtime, arn = bounded(AwsQuotas(sync_s=0.3))
    clients = connect(runtime.url)
    with pytest.raises(clients.data.exceptions.RuntimeClientError, match=r"within 0\.3 s"):
        clients.invoke(arn, {"wait": "never"}, sid)
    streamed = clients.invoke(arn, {"stream": ["a", "b"], "wait": "later"}, sid)["response"]
    assert streamed.readline() == b"data: a\n"
    threading.Timer(0.5, lambda: clients.ask(arn, {"open": "later"}, sid)).start()
    assert b"data: b" in streamed.read()


def test_the_control_plane_has_rates_and_numbers(bounded: Any, connect: Any) -> None:
    runtime, _ = bounded(AwsQuotas(gets=1, lists=1, mutations=2, runtimes=1))
    clients = connect(runtime.url)
    found = clients.control.list_agent_runtimes()["agentRuntimes"][0]["agentRuntimeId"]
    errors = clients.control.exceptions
    with pytest.raises(errors.ThrottlingException):
        clients.control.list_agent_runtimes()
    clients.control.get_agent_runtime(agentRuntimeId=found)
    with pytest.raises(errors.ThrottlingException):
        clients.control.get_agent_runtime(agentRuntimeId=found)
    with pytest.raises(errors.ServiceQuotaExceededException):
        clients.create()
    with pytest.raises(ClientError, match="DEFAULT"):
        clients.control.delete_agent_runtime_endpoint(agentRuntimeId=found, endpointName="DEFAULT")
    with pytest.raises(errors.ThrottlingException):
        clients.control.delete_agent_runtime(agentRuntimeId=found)


def test_versions_endpoints_and_lifetimes_have_quotas(bounded: Any, connect: Any) -> None:
    quotas = AwsQuotas(versions=1, endpoints=2, shortest_s=90, variables_bytes=50)
    runtime, arn = bounded(quotas)
    clients = connect(runtime.url)
    runtime_id = arn.rpartition("/")[2]
    errors = clients.control.exceptions
    with pytest.raises(errors.ServiceQuotaExceededException):
        clients.control.update_agent_runtime(agentRuntimeId=runtime_id, **clients.body())
    clients.control.create_agent_runtime_endpoint(agentRuntimeId=runtime_id, name="one")
    with pytest.raises(errors.ServiceQuotaExceededException):
        clients.control.create_agent_runtime_endpoint(agentRuntimeId=runtime_id, name="two")
    with pytest.raises(errors.ValidationException, match="at least 90 s"):
        clients.create(lifecycleConfiguration={"maxLifetime": 89})
    with pytest.raises(errors.ValidationException, match="51 bytes together"):
        clients.create(environmentVariables={"A": "é" * 25})
