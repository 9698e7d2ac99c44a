"""The real app behind a real HTTP server, saving into a store that can be told to fail."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3
import numpy as np
import pytest
import uvicorn
from bedrock_agentcore.runtime import BedrockAgentCoreApp
from moto.server import ThreadedMotoServer

from agentcore_rl_toolkit import AgentCoreRLApp, saver
from agentcore_rl_toolkit import app as module

SESSION = "session-0000000000000000000000000000001"
LOCATION = {"exp_id": "exp", "input_id": "in-1", "s3_bucket": "rollouts"}
KEY = f"exp/in-1/{SESSION}.json"
DEADLINE_S = 20.0
SHARED = boto3.Session()


class Store:
    """Takes every PUT, unless ``answers`` says otherwise; also counts what ``done_url`` gets."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[str, bytes]] = {}
        self.answers: list[tuple[int, str]] = []
        self.puts: list[str] = []
        self.posts: list[dict[str, Any]] = []
        self.gets: list[str] = []
        self.expected: list[str | None] = []
        """What came as ``Expect`` with each PUT."""
        self.gate = threading.Event()
        self.gate.set()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    def _handler(store) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"  # botocore waits a second for "100 Continue"

            def do_PUT(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                store.puts.append(self.path)
                store.expected.append(self.headers["Expect"])
                store.gate.wait(DEADLINE_S)
                status, code = store.answers.pop(0) if store.answers else (200, "")
                if status == 200:
                    store.objects[self.path] = (self.headers["Content-Type"], body)
                self._reply(status, f"<Error><Code>{code}</Code></Error>".encode() if code else b"")

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                store.posts.append({"path": self.path, **json.loads(body)})
                status, _ = store.answers.pop(0) if store.answers else (200, "")
                self._reply(status, b"")

            def do_GET(self) -> None:
                store.gets.append(self.path)
                self._reply(200, b"")

            def _reply(self, status: int, body: bytes) -> None:
                self.send_response(status)
                if 300 <= status < 400:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: Any) -> None: ...

        return Handler

    def result(self, key: str = KEY) -> dict[str, Any]:
        wait_for(lambda: f"/rollouts/{key}" in self.objects)
        content_type, body = self.objects[f"/rollouts/{key}"]
        assert content_type == "application/json"
        return json.loads(body, parse_constant=lambda name: pytest.fail(f"{name} in the result"))

    def close(self) -> None:
        self.gate.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


