"""Failures are named by whose they are, and rewards that no trainer can use are refused."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import httpx
import openai
import pytest

from agentcore_rl_toolkit import result
from agentcore_rl_toolkit.rollout import RolloutConfig

CONFIG = RolloutConfig("exp", "input", "s" * 36, "rollouts")
REQUEST = httpx.Request("POST", "http://127.0.0.1:9/v1")


def status_error(status: int) -> openai.APIStatusError:
    response = httpx.Response(status, request=REQUEST)
    return openai.APIStatusError("said no", response=response, body=None)


def plain_status(status: int) -> httpx.HTTPStatusError:
    response = httpx.Response(status, request=REQUEST)
    return httpx.HTTPStatusError("said no", request=REQUEST, response=response)


def wrapped(error: Exception) -> Exception:
    """As agent frameworks do it."""
    try:
        raise RuntimeError("the event loop failed") from error
    except RuntimeError as outer:
        return outer


CASES = [
    pytest.param(ValueError("mine"), "agent", id="agents-own-error"),
    pytest.param(ConnectionError("a database"), "agent", id="another-connection"),
    pytest.param(openai.APIConnectionError(request=REQUEST), "model", id="model-unreachable"),
    pytest.param(openai.APITimeoutError(request=REQUEST), "model", id="model-too-slow"),
    pytest.param(status_error(503), "model", id="model-overloaded"),
    pytest.param(status_error(429), "model", id="model-throttles"),
    pytest.param(status_error(404), "model", id="model-not-served"),
    pytest.param(status_error(400), "agent", id="request-the-model-refuses"),
    pytest.param(wrapped(openai.APIConnectionError(request=REQUEST)), "model", id="wrapped"),
    pytest.param(status_error(402), "model", id="model-without-credit"),
    pytest.param(httpx.ReadTimeout("slow", request=REQUEST), "model", id="plain-http-client"),
    pytest.param(httpx.ReadError("cut", request=REQUEST), "model", id="cut-under-a-plain-client"),
    pytest.param(plain_status(503), "model", id="status-of-a-plain-client"),
    pytest.param(plain_status(400), "agent", id="refusal-of-a-plain-client"),
    pytest.param(aiohttp.ClientPayloadError("cut"), "model", id="answer-cut-in-two"),
]


@pytest.mark.parametrize(("error", "kind"), CASES)
def test_a_failure_is_named_by_whose_it_is(error: Exception, kind: str) -> None:
    outcome = result.failure(error, CONFIG, {}, own=__file__)
    assert json.loads(outcome.body)["failure_kind"] == kind


@pytest.mark.parametrize("rewards", ["good", [], ["a"], {"x": 1}, [1.0, None]])
def test_rewards_that_are_no_numbers_are_a_contract_failure(rewards: Any) -> None:
    with pytest.raises(result.ResultError, match="return a number") as raised:
        result.success({"rewards": rewards}, CONFIG, {})
    outcome = result.failure(raised.value, CONFIG, {}, own=__file__)
    assert json.loads(outcome.body)["failure_kind"] == "contract"


@pytest.mark.parametrize("returned", [{}, {"rewards": None}, {"rewards": 1}, {"rewards": [0.5, 1]}])
def test_a_result_may_have_no_rewards_yet(returned: dict[str, Any]) -> None:
    assert result.success(returned, CONFIG, {}).status_code == 200


@pytest.mark.parametrize("returned", [{"rewards": float("nan")}, {"x": b"raw"}, None, [1.0]])
def test_what_is_no_result_would_recur_and_is_a_contract_failure(returned: Any) -> None:
    with pytest.raises(result.ResultError) as raised:
        result.success(returned, CONFIG, {})
    outcome = result.failure(raised.value, CONFIG, {}, own=__file__)
    assert json.loads(outcome.body)["failure_kind"] == "contract"


def reason(error: BaseException, payload: dict[str, Any]) -> str:
    body = json.loads(result.failure(error, CONFIG, payload, own=__file__).body)
    return str(body["stop_reason"])


def test_a_model_that_is_not_there_is_told_with_its_address_and_no_key() -> None:
    url = "http://127.0.0.1:9/sessions/0123456789abcdef/v1"
    payload = {"_rollout": {"base_url": url}}
    said = reason(wrapped(openai.APIConnectionError(request=REQUEST)), payload)
    assert "http://127.0.0.1:9/sessions/***/v1: is the model up" in said
    assert "0123456789abcdef" not in said
    assert "is the model up" not in reason(status_error(503), payload), "it is"
    assert "is the model up" not in reason(ValueError("mine"), payload)


def test_a_message_that_says_little_has_its_type() -> None:
    assert reason(ZeroDivisionError("division by zero"), {}).startswith("ZeroDivisionError: ")
    assert reason(ValueError("bad input"), {}) == "bad input"
