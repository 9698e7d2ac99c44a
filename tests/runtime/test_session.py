"""Sessions that start badly, end by themselves, or come in numbers."""

from __future__ import annotations

import contextlib
import json
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError, EventStreamError

from agentcore_rl_toolkit import local
from agentcore_rl_toolkit.runtime.isolation.inside import tree
from agentcore_rl_toolkit.runtime.quota import Quota
from agentcore_rl_toolkit.runtime.session import parse_health
from agentcore_rl_toolkit.runtime.thread import RuntimeThread

from .conftest import ROLE, Aws, alive, until


@pytest.fixture
def own(tmp_path: Path, connect: Callable[..., Aws]) -> Iterator[tuple[RuntimeThread, Aws]]:
    with RuntimeThread(home=tmp_path / "home") as runtime:
        yield runtime, connect(runtime.url)


def hurry(runtime: RuntimeThread, seconds: float) -> None:
    """After deployment: importing may take its time on a loaded machine."""
    runtime.server.deployments.init_timeout_s = seconds


def agent(folder: Path, script: str) -> Path:
    folder.mkdir()
    (folder / "rl_app.py").write_text(script)
    return folder


def session_events(runtime: RuntimeThread, session_id: str) -> list[tuple[str, str]]:
    texts = runtime.call(lambda: [e.text for e in runtime.server.events.ring])
    events = [json.loads(t.split(b"data: ")[1]) for t in texts if t.startswith(b"event: session")]
    return [(e["state"], e["reason"]) for e in events if e["session_id"] == session_id]


# --- starts that fail -------------------------------------------------------------------------

DEAF = """
import time, uvicorn
print("loading the weights", flush=True)
async def app(scope, receive, send):
    if scope["type"] == "http":
        time.sleep(60)
uvicorn.run(app, port=8080, log_level="warning")
"""
GARBAGE = """
import asyncio, uvicorn
class Garbage(asyncio.Protocol):
    def __init__(self, **_): pass
    def connection_made(self, transport): self.transport = transport
    def data_received(self, data):
        print("asked", flush=True)
        self.transport.write(b"lorem ipsum\\r\\n\\r\\n")
        self.transport.close()
uvicorn.run(lambda: None, http=Garbage, port=8080, log_level="warning")
"""
UNHEALTHY = """
import uvicorn
async def app(scope, receive, send):
    if scope["type"] == "http":
        print("asked for", scope["path"], flush=True)
        await send({"type": "http.response.start", "status": 500, "headers": []})
        await send({"type": "http.response.body"})
uvicorn.run(app, port=8080, log_level="warning")
"""
DIES_AT_START = """
import os, uvicorn
async def app(scope, receive, send):
    print("no database", flush=True)
    os._exit(3)
uvicorn.run(app, port=8080, log_level="warning")
"""


@pytest.mark.parametrize(
    ("script", "said"),
    [
        pytest.param(DEAF, "initialization time exceeded", id="never answers"),
        pytest.param(GARBAGE, "asked", id="answers garbage"),
        pytest.param(UNHEALTHY, "asked for /ping", id="answers 500"),
        pytest.param(DIES_AT_START, "no database", id="dies when it starts to serve"),
    ],
)
def test_a_session_that_does_not_start_is_424_with_the_end_of_its_log(
    own: tuple[RuntimeThread, Aws], tmp_path: Path, sid: str, script: str, said: str
) -> None:
    runtime, aws = own
    arn = aws.deploy(agent(tmp_path / "agent", script))
    hurry(runtime, 1.0)
    with pytest.raises(aws.data.exceptions.RuntimeClientError, match=said):
        aws.invoke(arn, {}, sid)
    assert aws.sessions() == {}
    assert session_events(runtime, sid) == []


def test_an_agent_s_own_bound_on_its_start_holds(
    own: tuple[RuntimeThread, Aws], tmp_path: Path, sid: str
) -> None:
    _, aws = own
    bound = {"ART_INIT_S": "3"}
    arn = aws.deploy(agent(tmp_path / "agent", DEAF), environmentVariables=bound)
    with pytest.raises(aws.data.exceptions.RuntimeClientError, match="initialization time"):
        aws.invoke(arn, {}, sid)


def test_a_failed_start_tells_how_the_agent_ended(
    own: tuple[RuntimeThread, Aws], tmp_path: Path, sid: str
) -> None:
    _, aws = own
    arn = aws.deploy(agent(tmp_path / "agent", DIES_AT_START))
    with pytest.raises(ClientError, match="exit code 3"):
        aws.invoke(arn, {}, sid)