class Live:
    """An app that listens."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.socket = socket.socket()
        self.socket.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        config = uvicorn.Config(app, log_level="warning", lifespan="off", ws="none")
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, args=([self.socket],))
        self.thread.start()
        wait_for(lambda: self.server.started)

    def post(self, payload: Any, session: str | None = SESSION) -> tuple[int, Any]:
        headers = {"Content-Type": "application/json"}
        if session:
            headers["X-Amzn-Bedrock-AgentCore-Runtime-Session-Id"] = session
        body = json.dumps(payload).encode()
        request = urllib.request.Request(f"{self.url}/invocations", body, headers)
        try:
            with urllib.request.urlopen(request, timeout=DEADLINE_S) as reply:
                return reply.status, json.load(reply)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def rollout(self, session: str | None = SESSION, **more: Any) -> tuple[int, Any]:
        block = {**LOCATION, **more.pop("rollout", {})}
        return self.post({**more, "_rollout": block}, session)

    def status(self, key: str = KEY) -> Any:
        return self.post({"_rollout": {"action": "status", "result_key": key}})[1]

    def ping(self) -> str:
        with urllib.request.urlopen(f"{self.url}/ping", timeout=DEADLINE_S) as reply:
            return str(json.load(reply)["status"])

    def close(self) -> None:
        self.server.should_exit = True
        self.thread.join()
        self.socket.close()
        if self.app._worker_loop is not None:
            self.app._worker_loop.call_soon_threadsafe(self.app._worker_loop.stop)
            self.app._worker_thread.join()
            self.app._worker_loop.close()
        for thread in threading.enumerate():
            if thread.name.startswith("rollout-"):
                thread.join(DEADLINE_S)
        client = self.app._saver._client if isinstance(self.app, AgentCoreRLApp) else None
        if client is not None:
            client.close()


def wait_for(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "condition not met in time"
        time.sleep(0.005)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    store = Store()
    for name, value in {
        "AWS_ENDPOINT_URL_S3": store.url,
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(saver, "FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(module, "DONE_WAIT_S", 0.01)
    yield store
    store.close()


@pytest.fixture
def live(store: Store) -> Iterator[Callable[..., Live]]:
    with contextlib.ExitStack() as stack:

        def start(handler: Callable[..., Any], app: AgentCoreRLApp | None = None) -> Live:
            if app is None:
                app = AgentCoreRLApp()
                app._saver._session = SHARED  # parsing the service description takes 0.1 s
            app.rollout_entrypoint(handler)
            running = Live(app)
            stack.callback(running.close)
            return running

        yield start


def one(payload: Any) -> Any:
    return {"rewards": 1.0}


# --- what a caller sees -----------------------------------------------------------------------


def sync_handler(payload: Any) -> Any:
    return {"rewards": 0.5, "saw": payload["x"]}


def sync_with_context(payload: Any, context: Any) -> Any:
    return {"rewards": 0.5, "saw": payload["x"], "session": context.session_id}


async def async_handler(payload: Any) -> Any:
    await asyncio.sleep(0)
    return {"rewards": 0.5, "saw": payload["x"]}


async def async_with_context(payload: Any, context: Any) -> Any:
    return {"rewards": 0.5, "saw": payload["x"], "session": context.session_id}


@pytest.mark.parametrize(
    "handler", [sync_handler, sync_with_context, async_handler, async_with_context]
)
def test_a_rollout_is_accepted_at_once_and_its_result_saved(
    live: Any, store: Store, handler: Any
) -> None:
    agent = live(handler)
    status, answer = agent.rollout(x=3)
    assert (status, answer) == (
        200,
        {"status": "processing", "s3_bucket": "rollouts", "result_key": KEY},
    )
    result = store.result()
    session = result.pop("session", SESSION)
    assert session == SESSION
    timing = result.pop("timing")
    assert timing["handler_s"] >= timing["reward_s"] == 0.0
    assert result == {
        "status_code": 200,
        "stop_reason": "end_turn",
        "rewards": 0.5,
        "saw": 3,
        "input_id": "in-1",
        "s3_bucket": "rollouts",
        "result_key": KEY,
        "payload": {"x": 3, "_rollout": LOCATION},
    }


@pytest.mark.parametrize(
    "handler", [sync_handler, sync_with_context, async_handler, async_with_context]
)
@pytest.mark.parametrize(
    "payload",
    [{"x": 1}, {"x": 1, "_rollout": {"base_url": "http://m/v1"}}, {}, {"x": "é"}],
    ids=["plain", "model but no location", "handler raises", "text"],
)
def test_without_a_location_the_answer_is_that_of_a_production_app(
    live: Any, handler: Any, payload: Any
) -> None:
    ours = live(handler)
    production = BedrockAgentCoreApp()
    production.entrypoint(handler)
    theirs = Live(production)
    try:
        assert ours.post(payload) == theirs.post(payload)
    finally:
        theirs.close()


@pytest.mark.parametrize("asynchronous", [False, True], ids=["def", "async def"])
def test_a_production_handler_that_exits_is_an_error_and_the_app_goes_on(
    live: Any, asynchronous: bool
) -> None:
    def plain(payload: dict[str, Any]) -> dict[str, Any]:
        if "exit" in payload:
            sys.exit(payload["exit"])
        return {"said": "hello"}

    async def awaited(payload: dict[str, Any]) -> dict[str, Any]:
        return plain(payload)

    agent = live(awaited if asynchronous else plain)
    status, said = agent.post({"exit": 5})
    assert (status, said) == (500, {"error": "the handler raised SystemExit(5)"})
    assert agent.post({}) == (200, {"said": "hello"})


def test_moto_as_the_store_holds_the_same_result(
    live: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://{host}:{port}")
    client = boto3.client("s3", region_name="us-east-1", endpoint_url=f"http://{host}:{port}")
    try:
        client.create_bucket(Bucket="rollouts")
        agent = live(sync_handler)
        agent.rollout(x=1)
        wait_for(lambda: agent.ping() == "Healthy")
        got = client.get_object(Bucket="rollouts", Key=KEY)
        assert got["ContentType"] == "application/json"
        with got["Body"] as body:
            assert json.load(body)["saw"] == 1
    finally:
        client.close()
        server.stop()


# --- refused before any work ------------------------------------------------------------------

BAD = [
    ({"exp_id": None}, "exp_id"),
    ({"input_id": None}, "input_id"),
    ({"s3_bucket": None}, "s3_bucket"),
    ({"exp_id": "../other"}, "exp_id"),
    ({"exp_id": "/abs"}, "exp_id"),
    ({"input_id": "a//b"}, "input_id"),
    ({"input_id": ""}, "input_id"),
    ({"input_id": "a\nb"}, "input_id"),
    ({"input_id": 7}, "input_id"),
    ({"s3_bucket": "Not_A_Bucket"}, "s3_bucket"),
    ({"done_url": "file:///etc/passwd"}, "done_url"),
    ({"action": "stop"}, "action"),
    ({"action": "status"}, "result_key"),
]


@pytest.mark.parametrize(("change", "field"), BAD, ids=[str(change) for change, _ in BAD])
def test_a_partial_or_hostile_location_is_refused_by_name_before_any_work(
    live: Any, store: Store, change: dict[str, Any], field: str
) -> None:
    ran: list[Any] = []
    agent = live(ran.append)
    status, answer = agent.rollout(rollout=change)
    assert status == 400
    assert field in answer["error"]
    assert agent.ping() == "Healthy"
    assert (ran, store.puts) == ([], [])


def test_a_rollout_without_a_session_or_with_a_block_that_is_no_object_is_refused(
    live: Any,
) -> None:
    agent = live(one)
    status, answer = agent.rollout(session=None)
    assert (status, "session_id" in answer["error"]) == (400, True)
    status, answer = agent.post({"_rollout": "yes"})
    assert (status, "must be an object" in answer["error"]) == (400, True)


def test_a_generator_is_refused_when_it_is_registered() -> None:
    def stream(payload: Any) -> Any:
        yield {"rewards": 1.0}

    async def async_stream(payload: Any) -> Any:
        yield {"rewards": 1.0}

    for handler in (stream, async_stream):
        with pytest.raises(TypeError, match="generator"):
            AgentCoreRLApp().rollout_entrypoint(handler)


# --- the session while it works ---------------------------------------------------------------


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


# --- results ----------------------------------------------------------------------------------


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


# --- construction, logging, forks -------------------------------------------------------------


def test_constructing_needs_no_credentials_and_leaves_logging_threads_and_sockets_alone(
    tmp_path: Path,
) -> None:
    script = """
