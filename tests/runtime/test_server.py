"""The server as a process: what it leaves on disk, how it ends, what survives it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from agentcore_rl_toolkit import local
from agentcore_rl_toolkit.errors import ConfigError, RuntimeServiceError
from agentcore_rl_toolkit.runtime.server import RuntimeServer
from agentcore_rl_toolkit.runtime.thread import RuntimeThread

from .conftest import AGENTS, Aws, alive, until

Connect = Callable[..., Aws]


class Process:
    """``python -m agentcore_rl_toolkit.runtime`` on a free port."""

    def __init__(self, home: Path, tmp: Path) -> None:
        tmp.mkdir(exist_ok=True)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "agentcore_rl_toolkit.runtime", "--port", "0", "--home", home],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(tmp)},
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert "http://" in line, self.process.communicate()[1]
        self.url = line.split()[-1]

    def end(self, number: int) -> tuple[int, str]:
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=60)
        return self.process.returncode, errors


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], Process]]:
    started: list[Process] = []

    def one() -> Process:
        started.append(Process(tmp_path / "home", tmp_path / "tmp"))
        return started[-1]

    yield one
    for process in started:
        if process.process.poll() is None:
            process.end(signal.SIGKILL)


def descendants(pid: int) -> set[int]:
    found: set[int] = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            stat = (entry / "stat").read_text()
        except OSError:
            continue
        if int(stat.rpartition(")")[2].split()[1]) == pid:
            found |= {int(entry.name)} | descendants(int(entry.name))
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly_with_all_sessions(
    start: Callable[[], Process],
    connect: Connect,
    tmp_path: Path,
    new_session: Callable[[], str],
    number: int,
) -> None:
    runtime = start()
    aws = connect(runtime.url)
    state = json.loads((tmp_path / "home" / "runtime.json").read_text())
    assert state["endpoint_url"] == runtime.url
    assert state["pid"] == runtime.process.pid
    arn = aws.deploy()
    for _ in range(3):
        aws.ask(arn, {}, new_session())
    below = descendants(runtime.process.pid)
    assert {one["pid"] for one in aws.sessions().values()} <= below
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(aws.ask, arn, {"wait": "never"}, new_session())
        events = urllib.request.urlopen(runtime.url + "/_art/events", timeout=60)
        until(lambda: any(s["in_flight"] for s in aws.sessions().values()), "it is in flight")
        began = time.monotonic()
        code, errors = runtime.end(number)
        assert (code, errors) == (0, "")
        assert time.monotonic() - began < 10
        with pytest.raises((ClientError, BotoCoreError)):
            waiting.result()
        events.close()
    assert not [pid for pid in below if alive(pid)]
    assert not (tmp_path / "home" / "runtime.json").exists()


def test_after_a_kill_nothing_runs_on_and_a_restart_has_registrations_and_objects(
    start: Callable[[], Process],
    connect: Connect,
    tmp_path: Path,
    new_session: Callable[[], str],
) -> None:
    first = start()
    aws = connect(first.url)
    arn = aws.deploy(name="survivor", tags={"a": "b"})
    aws.s3.put_object(Bucket="rollouts", Key="exp/1.json", Body=b'{"rewards": 1}')
    session_id = new_session()
    aws.ask(arn, {}, session_id)
    [aws.ask(arn, {}, new_session()) for _ in range(3)]
    below = descendants(first.process.pid)
    assert len(below) >= 4
    first.end(signal.SIGKILL)
    until(lambda: not [pid for pid in below if alive(pid)], "every process of it is gone")

    second = start()
    again = connect(second.url)
    assert again.sessions() == {}
    found = again.control.get_agent_runtime(agentRuntimeId=local.parse_arn(arn).runtime_id)
    assert found["status"] == "READY"
    assert again.control.list_tags_for_resource(resourceArn=arn)["tags"] == {"a": "b"}
    stored = again.s3.get_object(Bucket="rollouts", Key="exp/1.json")["Body"]
    assert stored.read() == b'{"rewards": 1}'
    seen = again.ask(arn, {}, session_id)
    assert seen["calls"] == 1
    assert seen["env"]["AWS_ENDPOINT_URL_S3"] == second.url
    log = tmp_path / "home" / "runtime" / "logs" / f"{session_id}.log"
    assert log.exists()
    assert second.end(signal.SIGTERM) == (0, "")
    assert [p for p in (tmp_path / "tmp").glob("*/*") if p.name.isdecimal()] == []  # scratch


def test_a_second_runtime_on_the_same_folder_is_refused_and_harms_nothing(
    start: Callable[[], Process], connect: Connect, tmp_path: Path
) -> None:
    runtime = start()
    command = [sys.executable, "-m", "agentcore_rl_toolkit.runtime", "--port", "0", "--home"]
    second = subprocess.run(
        [*command, tmp_path / "home"], capture_output=True, text=True, timeout=20
    )
    assert second.returncode == 1
    assert f"pid {runtime.process.pid}" in second.stderr
    assert "--home" in second.stderr
    assert "Traceback" not in second.stderr
    assert (tmp_path / "home" / "runtime.json").exists()
    assert connect(runtime.url).get("/_art/")["pid"] == runtime.process.pid
    assert runtime.end(signal.SIGTERM)[0] == 0


async def test_a_taken_port_is_told_and_leaves_the_folder_free(tmp_path: Path) -> None:
    async with RuntimeServer(port=0, home=tmp_path / "a") as first:
        with pytest.raises(RuntimeServiceError, match="--port 0"):
            await RuntimeServer(port=first.port, home=tmp_path / "b").start()
        async with RuntimeServer(port=0, home=tmp_path / "b") as second:
            assert second.port != first.port


async def test_starting_and_stopping_in_a_program(tmp_path: Path) -> None:
    for _ in range(2):
        async with RuntimeServer(port=0, home=tmp_path) as runtime:
            assert runtime.url.startswith("http://127.0.0.1:")
            assert (tmp_path / "runtime.json").exists()
        await runtime.stop()
        assert not (tmp_path / "runtime.json").exists()


def test_the_state_folder_is_private(tmp_path: Path) -> None:
    with RuntimeThread(home=tmp_path / "home"):
        assert (tmp_path / "home").stat().st_mode & 0o777 == 0o700


def test_a_thread_raises_what_stopped_it_from_starting(tmp_path: Path) -> None:
    with (
        RuntimeThread(home=tmp_path),
        pytest.raises(RuntimeServiceError, match="already uses"),
    ):
        RuntimeThread(home=tmp_path).start()


async def test_an_unknown_isolation_level_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="isolation must be one of"):
        RuntimeServer(port=0, home=tmp_path, isolation="strong")


# --- who may speak to it ----------------------------------------------------------------------


def status(url: str, path: str, headers: dict[str, str]) -> tuple[int, Any]:
    where = urlsplit(url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=60)
    connection.putrequest("GET", path, skip_host=True)
    for name, value in {"Host": where.netloc, **headers}.items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body


@pytest.mark.parametrize("path", ["/_art/", "/runtimes/", "/rollouts?list-type=2"])
@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"Host": "evil.example"}, id="a rebound name"),
        pytest.param({"Host": "evil.example:8585"}, id="a rebound name with a port"),
        pytest.param({"Host": "192.168.1.5"}, id="another address"),
        pytest.param({"Host": ""}, id="no host"),
        pytest.param({"Host": "[::"}, id="a broken host"),
        pytest.param({"Origin": "https://evil.example"}, id="a page"),
        pytest.param({"Origin": "null"}, id="a page without an origin"),
        pytest.param({"Origin": "http://127.0.0.1:8585"}, id="a page of this very address"),
        pytest.param({"Sec-Fetch-Site": "cross-site"}, id="a browser that hides its origin"),
    ],
)
def test_browsers_and_rebound_names_are_refused(
    aws: Aws, path: str, headers: dict[str, str]
) -> None:
    code, body = status(aws.url, path, headers)
    assert code == 403
    assert b"The local runtime" in body


@pytest.mark.parametrize("host", ["localhost", "localhost:1", "127.0.0.1", "127.8.8.8", "[::1]:5"])
def test_every_name_of_loopback_is_answered(aws: Aws, host: str) -> None:
    assert status(aws.url, "/_art/", {"Host": host})[0] == 200


def test_a_result_written_by_boto3_is_announced_with_its_session(
    aws: Aws, asgi_arn: str, sid: str
) -> None:
    aws.ask(asgi_arn, {}, sid)
    with urllib.request.urlopen(aws.url + "/_art/events?bucket=rollouts", timeout=60) as events:
        while events.readline() != b"event: hello\n":
            pass
        aws.s3.put_object(
            Bucket="rollouts",
            Key=f"exp/1/{sid}.json",
            Body=b'{"rewards": 1}',
            ContentType="application/json",
        )
        while events.readline() != b"event: result\n":
            pass
        head, body = events.readline(), events.readline()
    assert json.loads(head.removeprefix(b"data: "))["session_id"] == sid
    assert body == b'data: {"rewards": 1}\n'
    aws.stop(asgi_arn, sid)


def test_a_whole_rollout_through_the_store(aws: Aws, sid: str) -> None:
    arn = aws.deploy(AGENTS / "echo_agent")
    rollout = {"exp_id": "exp", "input_id": "7", "s3_bucket": "rollouts"}
    accepted = aws.ask(arn, {"prompt": "x", "_rollout": rollout}, sid)
    assert accepted["status"] == "processing"

    def saved() -> Any:
        try:
            return aws.s3.get_object(Bucket="rollouts", Key=accepted["result_key"])["Body"].read()
        except ClientError:
            return None

    assert json.loads(until(saved, "the result is stored"))["rewards"] == 1.0
    aws.stop(arn, sid)
