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
    with pytest.raises(result.RewardError, match="return a number") as raised:
        result.success({"rewards": rewards}, CONFIG, {})
    outcome = result.failure(raised.value, CONFIG, {}, own=__file__)
    assert json.loads(outcome.body)["failure_kind"] == "contract"


@pytest.mark.parametrize("returned", [{}, {"rewards": None}, {"rewards": 1}, {"rewards": [0.5, 1]}])
def test_a_result_may_have_no_rewards_yet(returned: dict[str, Any]) -> None:
    assert result.success(returned, CONFIG, {}).status_code == 200
