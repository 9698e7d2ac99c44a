"""The real app behind a real HTTP server, saving into a store that can be told to fail."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import boto3
import pytest
import uvicorn

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
