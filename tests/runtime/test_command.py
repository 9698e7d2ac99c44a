"""InvokeAgentRuntimeCommand through boto3, which parses the event stream itself."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import EventStreamError

from agentcore_rl_toolkit.runtime import command as commands

from .conftest import PROCESS, Aws, alive, until

opened: list[Any] = []


@pytest.fixture(autouse=True)
def _hang_up() -> Iterator[None]:
    """Streams that a test has not read to their end hold a connection."""
    yield
    while opened:
        opened.pop().close()


def begin(aws: Aws, arn: str, sid: str, command: str, **options: Any) -> Any:
    answer = aws.data.invoke_agent_runtime_command(
        agentRuntimeArn=arn, runtimeSessionId=sid, body={"command": command, **options}
    )
    opened.append(answer["stream"])
    return answer


def run(aws: Aws, arn: str, sid: str, script: str, **options: Any) -> tuple[str, str, Any]:
    """Output, errors and the last event of a shell script without single quotes."""
    answer = begin(aws, arn, sid, f"/bin/sh -c '{script}'", **options)
    events = [event["chunk"] for event in answer["stream"]]
    assert events[0] == {"contentStart": {}}
    deltas = [event["contentDelta"] for event in events[1:-1]]
    out, errors = ("".join(d.get(name, "") for d in deltas) for name in ("stdout", "stderr"))
    return out, errors, events[-1]["contentStop"]


@pytest.fixture
def live(aws: Aws, asgi_arn: str, sid: str) -> Iterator[str]:
    """A session that has been invoked, as the agent's own work has it."""
    aws.ask(asgi_arn, {}, sid)
    yield sid
    try:
        aws.stop(asgi_arn, sid)
    except aws.data.exceptions.ResourceNotFoundException:
        pass


def test_a_command_says_what_it_says_and_how_it_ended(aws: Aws, asgi_arn: str, live: str) -> None:
    out, errors, stop = run(aws, asgi_arn, live, "echo grüße; echo oh >&2; exit 3")
    assert (out, errors) == ("grüße\n", "oh\n")
    assert stop == {"exitCode": 3, "status": "COMPLETED"}


def test_the_answer_has_the_members_of_the_model(aws: Aws, asgi_arn: str, live: str) -> None:
    answer = begin(aws, asgi_arn, live, "true")
    assert answer["statusCode"] == 200
    assert answer["contentType"] == "application/vnd.amazon.eventstream"
    assert answer["runtimeSessionId"] == live
    assert list(answer["stream"])[-1] == {
        "chunk": {"contentStop": {"exitCode": 0, "status": "COMPLETED"}}
    }


def test_a_command_runs_as_the_agent_does(aws: Aws, asgi_arn: str, live: str) -> None:
    agent = aws.ask(asgi_arn, {}, live)
    out, _, _ = run(aws, asgi_arn, live, "env; echo; ls")
    shown, _, files = out.partition("\n\n")
    inside = dict(line.partition("=")[::2] for line in shown.splitlines())
    assert {name: inside.get(name) for name in agent["env"]} == agent["env"]
    assert "rl_app.py" in files
    run(aws, asgi_arn, live, "echo kept > note")
    assert run(aws, asgi_arn, live, "cat note")[0] == "kept\n"


def test_a_command_makes_the_session_when_there_is_none(aws: Aws, asgi_arn: str, sid: str) -> None:
    run(aws, asgi_arn, sid, "echo first > note")
    assert aws.ask(asgi_arn, {}, sid)["calls"] == 1
    assert run(aws, asgi_arn, sid, "cat note")[0] == "first\n"
    aws.stop(asgi_arn, sid)


def test_no_shell_reads_a_command_that_names_none(aws: Aws, asgi_arn: str, live: str) -> None:
    events = list(begin(aws, asgi_arn, live, "echo $HOME | cat")["stream"])
    assert events[1]["chunk"]["contentDelta"]["stdout"] == "$HOME | cat\n"


def test_output_comes_as_it_is_written(aws: Aws, asgi_arn: str, live: str) -> None:
    script = "echo one; while ! [ -e go ]; do sleep 0.02; done; echo two"
    stream = begin(aws, asgi_arn, live, f"/bin/sh -c '{script}'")["stream"]
    events = iter(stream)
    next(events)
    assert next(events)["chunk"]["contentDelta"]["stdout"] == "one\n"
    run(aws, asgi_arn, live, "touch go")
    assert next(events)["chunk"]["contentDelta"]["stdout"] == "two\n"
    assert "contentStop" in next(events)["chunk"]


