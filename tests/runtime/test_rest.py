"""Sessions that rest are frozen, and only those."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentcore_rl_toolkit.runtime.rest import Rest, Traffic

from .conftest import Aws, alive, until

SOON = {"ART_FREEZE_S": "0.3"}
RESTLESS = """
import asyncio, json, os, subprocess, threading, time, urllib.request
import uvicorn

kept = []

def spin():
    while True:
        pass

def call():
    with urllib.request.urlopen(os.environ["MODEL_URL"]) as answer:
        while line := answer.readline():
            print("heard", line.decode(), end="", flush=True)

def sleep():
    for number in range(2):
        time.sleep(2)
        print("slept", number, flush=True)

async def later():
    for number in range(2):
        await asyncio.sleep(2)
        print("slept", number, flush=True)

def wait():
    threading.Event().wait(3600)

def child():
    subprocess.Popen(["sleep", "3600"])

async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    body = (await receive()).get("body") or b"{}"
    if scope["path"] == "/ping":
        answer = {"status": "Healthy"}
    else:
        work = json.loads(body).get("work")
        if work == "later":
            kept.append(asyncio.create_task(later()))
        elif work:
            threading.Thread(target=globals()[work], daemon=True).start()
        answer = {"work": work}
    raw = json.dumps(answer).encode()
    length = [(b"content-length", b"%d" % len(raw))]
    await send({"type": "http.response.start", "status": 200, "headers": length})
    await send({"type": "http.response.body", "body": raw})

if __name__ == "__main__":
    uvicorn.run(app, port=8080, log_level="warning")
