"""The session while it works: busy until the result is safe; status requests and ``done_url``."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
from typing import Any

import pytest

from agentcore_rl_toolkit import AgentCoreRLApp, saver
from agentcore_rl_toolkit import app as module

from .conftest import DEADLINE_S, KEY, SESSION, Store, one, wait_for


@pytest.mark.parametrize("kind", ["sync", "async that blocks"])
def test_a_blocking_handler_holds_up_neither_ping_nor_another_rollout(
    live: Any, store: Store, kind: str
) -> None:
    release = threading.Event()

    def handler(payload: Any) -> Any:
        if payload.get("block"):
            release.wait(DEADLINE_S)
        return {"rewards": 1.0}

    async def blocking(payload: Any) -> Any:
        return handler(payload)

    agent = live(handler if kind == "sync" else blocking)
    agent.rollout(block=True)
    agent.rollout(rollout={"input_id": "in-2"})
    assert store.result(f"exp/in-2/{SESSION}.json")["rewards"] == 1.0
    assert agent.ping() == "HealthyBusy"
    assert agent.status() == {"status": "running"}
    release.set()
    store.result()
    wait_for(lambda: agent.ping() == "Healthy")


def test_a_slow_result_write_stalls_nobody_and_keeps_the_session_busy(
    live: Any, store: Store
) -> None:
    agent = live(one)
    store.gate.clear()
    agent.rollout()
    wait_for(lambda: store.puts)
    agent.rollout(rollout={"input_id": "in-2"})  # would hang if the write were on the loop
    assert agent.ping() == "HealthyBusy"
    assert agent.status()["result"]["rewards"] == 1.0
    store.gate.set()
    wait_for(lambda: agent.ping() == "Healthy")
    assert len(store.objects) == 2


def test_failed_writes_are_retried_while_the_session_stays_busy(live: Any, store: Store) -> None:
    store.answers = [(503, "SlowDown"), (500, "InternalError"), (403, "RequestTimeTooSkewed")]
    store.gate.clear()
    agent = live(one)
    agent.rollout()
    assert agent.ping() == "HealthyBusy"
    store.gate.set()
    assert store.result()["rewards"] == 1.0
    assert len(store.puts) == 4


def test_a_result_that_no_store_takes_stays_in_the_session(
    live: Any, store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(saver, "GIVE_UP_S", 0.05)
    store.answers = [(503, "SlowDown")] * 100
    agent = live(one)
    agent.rollout()
    wait_for(lambda: agent.ping() == "Healthy")
    assert store.objects == {}
    assert agent.status()["status"] == "done"
    assert agent.status()["result"]["rewards"] == 1.0
    assert "result not saved" in caplog.text


@pytest.mark.parametrize(
    ("status", "code", "advice"),
    [(403, "AccessDenied", "s3:PutObject"), (404, "NoSuchBucket", "create the bucket")],
)
def test_a_store_that_refuses_is_asked_once_and_the_log_says_what_to_do(
    live: Any, store: Store, caplog: pytest.LogCaptureFixture, status: int, code: str, advice: str
) -> None:
    store.answers = [(status, code)]
    agent = live(one)
    agent.rollout(rollout={"done_url": f"{store.url}/done"})
    wait_for(lambda: agent.ping() == "Healthy")
    assert len(store.puts) == 1
    assert advice in caplog.text
    assert store.posts == []
    assert agent.status()["status"] == "done"


def test_missing_credentials_are_looked_for_again(
    live: Any, store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    agent = live(one, AgentCoreRLApp())
    agent.rollout()
    wait_for(lambda: "trying again" in caplog.text)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "local")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "local")
    assert store.result()["rewards"] == 1.0


def test_a_repeated_invoke_joins_the_running_or_finished_rollout(live: Any, store: Store) -> None:
    runs: list[int] = []
    release = threading.Event()

    def handler(payload: Any) -> Any:
        runs.append(1)
        release.wait(DEADLINE_S)
        return {"rewards": 1.0}

    agent = live(handler)
    answers = [agent.rollout() for _ in range(3)]
    release.set()
    store.result()
    wait_for(lambda: agent.ping() == "Healthy")
    answers.append(agent.rollout())
    assert agent.ping() == "Healthy"
    assert answers == [answers[0]] * 4
    assert answers[0][0] == 200
    assert (len(runs), len(store.puts)) == (1, 1)


def test_simultaneous_invokes_of_one_rollout_run_it_once(live: Any, store: Store) -> None:
    runs: list[int] = []
    agent = live(lambda payload: runs.append(1) or {"rewards": 1.0})
    threads = [threading.Thread(target=agent.rollout) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.result()
    assert runs == [1]


def test_a_background_rollout_survives_garbage_collection(live: Any, store: Store) -> None:
    release = threading.Event()

    async def handler(payload: Any) -> Any:
        while not release.is_set():
            await asyncio.sleep(0.001)
        return {"rewards": 1.0}

    agent = live(handler)
    agent.rollout()
    gc.collect()
    release.set()
    assert store.result()["rewards"] == 1.0


def test_a_long_session_forgets_its_oldest_finished_rollouts(
    live: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEPT_RUNS", 2)
    agent = live(one)
    for i in range(4):
        agent.rollout(rollout={"input_id": f"in-{i}"})
        wait_for(lambda: agent.ping() == "Healthy")
    kept = [agent.status(f"exp/in-{i}/{SESSION}.json")["status"] for i in range(4)]
    assert kept == ["unknown", "unknown", "done", "done"]


# --- status and done_url ----------------------------------------------------------------------


def test_a_status_request_starts_nothing(live: Any, store: Store) -> None:
    runs: list[int] = []
    agent = live(lambda payload: runs.append(1) or {"rewards": 1.0})
    assert agent.status() == {"status": "unknown"}
    agent.rollout()
    saved = store.result()
    assert agent.status() == {"status": "done", "result": saved}
    assert runs == [1]


def test_done_url_is_told_after_the_store_has_the_result_and_retried(
    live: Any, store: Store
) -> None:
    agent = live(one)
    store.answers = [(200, ""), (500, ""), (500, "")]  # the put, then two refused posts
    agent.rollout(rollout={"done_url": f"{store.url}/sessions/secret-key-1/done"})
    wait_for(lambda: len(store.posts) == 3)
    assert store.posts[0] == {
        "path": "/sessions/secret-key-1/done",
        "session_id": SESSION,
        "result_key": KEY,
        "status_code": 200,
    }
    block = store.result()["payload"]["_rollout"]
    assert block["done_url"] == f"{store.url}/sessions/***/done"


def test_done_url_is_not_followed_elsewhere(live: Any, store: Store) -> None:
    agent = live(one)
    store.answers = [(200, ""), (302, ""), (303, ""), (200, "")]
    agent.rollout(rollout={"done_url": f"{store.url}/done"})
    wait_for(lambda: len(store.posts) == 3)
    assert {post["path"] for post in store.posts} == {"/done"}
    assert store.gets == []


def test_a_done_url_that_fails_loses_nothing(live: Any, store: Store) -> None:
    agent = live(one)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        agent.rollout(rollout={"done_url": f"http://127.0.0.1:{port}/done"})
        assert store.result()["status_code"] == 200
        wait_for(lambda: agent.ping() == "Healthy")
