"""A runtime in a thread, and plain boto3 in front of it."""

from __future__ import annotations

import json
import os
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config

from agentcore_rl_toolkit import local
from agentcore_rl_toolkit.runtime.thread import RuntimeThread

AGENTS = Path(__file__).parents[1] / "agents"
ASGI_AGENT = Path(__file__).parent / "asgi_agent"
PROCESS = {"ART_ISOLATION": "process"}
"""For agents that a test talks to through files or process ids."""
ROLE = "arn:aws:iam::000000000000:role/local"


def until(condition: Callable[[], Any], what: str, within_s: float = 60.0) -> Any:
    """Polls; the value of the condition once it is true."""
    deadline = time.monotonic() + within_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.01)
    return value


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


class Aws:
    """boto3 clients of one runtime, and the few steps that every test begins with."""

    def __init__(self, url: str, **config: Any) -> None:
        options = Config(
            read_timeout=config.pop("read_timeout", 30),
            retries=config.pop("retries", {"mode": "standard", "total_max_attempts": 1}),
            max_pool_connections=120,
        )
        common = {"endpoint_url": url, "region_name": "us-east-1", **local.CREDENTIALS}
        self.url = url
        self.created: list[str] = []
        self.control = boto3.client("bedrock-agentcore-control", config=options, **common)
        self.data = boto3.client("bedrock-agentcore", config=options, **common)
        self.s3 = boto3.client("s3", config=options, **common)

    def create(self, folder: Path = ASGI_AGENT, name: str = "", **blocks: Any) -> str:
        """Runtime id of a new registration, in whatever state it is."""
        entry = blocks.pop("entry", "rl_app.py")
        made = self.control.create_agent_runtime(
            agentRuntimeName=name or f"agent_{uuid.uuid4().hex[:8]}",
            **self.body(folder, entry, **blocks),
        )
        self.created.append(made["agentRuntimeId"])
        return self.created[-1]

    def body(self, folder: Path = ASGI_AGENT, entry: str = "rl_app.py", **blocks: Any) -> Any:
        uri = f"{folder.absolute().as_uri()}#{entry}"
        artifact = {"containerConfiguration": {"containerUri": uri}}
        return {"agentRuntimeArtifact": artifact, "roleArn": ROLE, **blocks}

    def settled(self, runtime_id: str) -> dict[str, Any]:
        def get() -> Any:
            found = self.control.get_agent_runtime(agentRuntimeId=runtime_id)
            return None if found["status"] in ("CREATING", "UPDATING") else found

        return dict(until(get, "the runtime settles", 30))

    def deploy(self, folder: Path = ASGI_AGENT, **blocks: Any) -> str:
        runtime_id = self.create(folder, **blocks)
        found = self.settled(runtime_id)
        assert found["status"] == "READY", found.get("failureReason")
        return local.runtime_arn(runtime_id)

    def invoke(self, arn: str, payload: Any, session_id: str, **options: Any) -> Any:
        body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        return self.data.invoke_agent_runtime(
            agentRuntimeArn=arn, runtimeSessionId=session_id, payload=body, **options
        )

    def ask(self, arn: str, payload: Any, session_id: str, **options: Any) -> Any:
        return json.loads(self.invoke(arn, payload, session_id, **options)["response"].read())

    def stop(self, arn: str, session_id: str, **options: Any) -> Any:
        return self.data.stop_runtime_session(
            agentRuntimeArn=arn, runtimeSessionId=session_id, **options
        )

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(self.url + path, timeout=60) as answer:
            return json.loads(answer.read())

    def sessions(self) -> dict[str, Any]:
        return {s["session_id"]: s for s in self.get("/_art/sessions")["sessions"]}

    def log(self, session_id: str) -> str:
        url = f"{self.url}/_art/sessions/{session_id}/log"
        with urllib.request.urlopen(url, timeout=60) as answer:
            return str(answer.read().decode())

    def host_pid(self, session_id: str) -> int:
        """Of the session's first process; inside, the agent may count from 1."""
        return int(self.sessions()[session_id]["pid"])

    def forget(self, *kept: str) -> None:
        """Deletes what was registered: every registration keeps a warmed process."""
        doomed = [one for one in self.created if one not in kept]
        self.created = [one for one in self.created if one in kept]
        for runtime_id in doomed:
            try:
                self.settled(runtime_id)
                self.control.delete_agent_runtime(agentRuntimeId=runtime_id)
            except self.control.exceptions.ResourceNotFoundException:
                pass

    def close(self) -> None:
        for client in (self.control, self.data, self.s3):
            client.close()


@pytest.fixture
def new_session() -> Callable[[], str]:
    return lambda: str(uuid.uuid4())


@pytest.fixture
def sid() -> str:
    return str(uuid.uuid4())


@pytest.fixture(scope="session")
def shared_runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RuntimeThread]:
    """For tests that leave nothing behind but sessions and registrations of their own."""
    home = tmp_path_factory.mktemp("home")
    level = os.environ.get("ART_TEST_ISOLATION", "auto")
    with RuntimeThread(home=home, isolation=level) as runtime:
        yield runtime


@pytest.fixture(scope="session")
def shared_aws(shared_runtime: RuntimeThread) -> Iterator[Aws]:
    clients = Aws(shared_runtime.url)
    yield clients
    clients.close()


@pytest.fixture(scope="session")
def asgi_arn(shared_aws: Aws) -> str:
    return shared_aws.deploy(name="asgi")


@pytest.fixture
def aws(shared_aws: Aws, asgi_arn: str) -> Iterator[Aws]:
    yield shared_aws
    shared_aws.forget(local.parse_arn(asgi_arn).runtime_id)


@pytest.fixture
def connect() -> Iterator[Callable[..., Aws]]:
    """More clients, of another runtime or with other settings."""
    opened: list[Aws] = []

    def make(url: str, **config: Any) -> Aws:
        opened.append(Aws(url, **config))
        return opened[-1]

    yield make
    for clients in opened:
        clients.close()