"""
"""Answers at once, works on, and never says that it is busy."""


@pytest.fixture
def restless(tmp_path: Path) -> Path:
    (tmp_path / "rl_app.py").write_text(RESTLESS)
    return tmp_path


def state(aws: Aws, session_id: str) -> str:
    return str(aws.sessions()[session_id]["state"])


def frozen(aws: Aws, *session_ids: str) -> None:
    if {aws.sessions()[one]["isolation"] for one in session_ids} != {"namespace"}:
        pytest.skip("sessions that share the machine's network are not frozen")
    until(lambda: {state(aws, one) for one in session_ids} == {"frozen"}, "it is frozen")


def test_a_resting_session_is_frozen_and_answers_again(aws: Aws, sid: str) -> None:
    arn = aws.deploy(environmentVariables=SOON)
    aws.ask(arn, {}, sid)
    for calls in (2, 3):
        frozen(aws, sid)
        before = aws.sessions()[sid]["cpu_s"]
        assert aws.sessions()[sid]["memory_bytes"] > 0
        assert aws.sessions()[sid]["cpu_s"] == before
        assert aws.ask(arn, {}, sid)["calls"] == calls
    aws.stop(arn, sid)


def test_many_calls_at_once_thaw_a_session_once(aws: Aws, sid: str) -> None:
    arn = aws.deploy(environmentVariables=SOON)
    aws.ask(arn, {}, sid)
    frozen(aws, sid)
    answers: list[int] = []
    threads = [
        threading.Thread(target=lambda: answers.append(aws.ask(arn, {}, sid)["calls"]))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == list(range(2, 10))


def test_a_frozen_session_is_stopped(aws: Aws, sid: str) -> None:
    arn = aws.deploy(environmentVariables=SOON)
    aws.ask(arn, {}, sid)
    frozen(aws, sid)
    pid = aws.host_pid(sid)
    aws.stop(arn, sid)
    assert not alive(pid)


def test_a_busy_session_is_not_frozen(aws: Aws, new_session: Callable[[], str]) -> None:
    arn = aws.deploy(environmentVariables=SOON)
    busy, idle = new_session(), new_session()
    aws.ask(arn, {"busy": True}, busy)
    aws.ask(arn, {}, idle)
    frozen(aws, idle)
    aws.ask(arn, {}, idle)
    frozen(aws, idle)
    assert state(aws, busy) == "active"
    aws.ask(arn, {"busy": False}, busy)
    frozen(aws, busy)


def test_freezing_can_be_switched_off(aws: Aws, new_session: Callable[[], str]) -> None:
    never, soon = (aws.deploy(environmentVariables=one) for one in ({"ART_FREEZE_S": "0"}, SOON))
    awake, asleep = new_session(), new_session()
    aws.ask(never, {}, awake)
    aws.ask(soon, {}, asleep)
    frozen(aws, asleep)
    assert state(aws, awake) == "idle"


def test_a_setting_that_is_no_time_is_refused(aws: Aws) -> None:
    found = pytest.raises(aws.control.exceptions.ValidationException, match="ART_FREEZE_S")
    with found:
        aws.create(environmentVariables={"ART_FREEZE_S": "soon"})


@pytest.mark.parametrize("work", ["spin", "wait", "child"])
def test_work_that_nobody_reports_keeps_a_session_awake(
    work: str, aws: Aws, restless: Path, new_session: Callable[[], str]
) -> None:
    arn = aws.deploy(restless, environmentVariables=SOON)
    working, idle = new_session(), new_session()
    aws.ask(arn, {"work": work}, working)
    for _ in range(2):
        aws.ask(arn, {}, idle)
        frozen(aws, idle)
    assert state(aws, working) == "idle"
    aws.stop(arn, working)


@pytest.mark.parametrize("work", ["sleep", "later"], ids=["in a thread", "in the server's loop"])
def test_work_that_only_sleeps_goes_on_and_rests_when_it_is_done(
    work: str, aws: Aws, restless: Path, sid: str
) -> None:
    arn = aws.deploy(restless, environmentVariables=SOON)
    aws.ask(arn, {"work": work}, sid)
    frozen(aws, sid)
    assert "slept 1" in aws.log(sid)


@pytest.fixture
def model() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(10)
        yield listener


def test_a_call_that_waits_for_its_answer_keeps_a_session_awake(
    aws: Aws, restless: Path, model: socket.socket, new_session: Callable[[], str]
) -> None:
    url = f"http://127.0.0.1:{model.getsockname()[1]}/"
    arn = aws.deploy(restless, environmentVariables={**SOON, "MODEL_URL": url})
    asking, idle = new_session(), new_session()
    aws.ask(arn, {"work": "call"}, asking)
    connection, _ = model.accept()
    for _ in range(2):
        aws.ask(arn, {}, idle)
        frozen(aws, idle)
    assert state(aws, asking) == "idle"
    with connection:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    frozen(aws, asking)


def test_what_comes_through_a_door_wakes_a_session(
    aws: Aws, restless: Path, model: socket.socket, sid: str
) -> None:
    url = f"http://127.0.0.1:{model.getsockname()[1]}/"
    arn = aws.deploy(restless, environmentVariables={**SOON, "MODEL_URL": url})
    aws.ask(arn, {"work": "call"}, sid)
    connection, _ = model.accept()
    with connection:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\none\n")
        frozen(aws, sid)
        assert "heard one" in aws.log(sid)
        connection.sendall(b"two\n")
        until(lambda: "heard two" in aws.log(sid), "it hears the rest")


def test_a_session_that_shares_the_machines_network_is_not_frozen(
    aws: Aws, new_session: Callable[[], str]
) -> None:
    shared, idle = new_session(), new_session()
    aws.ask(aws.deploy(environmentVariables={**SOON, "ART_NETWORK": "open"}), {}, shared)
    arn = aws.deploy(environmentVariables=SOON)
    for _ in range(2):
        aws.ask(arn, {}, idle)
        frozen(aws, idle)
    assert state(aws, shared) == "idle"


def test_rest_is_seen_between_two_looks() -> None:
    rest, traffic = Rest(5.0, since=0.0), Traffic()
    assert not rest.due(4.9, idle_since=0.0)
    assert rest.due(5.0, idle_since=0.0)
    assert not rest.due(5.0, idle_since=1.0)
    assert not rest.look(5.0, 1.0, traffic), "there is nothing to compare with"
    assert not rest.due(9.0, idle_since=0.0)
    assert rest.look(10.0, 1.1, traffic)
    assert not rest.look(20.0, 1.5, traffic), "it has worked"
    traffic.asked.add("a connection")
    assert not rest.look(30.0, 1.5, traffic)
    traffic.asked.clear()
    traffic.last = 38.0
    assert not rest.look(40.0, 1.5, traffic)
    assert rest.look(50.0, 1.5, traffic)
    assert not Rest(0.0, since=0.0).due(1e9, idle_since=0.0)


SLOW_PING = """
import asyncio, uvicorn

asking = 0

async def app(scope, receive, send):
    global asking
    if scope["type"] != "http":
        return
    if scope["path"] == "/ping":
        asking += 1
        print("asked", asking, "at once", flush=True)
        await asyncio.sleep(0.8)
        asking -= 1
    length = [(b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": length})
    await send({"type": "http.response.body", "body": b"{}"})

if __name__ == "__main__":
    uvicorn.run(app, port=8080, log_level="warning")
"""


def test_a_session_is_asked_once_at_a_time(aws: Aws, tmp_path: Path, sid: str) -> None:
    """A second question would meet a session that the first one's answer has frozen."""
    (tmp_path / "rl_app.py").write_text(SLOW_PING)
    arn = aws.deploy(tmp_path, environmentVariables=SOON)
    for _ in range(2):
        aws.ask(arn, {}, sid)
        frozen(aws, sid)
    assert "asked 1 at once" in aws.log(sid)
    assert "asked 2 at once" not in aws.log(sid)
    aws.stop(arn, sid)
