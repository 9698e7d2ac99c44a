"""A runtime with a light agent, found as a user's program finds it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentcore_rl_toolkit.runtime.thread import RuntimeThread
from agentcore_rl_toolkit.sandbox import Sandbox, SandboxClient

from ..runtime.conftest import Aws


@pytest.fixture(scope="session")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RuntimeThread]:
    with RuntimeThread(home=tmp_path_factory.mktemp("home")) as server:
        yield server


@pytest.fixture(scope="session")
def aws(runtime: RuntimeThread) -> Iterator[Aws]:
    clients = Aws(runtime.url)
    yield clients
    clients.close()


@pytest.fixture(scope="session")
def arn(aws: Aws) -> str:
    return aws.deploy(name="box")


@pytest.fixture
def client(aws: Aws, arn: str) -> Iterator[SandboxClient]:
    with SandboxClient(arn, endpoint_url=aws.url) as made:
        yield made


@pytest.fixture
def sandbox(client: SandboxClient) -> Iterator[Sandbox]:
    with client.start() as made:
        yield made


@pytest.fixture
def big(tmp_path: Path) -> Path:
    path = tmp_path / "big"
    path.write_bytes(bytes(range(256)) * 1200)
    return path
