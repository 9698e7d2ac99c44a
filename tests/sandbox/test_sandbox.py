from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import agentcore_rl_toolkit
from agentcore_rl_toolkit import Sandbox, SandboxClient
from agentcore_rl_toolkit.errors import (
    AgentError,
    ConfigError,
    ContractError,
    QuotaError,
    SessionLostError,
)
from agentcore_rl_toolkit.runtime.awsquota import AwsQuotas
from agentcore_rl_toolkit.runtime.thread import RuntimeThread
from agentcore_rl_toolkit.sandbox import Output, transfer

from ..runtime.conftest import Aws, until


def test_a_command_runs_and_says_how_it_ended(sandbox: Sandbox) -> None:
    result = sandbox.exec("echo out; echo oh >&2; exit 3")
    assert (result.exit_code, result.stdout, result.stderr) == (3, "out\n", "oh\n")
    assert not result.ok
    assert not result.timed_out


def test_arguments_need_no_quoting(sandbox: Sandbox) -> None:
    words = ["it's", "$HOME", "a b", "", "; rm -rf /", "日本", "'\"\\"]
    assert sandbox.exec(["printf", "%s\n", *words]).stdout.split("\n")[:-1] == words


def test_folder_and_variables_are_those_of_the_call_and_files_stay(sandbox: Sandbox) -> None:
    sandbox.exec("mkdir -p /tmp/place && echo kept > /tmp/place/note", check=True)
    result = sandbox.exec("pwd; cat note; echo $WHO", cwd="/tmp/place", env={"WHO": "it's me"})
    assert result.stdout == "/tmp/place\nkept\nit's me\n"
    assert sandbox.exec("echo $WHO").stdout == "\n"


def test_a_command_that_takes_too_long_is_ended_with_what_it_said(sandbox: Sandbox) -> None:
    result = sandbox.exec("echo begun; sleep 60", timeout=1)
    assert result.timed_out
    assert (result.exit_code, result.stdout) == (-1, "begun\n")


def test_output_is_streamed(sandbox: Sandbox) -> None:
    with sandbox.stream("echo one; while ! [ -e /tmp/go ]; do sleep 0.02; done; echo two") as run:
        pieces = iter(run)
        assert next(pieces) == Output("stdout", "one\n")
        sandbox.exec("touch /tmp/go")
        assert list(pieces) == [Output("stdout", "two\n")]
        assert run.result.stdout == "one\ntwo\n"


def test_whoever_stops_reading_ends_the_command(sandbox: Sandbox) -> None:
    with sandbox.stream("echo $$; sleep 60") as run:
        pid = next(iter(run)).text.strip()
        assert sandbox.exec(["test", "-d", f"/proc/{pid}"]).ok
    until(lambda: not sandbox.exec(["test", "-d", f"/proc/{pid}"]).ok, "it is ended")


def test_check_raises_what_the_command_said(sandbox: Sandbox) -> None:
    with pytest.raises(AgentError, match="ended with 4: broken"):
        sandbox.exec("echo broken >&2; exit 4", check=True)


@pytest.mark.parametrize("size", [0, 1, 45_000, 45_001, 307_200])
def test_files_go_both_ways_as_they_are(sandbox: Sandbox, size: int) -> None:
    data = os.urandom(size)
    sandbox.upload(data, "/tmp/new folder/it's.bin")
    assert sandbox.download("/tmp/new folder/it's.bin") == data
    assert sandbox.exec("ls '/tmp/new folder'").stdout == "it's.bin\n"