def test_too_many_sessions_are_refused_as_aws_does(
    tmp_path: Path, connect: Callable[..., Aws], new_session: Callable[[], str]
) -> None:
    with RuntimeThread(home=tmp_path / "home", quota=Quota(max_sessions=1)) as runtime:
        aws = connect(runtime.url)
        arn = aws.deploy()
        first = new_session()
        aws.ask(arn, {}, first)
        with pytest.raises(aws.data.exceptions.ServiceQuotaExceededException) as refused:
            aws.invoke(arn, {}, new_session())
        assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 402
        aws.ask(arn, {}, first)
        aws.stop(arn, first)
        second = new_session()
        aws.ask(arn, {}, second)


# --- ends -------------------------------------------------------------------------------------


def deploy_with(aws: Aws, idle_s: int, lifetime_s: int = 28_800) -> str:
    """By hand: boto3 does not let timeouts under 60 s pass."""
    lifecycle = {"idleRuntimeSessionTimeout": idle_s, "maxLifetime": lifetime_s}
    body = {
        "agentRuntimeName": f"agent_{uuid.uuid4().hex[:8]}",
        **aws.body(),
        "roleArn": ROLE,
        "lifecycleConfiguration": lifecycle,
    }
    request = urllib.request.Request(
        aws.url + "/runtimes/", data=json.dumps(body).encode(), method="PUT"
    )
    with urllib.request.urlopen(request) as answer:
        runtime_id = json.loads(answer.read())["agentRuntimeId"]
    aws.created.append(runtime_id)
    aws.settled(runtime_id)
    return local.runtime_arn(runtime_id)


def test_an_idle_session_is_stopped_and_can_be_revived(
    shared_runtime: RuntimeThread, aws: Aws, sid: str
) -> None:
    arn = deploy_with(aws, idle_s=1)
    aws.ask(arn, {}, sid)
    pid = aws.host_pid(sid)
    until(lambda: not alive(pid), "the idle session is stopped")
    until(lambda: sid not in aws.sessions(), "the table forgets it")
    assert session_events(shared_runtime, sid) == [("started", ""), ("stopped", "idle for 1 s")]
    assert aws.ask(arn, {}, sid)["calls"] == 1
    aws.stop(arn, sid)


def test_a_busy_session_is_not_idle(aws: Aws, new_session: Callable[[], str]) -> None:
    arn = deploy_with(aws, idle_s=1)
    busy, idle = new_session(), new_session()
    aws.ask(arn, {"busy": True}, busy)
    for _ in range(2):  # one idle session ends after the other, and the busy one outlives both
        aws.ask(arn, {}, idle)
        until(lambda: idle not in aws.sessions(), "the idle one is stopped")
    assert aws.sessions()[busy]["state"] == "active"
    aws.ask(arn, {"busy": False}, busy)
    until(lambda: busy not in aws.sessions(), "it is stopped once it says Healthy")


def test_a_session_at_the_end_of_its_lifetime_is_lost_when_it_worked(
    shared_runtime: RuntimeThread, aws: Aws, sid: str
) -> None:
    arn = deploy_with(aws, idle_s=1, lifetime_s=1)
    with pytest.raises(aws.data.exceptions.RuntimeClientError):
        aws.invoke(arn, {"wait": "never"}, sid)
    until(lambda: len(session_events(shared_runtime, sid)) == 2, "its end is told")
    assert session_events(shared_runtime, sid)[1] == ("lost", "maxLifetime of 1 s reached")


def test_the_lifetime_ends_a_session_in_which_a_command_runs(
    shared_runtime: RuntimeThread, aws: Aws, sid: str
) -> None:
    arn = deploy_with(aws, idle_s=1, lifetime_s=3)
    answer = aws.data.invoke_agent_runtime_command(
        agentRuntimeArn=arn,
        runtimeSessionId=sid,
        body={"command": "/bin/sh -c 'echo begun; exec sleep 3600'"},
    )
    with contextlib.closing(answer["stream"]) as stream:
        said = iter(stream)
        assert next(said)["chunk"] == {"contentStart": {}}
        assert next(said)["chunk"] == {"contentDelta": {"stdout": "begun\n"}}
        pids = tree.descendants(aws.host_pid(sid))
        with pytest.raises(EventStreamError, match="The command was lost"):
            list(said)
    until(lambda: len(session_events(shared_runtime, sid)) == 2, "its end is told")
    assert session_events(shared_runtime, sid)[1] == ("lost", "maxLifetime of 3 s reached")
    assert len(pids) > 1
    assert not any(alive(pid) for pid in pids)


