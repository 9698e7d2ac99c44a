"""What is saved: results as JSON, errors as results, keys nowhere."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from .conftest import KEY, SESSION, Store, one, wait_for


def test_numpy_results_become_json(live: Any, store: Store) -> None:
    agent = live(
        lambda payload: {
            "rewards": np.array([0.5, 1.0], dtype=np.float32),
            "metrics": {"n": np.int64(3), "ok": np.bool_(True), 7: "seven"},
        }
    )
    agent.rollout()
    result = store.result()
    assert result["rewards"] == [0.5, 1.0]
    assert result["metrics"] == {"n": 3, "ok": True, "7": "seven"}


NO_RESULT = [
    (lambda p: {"rewards": float("nan")}, "rewards"),
    (lambda p: {"rewards": np.array([1.0, np.inf])}, "rewards[1]"),
    (lambda p: {"a": {"b": b"raw"}}, "a.b"),
    (lambda p: {"a": [object()]}, "a[0] is an object"),
    (lambda p: {"a": {(1, 2): 3}}, "(1, 2)"),
    (lambda p: None, "returned a NoneType"),
    (lambda p: [1.0], "returned a list"),
    (lambda p: (x for x in ()), "returned a generator"),
]


@pytest.mark.parametrize(("handler", "names"), NO_RESULT, ids=[names for _, names in NO_RESULT])
def test_what_has_no_json_form_is_an_error_result_that_names_the_field(
    live: Any, store: Store, handler: Any, names: str
) -> None:
    agent = live(handler)
    agent.rollout(x=1)
    result = store.result()
    assert result["status_code"] == 500
    assert result["failure_kind"] == "contract"
    assert names in result["stop_reason"]
    assert result["payload"]["x"] == 1


def test_a_result_that_contains_itself_is_an_error_result(live: Any, store: Store) -> None:
    loop: dict[str, Any] = {}
    loop["self"] = loop
    agent = live(lambda payload: loop)
    agent.rollout()
    assert store.result()["status_code"] == 500


def test_a_payload_that_json_cannot_write_back_does_not_lose_the_result(
    live: Any, store: Store
) -> None:
    agent = live(one)
    agent.rollout(x=float("nan"))
    result = store.result()
    assert (result["status_code"], result["payload"]) == (500, None)
    assert "payload.x" in result["stop_reason"]


def test_odd_text_from_a_model_is_saved(live: Any, store: Store) -> None:
    agent = live(lambda payload: {"rewards": 1.0, "text": "half \ud83d of a pair"})
    agent.rollout()
    result = store.result()
    assert (result["status_code"], result["text"]) == (200, "half \ud83d of a pair")


def _raise(make: Callable[[], BaseException]) -> Any:
    raise make()


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: ValueError("no such tool"), "no such tool"),
        (lambda: KeyError("x"), "KeyError: 'x'"),
        (lambda: ValueError(), "ValueError"),
        (lambda: SystemExit(3), "SystemExit: 3"),
        (lambda: KeyboardInterrupt(), "KeyboardInterrupt"),
        (lambda: asyncio.CancelledError(), "CancelledError"),
        (lambda: ExceptionGroup("several", [ValueError("in")]), "several (1 sub-exception)"),
    ],
)
@pytest.mark.parametrize("kind", ["def", "async def"])
def test_whatever_is_raised_becomes_an_error_result(
    live: Any, store: Store, kind: str, make: Callable[[], BaseException], reason: str
) -> None:
    async def coroutine(payload: Any) -> Any:
        await asyncio.sleep(0)
        _raise(make)

    agent = live((lambda payload: _raise(make)) if kind == "def" else coroutine)
    agent.rollout()
    result = store.result()
    assert (result["status_code"], result["stop_reason"]) == (500, reason)
    assert "in _raise" in result["traceback"]
    assert "agentcore_rl_toolkit" not in result["traceback"]
    assert result["failure_kind"] == "agent"
    wait_for(lambda: agent.ping() == "Healthy")


def test_a_handler_may_change_its_payload_and_set_its_own_status(live: Any, store: Store) -> None:
    def handler(payload: Any) -> Any:
        payload.clear()
        return {"rewards": 0.0, "status_code": 206, "stop_reason": "max_tokens"}

    agent = live(handler)
    agent.rollout(x=1)
    result = store.result()
    assert (result["status_code"], result["stop_reason"]) == (206, "max_tokens")
    assert result["payload"]["x"] == 1


def test_keys_are_in_no_result_traceback_or_log(
    live: Any, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secrets = {
        "api_key": "sk-very-secret-key",
        "base_url": "http://127.0.0.1:1/sessions/path-secret-key/v1",
    }

    def handler(payload: Any) -> Any:
        config = dict(payload["_rollout"])
        if payload["fail"]:
            raise RuntimeError(f"cannot reach {config['base_url']} with {config['api_key']}")
        return {"rewards": 1.0, "config": config}

    agent = live(handler)
    agent.rollout(fail=True, rollout=secrets)
    agent.rollout(fail=False, rollout={**secrets, "input_id": "in-2"})
    failed, fine = store.result(), store.result(f"exp/in-2/{SESSION}.json")
    assert "cannot reach" in failed["stop_reason"]
    assert fine["config"]["exp_id"] == "exp"
    saved = json.dumps([failed, fine])
    for secret in ("sk-very-secret-key", "path-secret-key"):
        assert secret not in saved
        assert secret not in caplog.text


def test_a_key_that_is_the_session_id_does_not_damage_the_result_key(
    live: Any, store: Store
) -> None:
    agent = live(one)
    agent.rollout(rollout={"base_url": f"http://127.0.0.1:1/sessions/{SESSION}/v1"})
    assert store.result()["result_key"] == KEY


def test_tasks_left_behind_by_an_async_handler_are_cancelled_after_the_save(
    live: Any, store: Store
) -> None:
    seen: list[str] = []

    async def background() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            seen.append(f"cancelled with {len(store.objects)} saved")
            raise

    async def handler(payload: Any) -> Any:
        asyncio.get_running_loop().task = asyncio.create_task(background())  # type: ignore
        await asyncio.sleep(0)
        return {"rewards": 1.0}

    agent = live(handler)
    agent.rollout()
    wait_for(lambda: seen)
    assert seen == ["cancelled with 1 saved"]
