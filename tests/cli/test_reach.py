"""``art doctor --from-session``: what a session reaches, asked from inside one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from agentcore_rl_toolkit.cli.deploy import control_client, register
from agentcore_rl_toolkit.cli.reach import advice, check_reach
from agentcore_rl_toolkit.errors import ConfigError
from agentcore_rl_toolkit.runtime.isolation import drivers
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


@pytest.mark.skipif(
    not drivers()["namespace"].probe().available, reason="no network of its own for a session here"
)
def test_a_model_on_this_machine_is_reached_from_a_network_of_its_own(tmp_path: Path) -> None:
    model = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)  # answers 501
    serving = threading.Thread(target=model.serve_forever)
    serving.start()
    try:
        with RuntimeThread(home=tmp_path, isolation="namespace") as runtime:
            control = control_client(runtime.url)
            arn = str(register(control, "echo", ECHO, "rl_app.py", {})["agentRuntimeArn"])
            control.close()
            url = f"http://127.0.0.1:{model.server_port}/v1"
            found = check_reach(arn, url, runtime.url)
    finally:
        model.shutdown()
        model.server_close()
        serving.join()
    assert found.state == "ok", found.said
    assert "answers 501" in found.said


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
    with pytest.raises(ConfigError, match="no http or https URL"):
        check_reach(AWS, "127.0.0.1:8000", None)


def test_a_wrong_arn_and_a_runtime_that_is_not_there_are_told_as_such(arn: str) -> None:
    with pytest.raises(ConfigError, match="not an AgentCore Runtime ARN"):
        check_reach("arn:echo", "http://127.0.0.1:9/v1", None)
    with pytest.raises(ConfigError, match="no local runtime"):
        check_reach(arn, "http://127.0.0.1:9/v1", "http://127.0.0.1:9")