def test_files_of_this_machine_are_sent_and_written(
    sandbox: Sandbox, big: Path, tmp_path: Path
) -> None:
    sandbox.upload(big, "copy")
    assert sandbox.exec("wc -c < copy").stdout.strip() == str(big.stat().st_size)
    sandbox.download("copy", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == big.read_bytes()


def test_a_large_file_comes_in_parts(
    sandbox: Sandbox, big: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "DOWN_BYTES", 102_400)
    sandbox.upload(big, "copy")
    assert sandbox.download("copy") == big.read_bytes()


def test_a_file_that_is_not_there_says_so(sandbox: Sandbox) -> None:
    with pytest.raises(AgentError, match="no file"):
        sandbox.download("/tmp/none")
    with pytest.raises(AgentError, match="no file"):
        sandbox.download("/tmp")
    with pytest.raises(ConfigError):
        sandbox.upload(b"", "/tmp/")


def test_an_upload_that_fails_leaves_nothing(sandbox: Sandbox) -> None:
    with pytest.raises(AgentError):
        sandbox.upload(b"x", "/usr/nowhere/file")
    sandbox.exec("mkdir /tmp/taken")
    sandbox.upload(b"x", "/tmp/taken/a")
    assert sandbox.exec("ls /tmp/taken").stdout == "a\n"


# --- the session behind it --------------------------------------------------------------------


def test_leaving_the_context_stops_the_session(client: SandboxClient, aws: Aws) -> None:
    with client.start() as sandbox:
        assert sandbox.session_id in aws.sessions()
    assert sandbox.session_id not in aws.sessions()
    assert sandbox.closed
    sandbox.close()
    with pytest.raises(ConfigError, match="closed"):
        sandbox.exec("true")


def test_an_error_inside_stops_it_too(client: SandboxClient, aws: Aws) -> None:
    with pytest.raises(ZeroDivisionError), client.start() as sandbox:
        _ = 1 // 0
    assert sandbox.session_id not in aws.sessions()


def test_a_sandbox_that_nobody_holds_is_stopped(client: SandboxClient, aws: Aws) -> None:
    session_id = client.start().session_id
    gc.collect()
    assert session_id not in aws.sessions()


def test_closing_the_client_stops_all_of_its_sandboxes(aws: Aws, arn: str) -> None:
    with SandboxClient(arn, endpoint_url=aws.url) as client:
        made = [client.start() for _ in range(3)]
        assert {one.session_id for one in made} <= aws.sessions().keys()
    assert not {one.session_id for one in made} & aws.sessions().keys()


PROGRAM = """
import sys
from agentcore_rl_toolkit import SandboxClient
client = SandboxClient(sys.argv[1], endpoint_url=sys.argv[2])
sandbox = client.start()
print(sandbox.session_id, flush=True)
if sys.argv[3] == "wait":
    sandbox.exec("sleep 60")
"""


@pytest.mark.parametrize("how", ["end", "wait"], ids=["a plain end", "Ctrl-C in a command"])
def test_the_end_of_the_program_stops_it(aws: Aws, arn: str, how: str) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, arn, aws.url, how],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert child.stdout is not None
    with child.stdout:
        session_id = child.stdout.readline().strip()
        if how == "wait":
            assert session_id in aws.sessions()
            until(lambda: aws.sessions()[session_id]["in_flight"] == 1, "the command runs")
            child.send_signal(signal.SIGINT)
        child.wait(20)
    assert session_id not in aws.sessions()


def test_ctrl_c_while_it_starts_leaves_no_session(
    aws: Aws, arn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SandboxClient(arn, endpoint_url=aws.url) as client:
        send = client.agentcore_client.invoke_agent_runtime_command
        made: list[str] = []

        def interrupted(**call: Any) -> None:
            made.append(call["runtimeSessionId"])
            send(**call)["stream"].close()
            raise KeyboardInterrupt

        monkeypatch.setattr(client.agentcore_client, "invoke_agent_runtime_command", interrupted)
        with pytest.raises(KeyboardInterrupt):
            client.start()
    assert made
    assert not set(made) & aws.sessions().keys()


def test_a_session_that_dies_under_a_command_is_lost(sandbox: Sandbox, aws: Aws, arn: str) -> None:
    with sandbox.stream("echo on; sleep 60") as run:
        pieces = iter(run)
        next(pieces)
        aws.stop(arn, sandbox.session_id)
        with pytest.raises(SessionLostError):
            list(pieces)


def test_a_runtime_that_is_not_there_says_so(aws: Aws, arn: str) -> None:
    with (
        SandboxClient(arn[:-10] + "0" * 10, endpoint_url=aws.url) as client,
        pytest.raises(ContractError, match="Deploy the agent"),
    ):
        client.start()


def test_starts_wait_for_room_and_then_say_that_there_was_none(tmp_path: Path) -> None:
    quotas = AwsQuotas(sessions=1)
    with RuntimeThread(home=tmp_path, isolation="process", quotas=quotas) as runtime:
        aws = Aws(runtime.url)
        with SandboxClient(aws.deploy(), endpoint_url=runtime.url) as client:
            first = client.start()
            threading.Timer(1.0, first.close).start()
            second = client.start(timeout=30)
            began = time.monotonic()
            with pytest.raises(QuotaError):
                client.start(timeout=0)
            assert time.monotonic() - began < 30
            second.close()
        aws.close()


def test_the_names_are_public() -> None:
    assert {"SandboxClient", "Sandbox"} <= set(agentcore_rl_toolkit.__all__)