@pytest.mark.parametrize(
    ("raw", "busy", "unchanged"),
    [
        (b'{"status": "Healthy"}', False, None),
        (b'{"status": "HealthyBusy", "time_of_last_update": 90}', True, 10.0),
        (b'{"status": "Healthy", "time_of_last_update": "soon"}', False, None),
        (b"fine", False, None),
        (b"[1]", False, None),
    ],
)
def test_health_is_read_leniently(raw: bytes, busy: bool, unchanged: float | None) -> None:
    assert parse_health(raw, now=100.0) == (busy, unchanged)


# --- many -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_hundred_sessions_at_once_come_and_go(aws: Aws, asgi_arn: str) -> None:
    ids = [str(uuid.uuid4()) for _ in range(100)]
    with ThreadPoolExecutor(100) as pool:
        answers = list(pool.map(lambda s: aws.ask(asgi_arn, {}, s), ids))
        assert [one["calls"] for one in answers] == [1] * 100
        live = aws.sessions()
        pids = {live[one]["pid"] for one in ids}
        assert len(pids) == 100
        stopped = pool.map(lambda s: aws.stop(asgi_arn, s)["statusCode"], ids)
        assert set(stopped) == {200}
    assert not [pid for pid in pids if alive(pid)]
    assert not set(ids) & set(aws.sessions())


def test_a_runtime_that_stops_while_sessions_start_leaves_none_of_them(
    tmp_path: Path, connect: Callable[..., Aws]
) -> None:
    never_ready = """
import time, uvicorn
async def app(scope, receive, send):
    time.sleep(60)
uvicorn.run(app, port=8080, log_level="warning")
"""
    before = children()
    with RuntimeThread(home=tmp_path / "home") as runtime, ThreadPoolExecutor(12) as pool:
        aws = connect(runtime.url)
        arn = aws.deploy(agent(tmp_path / "agent", never_ready))
        calls = [pool.submit(aws.invoke, arn, {}, str(uuid.uuid4())) for _ in range(12)]
        until(lambda: len(aws.sessions()) == 12, "some start, the others wait for their turn")
        runtime.stop()
        for call in calls:
            with pytest.raises((ClientError, BotoCoreError)):
                call.result(20)
    until(lambda: children() <= before, "no process of it is left")


def children() -> set[int]:
    """A child is listed under the thread that made it."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        try:
            found |= {int(pid) for pid in (task / "children").read_text().split()}
        except OSError:
            continue
    return found


# --- what can be seen -------------------------------------------------------------------------


def get_text(url: str) -> str:
    with urllib.request.urlopen(url) as answer:
        return str(answer.read().decode())


def test_the_runtime_tells_what_it_is(aws: Aws) -> None:
    about: dict[str, Any] = aws.get("/_art/")
    assert about["service"] == "agentcore-rl-toolkit"
    assert about["region"] == "local"
    assert about["isolation"]["level"] in ("process", "namespace", "microvm")


def test_a_session_can_be_looked_at_and_its_log_outlives_it(
    aws: Aws, asgi_arn: str, sid: str
) -> None:
    aws.ask(asgi_arn, {}, sid)
    seen = aws.get(f"/_art/sessions/{sid}")
    assert seen["runtime_id"] == local.parse_arn(asgi_arn).runtime_id
    assert seen["version"] == "1"
    assert seen["memory_bytes"] > 1_000_000
    assert alive(seen["pid"])
    aws.stop(asgi_arn, sid)
    get_text(f"{aws.url}/_art/sessions/{sid}/log")


@pytest.mark.parametrize("path", ["sessions/" + "a" * 40, "sessions/" + "a" * 40 + "/log", "x"])
def test_what_is_not_there_is_not_found(aws: Aws, path: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        get_text(f"{aws.url}/_art/{path}")
    with refused.value as answer:
        assert answer.code == 404


def test_a_log_name_cannot_climb(aws: Aws) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        get_text(f"{aws.url}/_art/sessions/..%2F..%2Fregistry/log")
    with refused.value as answer:
        assert answer.code in (400, 404)
