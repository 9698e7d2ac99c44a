"""AWS, in two parts: moto for IAM, ECR, STS and S3, the local runtime for AgentCore."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from moto.server import ThreadedMotoServer

from agentcore_rl_toolkit.deploy.step import Account
from agentcore_rl_toolkit.runtime.thread import RuntimeThread

AGENT = """
from agentcore_rl_toolkit import AgentCoreRLApp

app = AgentCoreRLApp()


@app.rollout_entrypoint
def invoke(payload):
    return {"rewards": 1.0, "said": payload.get("prompt")}


if __name__ == "__main__":
    app.run()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "math_agent"
    path.mkdir()
    (path / "rl_app.py").write_text(AGENT)
    (path / ".env").write_text("SECRET=1\n")
    (path / "__pycache__").mkdir()
    (path / "__pycache__" / "rl_app.pyc").write_text("")
    return path


@pytest.fixture(scope="session")
def control(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RuntimeThread]:
    with RuntimeThread(home=tmp_path_factory.mktemp("home"), isolation="process") as runtime:
        yield runtime


@pytest.fixture(scope="session")
def moto_url() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    yield f"http://127.0.0.1:{port}"
    server.stop()


@pytest.fixture
def moto(control: RuntimeThread, moto_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    reset = urllib.request.Request(f"{moto_url}/moto-api/reset", method="POST")
    urllib.request.urlopen(reset, timeout=60).close()
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto_url)
    monkeypatch.setenv("AWS_ENDPOINT_URL_BEDROCK_AGENTCORE_CONTROL", control.url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-west-2")
    return moto_url


@pytest.fixture
def account(moto: str) -> Iterator[Account]:
    found = Account(None)
    yield found
    found.close()