def test_much_output_comes_whole_and_in_pieces_of_bounded_size(
    aws: Aws, asgi_arn: str, live: str
) -> None:
    answer = begin(aws, asgi_arn, live, "/bin/sh -c 'seq 300000; seq 300000 >&2'")
    said: dict[str, list[str]] = {"stdout": [], "stderr": []}
    for event in answer["stream"]:
        for name, text in event["chunk"].get("contentDelta", {}).items():
            assert len(text) <= 64 * 1024
            said[name].append(text)
    whole = "".join(f"{n}\n" for n in range(1, 300_001))
    assert "".join(said["stdout"]) == whole
    assert "".join(said["stderr"]) == whole


def test_characters_in_two_pieces_and_bytes_that_are_none(
    aws: Aws, asgi_arn: str, live: str
) -> None:
    script = r'printf "\303"; sleep 0.1; printf "\274|\377|"'
    assert run(aws, asgi_arn, live, script)[0] == "ü|\ufffd|"


def test_a_timeout_ends_the_whole_tree_and_keeps_what_was_said(
    aws: Aws, asgi_arn: str, live: str
) -> None:
    script = "echo before; (setsid sleep 77 &) ; sleep 77"
    out, _, stop = run(aws, asgi_arn, live, script, timeout=1)
    assert out == "before\n"
    assert stop == {"exitCode": -1, "status": "TIMED_OUT"}
    assert run(aws, asgi_arn, live, LIST)[0].count("sleep 77") == 0
    assert aws.ask(asgi_arn, {}, live)["calls"] >= 2


LIST = 'for p in /proc/[0-9]*; do tr "\\\\0" " " < $p/cmdline 2> /dev/null; echo; done'
"""The processes of a session, by a shell and nothing else."""


def test_a_caller_who_leaves_ends_the_command_with_all_that_it_started(
    aws: Aws, asgi_arn: str, live: str
) -> None:
    stream = begin(aws, asgi_arn, live, "/bin/sh -c '(setsid sleep 88 &) ; echo on; sleep 88'")
    events = iter(stream["stream"])
    next(events)
    next(events)
    assert run(aws, asgi_arn, live, LIST)[0].count("sleep 88") >= 2
    stream["stream"].close()
    until(lambda: "sleep 88" not in run(aws, asgi_arn, live, LIST)[0], "the command is ended")


def test_what_a_finished_command_left_running_lives_on(aws: Aws, asgi_arn: str, live: str) -> None:
    out, _, stop = run(aws, asgi_arn, live, "sleep 99 & echo started")
    assert out == "started\n"
    assert stop["exitCode"] == 0
    assert run(aws, asgi_arn, live, LIST)[0].count("sleep 99") == 1


def test_the_end_of_a_command_by_a_signal_reads_as_in_a_shell(
    aws: Aws, asgi_arn: str, live: str
) -> None:
    assert run(aws, asgi_arn, live, "kill -9 $$")[2]["exitCode"] == 137


@pytest.mark.parametrize(("program", "code"), [("no-such-program", 127), ("/etc", 126)])
def test_a_program_that_cannot_be_run_is_not_an_error_of_the_service(
    aws: Aws, asgi_arn: str, live: str, program: str, code: int
) -> None:
    events = [event["chunk"] for event in begin(aws, asgi_arn, live, program)["stream"]]
    assert events[-1]["contentStop"]["exitCode"] == code
    assert program in events[-2]["contentDelta"]["stderr"]


def test_commands_and_invocations_run_at_the_same_time(aws: Aws, asgi_arn: str, live: str) -> None:
    stream = begin(aws, asgi_arn, live, "/bin/sh -c 'while ! [ -e go ]; do sleep 0.02; done'")
    assert aws.ask(asgi_arn, {}, live)["calls"] == 2
    assert aws.sessions()[live]["state"] == "active"
    outs = []
    threads = [
        threading.Thread(target=lambda n=n: outs.append(run(aws, asgi_arn, live, f"echo {n}")[0]))
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outs) == [f"{n}\n" for n in range(8)]
    run(aws, asgi_arn, live, "touch go")
    assert len(list(stream["stream"])) == 2


def test_a_session_that_ends_under_a_command_is_an_exception_in_the_stream(
    aws: Aws, asgi_arn: str, live: str
) -> None:
    stream = begin(aws, asgi_arn, live, "/bin/sh -c 'echo on; sleep 66'")["stream"]
    events = iter(stream)
    next(events)
    next(events)
    aws.stop(asgi_arn, live)
    with pytest.raises(EventStreamError) as refused:
        next(events)
    assert refused.value.response["Error"]["Code"] == "runtimeClientError"