import logging, os, threading
handler = logging.StreamHandler()
logging.getLogger().addHandler(handler)
from agentcore_rl_toolkit import AgentCoreRLApp
before = len(os.listdir("/proc/self/fd"))
app = AgentCoreRLApp()
app.rollout_entrypoint(lambda payload: {})
app.warm()
assert logging.getLogger().handlers == [handler], logging.getLogger().handlers
assert logging.getLogger().level == logging.WARNING
assert threading.active_count() == 1, threading.enumerate()
assert len(os.listdir("/proc/self/fd")) == before
"""
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "AWS_EC2_METADATA_DISABLED": "true"}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_session_forked_from_a_warmed_app_uses_its_own_environment(
    store: Store, tmp_path: Path
) -> None:
    script = """
import os, sys
from agentcore_rl_toolkit import AgentCoreRLApp
app = AgentCoreRLApp()
app.after_fork(lambda: print("hook in child", os.getpid() != parent, flush=True))
app.warm()
parent = os.getpid()
app.s3_client  # even this one must not be inherited
pid = os.fork()
if pid == 0:
    os.environ.update(AWS_ENDPOINT_URL_S3=sys.argv[1], AWS_ACCESS_KEY_ID="in-session",
                      AWS_SECRET_ACCESS_KEY="local", AWS_REGION="us-west-2")
    client = app.s3_client
    print(client.meta.endpoint_url, client.meta.region_name, flush=True)
    client.put_object(Bucket="rollouts", Key="k", Body=b"{}", ContentType="application/json")
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
"""
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "AWS_EC2_METADATA_DISABLED": "true"}
    done = subprocess.run(
        [sys.executable, "-c", script, store.url], env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["hook in child True", f"{store.url} us-west-2"]
    assert store.puts == ["/rollouts/k"]
    assert store.expected == [None], "the SDK's put, too, is sent at once"


def test_a_warmed_client_serves_a_fork_with_the_same_environment_and_no_other(
    store: Store, tmp_path: Path
) -> None:
    script = """
import os
from agentcore_rl_toolkit import AgentCoreRLApp
app = AgentCoreRLApp()
app.warm()
warmed = app._saver._warmed[1]
for change in ({}, {"AWS_REGION": "us-west-2"}):
    pid = os.fork()
    if pid == 0:
        os.environ.update(change)
        app.s3_client.put_object(Bucket="rollouts", Key="k", Body=b"{}")
        os._exit(0 if (app.s3_client is warmed) == (not change) else 1)
    assert os.waitpid(pid, 0)[1] == 0, change
"""
    env = {k: v for k, v in os.environ.items() if k.startswith("AWS_")}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert store.puts == ["/rollouts/k"] * 2


def test_only_a_large_result_waits_for_leave_to_be_sent(live: Any, store: Store) -> None:
    def handler(payload: dict[str, Any]) -> dict[str, Any]:
        return {"rewards": 1.0, "text": "x" * payload["size"]}

    agent = live(handler)
    for number, size in enumerate((10, saver.SMALL_BYTES)):
        agent.rollout(size=size, rollout={"input_id": f"in-{number}"})
        wait_for(lambda number=number: len(store.expected) == number + 1)
    assert store.expected == [None, "100-continue"]


def test_an_assigned_s3_client_is_used(live: Any, store: Store) -> None:
    class Mine:
        def __init__(self) -> None:
            self.saved: list[dict[str, Any]] = []

        def put_object(self, **arguments: Any) -> None:
            self.saved.append(arguments)

        def close(self) -> None: ...

    app = AgentCoreRLApp()
    app.s3_client = mine = Mine()
    live(one, app).rollout()
    wait_for(lambda: mine.saved)
    assert mine.saved[0]["Bucket"] == "rollouts"
    assert store.puts == []


def test_the_base_arguments_are_taken_and_the_handler_stays_callable() -> None:
    app = AgentCoreRLApp(debug=True)
    assert app.debug
    assert app.rollout_entrypoint(one) is one
    assert one({}) == {"rewards": 1.0}


def test_a_plain_call_of_a_handler_that_needs_a_rollout_says_how_to_call_it(live: Any) -> None:
    status, answer = live(lambda payload: payload["_rollout"]["base_url"]).post({"prompt": "hi"})
    assert status == 500
    assert "art invoke --rollout" in answer["error"]
