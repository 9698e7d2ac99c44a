"""``art doctor --from-session``: what a session reaches, asked from inside one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentcore_rl_toolkit.cli.deploy import control_client, register
from agentcore_rl_toolkit.cli.reach import advice, check_reach
from agentcore_rl_toolkit.errors import ConfigError
from agentcore_rl_toolkit.runtime.thread import RuntimeThread

ECHO = Path(__file__).resolve().parents[1] / "agents" / "echo_agent"
AWS = "arn:aws:bedrock-agentcore:us-east-1:123456789012:runtime/agent-0123456789"


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RuntimeThread]:
    with RuntimeThread(home=tmp_path_factory.mktemp("home"), isolation="process") as runtime:
        yield runtime


@pytest.fixture(scope="module")
def arn(runtime: RuntimeThread) -> str:
    control = control_client(runtime.url)
    made = register(control, "echo", ECHO, "rl_app.py", {})
    control.close()
    return str(made["agentRuntimeArn"])


def test_an_answer_is_reached_whatever_it_says(runtime: RuntimeThread, arn: str) -> None:
    found = check_reach(arn, runtime.url, runtime.url)
    assert found.state == "ok", found.said


def test_silence_is_not_reached_and_says_what_to_do(runtime: RuntimeThread, arn: str) -> None:
    found = check_reach(arn, "http://127.0.0.1:9/v1", runtime.url)
    assert found.state == "no"
    assert "refused" in found.said
    assert "ART_NETWORK" in found.said


def test_the_advice_fits_the_place() -> None:
    assert "tunnel" in advice(AWS, "http://127.0.0.1:8000/v1/models")
    assert "VPC" in advice(AWS, "https://gateway.example.com/v1/models")


def test_without_an_address_there_is_nothing_to_ask() -> None:
    with pytest.raises(ConfigError, match="--base-url"):
        check_reach(AWS, None, None)