def test_too_much_output_is_an_exception_in_the_stream(
    aws: Aws, asgi_arn: str, live: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "MAX_OUTPUT_BYTES", 200_000)
    with pytest.raises(EventStreamError) as refused:
        run(aws, asgi_arn, live, "yes 11111")
    assert refused.value.response["Error"]["Code"] == "serviceQuotaExceededException"
    assert "yes 11111" not in run(aws, asgi_arn, live, LIST)[0].replace("sh -c", "")


@pytest.mark.parametrize(
    "body",
    [
        pytest.param({"command": "x" * 65_537}, id="too long"),
        pytest.param({"command": "   "}, id="nothing to run"),
        pytest.param({"command": "echo 'open"}, id="open quote"),
        pytest.param({"command": "a\0b"}, id="a NUL"),
        pytest.param({"command": "true", "timeout": 0}, id="no time"),
        pytest.param({"command": "true", "timeout": 3601}, id="too much time"),
    ],
)
def test_a_bad_command_is_a_validation_error_and_starts_nothing(
    aws: Aws, asgi_arn: str, sid: str, body: dict[str, Any]
) -> None:
    with pytest.raises(aws.data.exceptions.ValidationException):
        aws.data.invoke_agent_runtime_command(
            agentRuntimeArn=asgi_arn, runtimeSessionId=sid, body=body
        )
    assert sid not in aws.sessions()


def test_the_longest_command_runs(aws: Aws, asgi_arn: str, live: str) -> None:
    word = "ü" * (65_536 - len("printf %s "))
    events = [event["chunk"] for event in begin(aws, asgi_arn, live, f"printf %s {word}")["stream"]]
    said = "".join(event.get("contentDelta", {}).get("stdout", "") for event in events)
    assert said == word


def test_an_unknown_runtime_is_not_found(aws: Aws, asgi_arn: str, sid: str) -> None:
    with pytest.raises(aws.data.exceptions.ResourceNotFoundException):
        begin(aws, asgi_arn[:-10] + "0" * 10, sid, "true")


def test_a_command_cannot_leave_the_session(aws: Aws, asgi_arn: str, live: str) -> None:
    """The same walls as the agent's."""
    if aws.sessions()[live]["isolation"] != "namespace":
        pytest.skip("level process has no such walls")
    status = run(aws, asgi_arn, live, "cat /proc/self/status")[0]
    for line in ("Seccomp:\t2", "NoNewPrivs:\t1", "CapEff:\t0000000000000000"):
        assert line in status
    assert run(aws, asgi_arn, live, "unshare -U true")[2]["exitCode"] != 0
    assert len(run(aws, asgi_arn, live, "ls -d /proc/[0-9]*")[0].split()) <= 6
    assert run(aws, asgi_arn, live, "touch /usr/here")[2]["exitCode"] != 0
    network = run(aws, asgi_arn, live, "cat /proc/net/dev")[0].splitlines()[2:]
    assert [line.split(":")[0].strip() for line in network] == ["lo"]


@pytest.mark.parametrize("zygote", ["1", "0"])
def test_commands_work_at_level_process_too(aws: Aws, sid: str, zygote: str) -> None:
    arn = aws.deploy(environmentVariables={**PROCESS, "ART_ZYGOTE": zygote})
    script = "echo $$; pwd; (setsid sleep 55 & echo $!); sleep 55"
    out, _, stop = run(aws, arn, sid, script, timeout=1)
    pid, place, daemon = out.split()
    assert stop["status"] == "TIMED_OUT"
    assert not alive(int(pid))
    assert not alive(int(daemon))
    assert place.endswith("/work")
    assert run(aws, arn, sid, "touch here && touch /etc/here")[2]["exitCode"] == 1
    aws.stop(arn, sid)


def test_a_command_is_activity(aws: Aws, asgi_arn: str, sid: str) -> None:
    script = "/bin/sh -c 'while ! [ -e go ]; do sleep 0.02; done'"
    stream = begin(aws, asgi_arn, sid, script)["stream"]
    found = aws.sessions()[sid]
    assert (found["state"], found["in_flight"]) == ("active", 1)
    run(aws, asgi_arn, sid, "touch go")
    list(stream)
    until(lambda: aws.sessions()[sid]["in_flight"] == 0, "it is over")
    aws.stop(asgi_arn, sid)
