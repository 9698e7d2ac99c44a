"""What is sent, and what each refusal of the runtime leads to; through real boto3."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import botocore.exceptions
import pytest

from agentcore_rl_toolkit.client import RolloutClient, attempt, call
from agentcore_rl_toolkit.client.call import backoff, judge
from agentcore_rl_toolkit.errors import (
    AgentError,
    ConfigError,
    ContractError,
    QuotaError,
    RolloutError,
    SessionLostError,
    ThrottledError,
)
from agentcore_rl_toolkit.local import runtime_arn

from .fake_aws import ARN, BUCKET, FakeAws
from .waiting import until

Make = Callable[..., RolloutClient]
INIT = "Runtime initialization time exceeded. Please make sure that initialization completes."
REFUSED = "Received error (400) from runtime. Agent said: _rollout lacks input_id"
CRASHED = "Received error (500) from runtime. Please check your CloudWatch logs."


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call, "BACKOFF_S", 0.01)
    monkeypatch.setattr(attempt, "UNSURE_S", 0.01)


# --- the payload --------------------------------------------------------------------------------


def test_the_payload_carries_the_rollout_block(aws: FakeAws, make_client: Make) -> None:
    client = make_client(base_url="http://gateway/v1", model_id="m", sampling_params={"top_p": 1})
    future = client.invoke({"prompt": "hi"}, input_id="task-1", model_id="other", max_turns=3)
    assert aws.payloads == [
        {
            "prompt": "hi",
            "_rollout": {
                "exp_id": "exp",
                "session_id": future.session_id,
                "input_id": "task-1",
                "s3_bucket": BUCKET,
                "base_url": "http://gateway/v1",
                "model_id": "other",
                "sampling_params": {"top_p": 1},
                "max_turns": 3,
            },
        }
    ]
    assert len(future.session_id) == 36
    assert future.result_key == f"exp/task-1/{future.session_id}.json"
    assert (future.input_id, future.s3_bucket) == ("task-1", BUCKET)


def test_numpy_values_of_a_parquet_row_are_sent_as_numbers(
    aws: FakeAws, client: RolloutClient
) -> None:
    np = pytest.importorskip("numpy")
    client.invoke({"ids": np.arange(3), "x": np.float32(0.5)})
    assert (aws.payloads[0]["ids"], aws.payloads[0]["x"]) == ([0, 1, 2], 0.5)


@pytest.mark.parametrize(
    ("payload", "arguments", "message"),
    [
        pytest.param(["no", "object"], {}, "payload must be a JSON object", id="a list"),
        pytest.param({"a": {"b": object()}}, {}, r"payload\.a\.b", id="no JSON form"),
        pytest.param({"a": float("nan")}, {}, r"payload\.a", id="not a number"),
        pytest.param({"_rollout": 3}, {}, "belongs to the toolkit", id="a taken name"),
        pytest.param({}, {"base_url": 5}, "base_url must be a string", id="no address"),
        pytest.param({}, {"session_id": "short"}, "33 to 256", id="short session id"),
        pytest.param({}, {"input_id": "../up"}, "input_id", id="climbing key"),
        pytest.param({}, {"exp_id": "/abs"}, "exp_id", id="absolute key by override"),
        pytest.param({}, {"s3_bucket": "No"}, "s3_bucket", id="bad bucket by override"),
    ],
)
def test_a_bad_argument_is_refused_by_name_before_anything_is_sent(
    aws: FakeAws, client: RolloutClient, payload: Any, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        client.invoke(payload, **arguments)
    assert not aws.count
    assert client.report().submitted == 0


def test_a_payload_above_the_limit_of_the_service_is_refused(
    client: RolloutClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentcore_rl_toolkit.client.order.MAX_BODY_BYTES", 1000)
    with pytest.raises(ConfigError, match="at most 1000"):
        client.invoke({"text": "x" * 1000})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"agent_runtime_arn": "arn:aws:s3:::x"}, "not an AgentCore Runtime ARN"),
        ({"tps_limit": 0}, "tps_limit"),
        ({"tps_limit": -3}, "tps_limit"),
        ({"exp_id": "a/../b"}, "exp_id"),
        ({"s3_bucket": "UPPER"}, "s3_bucket"),
        ({"max_retry_attempts": -1}, "max_retry_attempts"),
        ({"max_pool_connections": 0}, "max_pool_connections"),
    ],
)
def test_a_bad_setting_is_refused(make_client: Make, changes: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_client(**changes)


def test_the_connection_pool_is_at_least_the_concurrency(make_client: Make) -> None:
    client = make_client(max_pool_connections=10)
    config = client.agentcore_client.meta.config
    assert config.max_pool_connections >= client._caller.calls.limit >= 128
    assert make_client(max_pool_connections=700)._caller.calls.limit == 700


def test_region_and_endpoint_come_from_the_arn(make_client: Make, aws: FakeAws) -> None:
    client = make_client()
    assert client.agentcore_client.meta.region_name == "us-west-2"
    assert client.agentcore_client.meta.endpoint_url == aws.url
    plain = make_client(endpoint_url=None)
    assert plain.agentcore_client.meta.endpoint_url.endswith("us-west-2.amazonaws.com")


def test_a_local_arn_uses_the_local_runtime_for_both_services(make_client: Make) -> None:
    arn = "arn:aws:bedrock-agentcore:local:000000000000:runtime/a-AbCdEf0123"
    client = make_client(agent_runtime_arn=arn, endpoint_url="http://127.0.0.1:9")
    assert client.agentcore_client.meta.endpoint_url == "http://127.0.0.1:9"
    assert client.s3_client.meta.endpoint_url == "http://127.0.0.1:9"
    assert client.s3_client.meta.region_name == "us-east-1"


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "refusal",
    [
        pytest.param((429, "ThrottlingException", "Rate exceeded"), id="throttled"),
        pytest.param((409, "RetryableConflictException", "in progress"), id="conflict"),
        pytest.param((500, "InternalServerException", "oops"), id="internal"),
        pytest.param((503, "ServiceUnavailable", "busy"), id="unavailable"),
        pytest.param((402, "ServiceQuotaExceededException", "maxVms"), id="no room"),
        pytest.param((424, "RuntimeClientError", INIT), id="did not start once"),
    ],
)
def test_a_passing_refusal_is_tried_again(
    aws: FakeAws, client: RolloutClient, refusal: tuple[int, str, str]
) -> None:
    aws.script.append(refusal)
    assert client.invoke({}).result(5)["rewards"] == 1.0
    assert len(aws.payloads) == 2
    assert aws.payloads[0] == aws.payloads[1]


@pytest.mark.parametrize(
    ("refusal", "error", "sent"),
    [
        ((429, "ThrottlingException", "Rate exceeded"), ThrottledError, 3),
        ((500, "InternalServerException", "oops"), SessionLostError, 3),
        ((409, "RetryableConflictException", "in progress"), SessionLostError, 3),
        ((424, "RuntimeClientError", INIT), ContractError, 2),
        ((424, "RuntimeClientError", REFUSED), ContractError, 1),
        ((424, "RuntimeClientError", CRASHED), AgentError, 1),
        ((424, "RuntimeClientError", "The session ended while it handled"), SessionLostError, 1),
        ((404, "ResourceNotFoundException", "no such runtime"), ContractError, 1),
        ((403, "AccessDeniedException", "not authorized"), ContractError, 1),
        ((400, "ValidationException", "bad"), ContractError, 1),
    ],
    ids=lambda value: value[2] if isinstance(value, tuple) else None,
)
def test_a_refusal_that_stays_is_raised_with_its_kind(
    aws: FakeAws, make_client: Make, refusal: Any, error: type[RolloutError], sent: int
) -> None:
    client = make_client(max_retry_attempts=2)
    aws.script.extend([refusal] * 10)
    with pytest.raises(error, match=refusal[2].split("(")[0]):
        client.invoke({})
    assert aws.count["invoke"] == sent
    assert client.report().failed == {error.kind: 1}


def test_throttling_slows_the_client_down(aws: FakeAws, make_client: Make) -> None:
    client = make_client(tps_limit=100)
    aws.script.append((429, "ThrottlingException", "Rate exceeded"))
    client.invoke({})
    assert client._caller.limiter.rate <= 60


def test_the_runtimes_own_retry_after_is_honoured(aws: FakeAws, client: RolloutClient) -> None:
    aws.headers = {"x-amz-retry-after": "300"}
    aws.script.append((429, "ThrottlingException", "Rate exceeded"))
    client.invoke({})
    assert aws.invoked_at[1] - aws.invoked_at[0] >= 0.29


def test_no_room_is_waited_for_until_a_session_is_stopped(
    aws: FakeAws, client: RolloutClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call, "BACKOFF_S", 60.0)
    aws.max_sessions = 1
    first = client.invoke({"sleep": 60})
    second = client._begin({})
    until(lambda: aws.count["invoke"] == 2)
    first.cancel()
    assert second.result(5)["rewards"] == 1.0


def test_no_room_within_the_budget_is_a_quota_error(
    aws: FakeAws, client: RolloutClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt.Attempt, "room_s", 0.1)
    aws.max_sessions = 0
    with pytest.raises(QuotaError, match="max_concurrent_sessions"):
        client.invoke({})
    assert aws.count["invoke"] > 1


def test_a_read_timeout_never_sends_the_invoke_again(aws: FakeAws, make_client: Make) -> None:
    client = make_client()
    config = client.agentcore_client.meta.config.merge(
        botocore.config.Config(read_timeout=0.2)  # type: ignore[attr-defined]
    )
    import boto3

    impatient = boto3.client(
        "bedrock-agentcore", region_name="us-west-2", endpoint_url=aws.url, config=config
    )
    client.agentcore_client = impatient
    aws.script.append("hang")
    assert client.invoke({"sleep": 0.5}).result(5)["rewards"] == 1.0
    assert len(aws.payloads) == 1
    client._caller.flush(5)
    impatient.close()


@pytest.mark.parametrize(
    ("status", "sent"),
    [({"status": "unknown"}, 2), ({"status": "done", "result": {"rewards": 7}}, 1)],
    ids=["it had not arrived", "it had arrived"],
)
def test_a_broken_connection_is_asked_about_before_sending_again(
    aws: FakeAws, client: RolloutClient, status: dict[str, Any], sent: int
) -> None:
    aws.script.append("close")
    aws.status = lambda session: status
    client.invoke({}).result(5)
    assert (len(aws.payloads), aws.count["status"]) == (sent, 1)


def test_a_runtime_that_is_not_there_says_what_to_do(make_client: Make) -> None:
    client = make_client(
        agent_runtime_arn="arn:aws:bedrock-agentcore:local:000000000000:runtime/a-AbCdEf0123",
        endpoint_url="http://127.0.0.1:9",
        max_retry_attempts=1,
    )
    with pytest.raises(ContractError, match="art runtime serve"):
        client.invoke({})


def test_missing_credentials_are_a_contract_error(
    make_client: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    client = make_client()
    monkeypatch.setattr(client.agentcore_client._request_signer, "_credentials", None, raising=True)
    with pytest.raises(ContractError, match="credentials"):
        client.invoke({})


@pytest.mark.parametrize("said", ["plain"])
def test_an_answer_without_a_result_location_says_to_swap_the_decorator(
    aws: FakeAws, client: RolloutClient, said: str
) -> None:
    aws.script.append(said)
    with pytest.raises(ContractError, match=r"rollout_entrypoint"):
        client.invoke({})
    until(lambda: len(aws.stopped) == 1)


def test_after_an_acceptance_a_failing_start_is_bad_luck() -> None:
    error = botocore.exceptions.ClientError(
        {
            "Error": {"Code": "RuntimeClientError", "Message": INIT},
            "ResponseMetadata": {"HTTPStatusCode": 424},
        },
        "InvokeAgentRuntime",
    )
    assert isinstance(judge(error, ARN, proven=False).error, ContractError)
    assert isinstance(judge(error, ARN, proven=True).error, SessionLostError)


def test_a_refusal_here_names_the_log_here_and_one_on_aws_the_one_there() -> None:
    said = "Received error (500) from runtime. "
    said += "Please check your CloudWatch logs for more information."
    headers = {"x-amzn-bedrock-agentcore-runtime-session-id": "s" * 33}
    error = botocore.exceptions.ClientError(
        {
            "Error": {"Code": "RuntimeClientError", "Message": said},
            "ResponseMetadata": {"HTTPStatusCode": 424, "HTTPHeaders": headers},
        },
        "InvokeAgentRuntime",
    )
    here = str(judge(error, runtime_arn("echo-0123456789"), proven=True).error)
    assert f"art logs {'s' * 33}" in here
    assert "CloudWatch" not in here
    there = "arn:aws:bedrock-agentcore:us-west-2:123456789012:runtime/echo-0123456789"
    assert "CloudWatch" in str(judge(error, there, proven=True).error)


def test_the_pause_doubles_up_to_a_limit_and_is_half_random(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(call, "BACKOFF_S", 0.5)
    assert [backoff(n, jitter=1.0) for n in range(6)] == [0.5, 1, 2, 4, 8, 8]
    assert backoff(2, jitter=0.0) == 1.0
    assert backoff(0, least_s=3.0) == 3.0


# --- stops --------------------------------------------------------------------------------------


def test_a_session_is_stopped_once_its_result_is_there(aws: FakeAws, client: RolloutClient) -> None:
    future = client.invoke({})
    future.result(5)
    until(lambda: aws.stopped == [future.session_id])


def test_a_stop_is_tried_again_and_a_session_that_is_gone_counts_as_stopped(
    aws: FakeAws, client: RolloutClient
) -> None:
    aws.stop_script.extend(
        [
            (429, "ThrottlingException", "Rate exceeded"),
            (409, "RetryableConflictException", "in progress"),
            (404, "ResourceNotFoundException", "gone"),
        ]
    )
    client.invoke({}).result(5)
    assert client._caller.flush(5)
    assert (aws.count["stop"], client.report().stops_failed) == (3, 0)


def test_a_stop_that_fails_is_counted_and_fails_no_rollout(
    aws: FakeAws, client: RolloutClient
) -> None:
    aws.stop_script.append((403, "AccessDeniedException", "no"))
    assert client.invoke({}).result(5)["rewards"] == 1.0
    assert client._caller.flush(5)
    assert client.report().stops_failed == 1


def test_close_stops_what_still_runs(aws: FakeAws, make_client: Make) -> None:
    with make_client() as client:
        futures = [client.invoke({"sleep": 60}) for _ in range(5)]
        assert len(aws.live) == 5
    assert not aws.live
    assert all(future.cancelled for future in futures)
    assert client.report().failed == {"cancelled": 5}
    with pytest.raises(ConfigError, match="closed"):
        client.invoke({})
    client.close()


def test_a_session_being_started_is_stopped_after_its_start(
    aws: FakeAws, make_client: Make
) -> None:
    client = make_client()
    client._begin({"cold": 0.3})
    until(lambda: len(aws.live) == 1)
    client.close()
    assert (len(aws.started), len(aws.live)) == (1, 0)


def test_the_end_of_the_process_leaves_no_session_behind(aws: FakeAws) -> None:
    import subprocess
    import sys

    script = (
        "import sys; from agentcore_rl_toolkit.client import RolloutClient\n"
        f"c = RolloutClient({ARN!r}, {BUCKET!r}, 'exp', endpoint_url=sys.argv[1])\n"
        "fs = [c.invoke({'sleep': 60}) for _ in range(3)]\n"
    )
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", script, aws.url], check=True, timeout=30)
    assert time.monotonic() - began < 20
    assert (len(aws.started), len(aws.live)) == (3, 0)


@pytest.mark.parametrize("halves", [0, 3])
def test_an_answer_cut_inside_its_head_is_a_broken_connection(
    aws: FakeAws, client: RolloutClient, halves: int
) -> None:
    """Not an agent that answers nothing, which would stop the whole run; nor is half a listing."""
    aws.script.append("half")
    aws.s3_halves = halves
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # urllib3 tells of the head, and goes on
        future = client.invoke({"sleep": 0.3})
        assert future.result(timeout=30)["rewards"] == 1.0
    assert len(aws.payloads) == 1, "it had arrived, and was not sent again"
