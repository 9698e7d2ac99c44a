"""``art sessions``, ``logs``, ``stop`` and ``shell`` as a user types them."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import boto3
import pytest

from agentcore_rl_toolkit import local
from agentcore_rl_toolkit.runtime.thread import RuntimeThread

AGENT = Path(__file__).resolve().parents[1] / "runtime" / "asgi_agent"
ART = [sys.executable, "-m", "agentcore_rl_toolkit.cli.main"]
ENV = {"COLUMNS": "200", "NO_COLOR": "1", "PYTHONUNBUFFERED": "1"}


def art(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*ART, *arguments],
        capture_output=True,
        text=True,
        input=stdin,
        timeout=100,
        env={**os.environ, **ENV},
        check=False,
    )


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RuntimeThread]:
    """Found by its state file, and so are the keys that it demands."""
    home = tmp_path_factory.mktemp("home")
    keys = home / "keys"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ART_HOME", str(home))
        with RuntimeThread(port=0, home=home, access_keys=keys) as runtime:
            yield runtime


@pytest.fixture(scope="module")
def invoke(runtime: RuntimeThread) -> Iterator[Callable[[], str]]:
    """Starts a session; its id."""
    done = art("deploy", str(AGENT), "--local")
    assert done.returncode == 0, done.stderr
    arn = next(word for word in done.stdout.split() if word.startswith("arn:"))
    client = boto3.client(
        "bedrock-agentcore",
        endpoint_url=runtime.url,
        region_name="us-east-1",
        **local.credentials(runtime.url),
    )

    def one() -> str:
        session_id = str(uuid.uuid4())
        client.invoke_agent_runtime(
            agentRuntimeArn=arn, runtimeSessionId=session_id, payload=json.dumps({"say": "hello"})
        )["response"].read()
        return session_id

    yield one
    client.close()


def test_listing_stopping_and_reading_logs(invoke: Callable[[], str]) -> None:
    names = [invoke() for _ in range(3)]
    shown = art("sessions")
    assert shown.returncode == 0, shown.stderr
    for name in names:
        line = next(line for line in shown.stdout.splitlines() if name in line)
        assert "idle" in line
        assert "MB" in line
    lines = [json.loads(line) for line in art("sessions", "--json").stdout.splitlines()]
    assert [line["session_id"] for line in lines] == names, "oldest first"

    assert art("logs", names[0]).stdout == "hello\n"
    assert art("stop", names[0][:13]).stdout == "stopped 1 session\n"
    for beginning in (names[0], names[0][:13]):
        assert art("logs", beginning).stdout == "hello\n", "the log outlives it"
    left = art("sessions").stdout
    assert names[0] not in left
    assert names[1] in left
    assert art("stop", "--all").stdout == "stopped 2 sessions\n"
    assert "no live sessions" in art("sessions").stdout
    assert art("stop", "--all").stdout == "stopped 0 sessions\n"


def test_a_named_session_lives_on_after_a_call(invoke: Callable[[], str]) -> None:
    name = invoke()
    session = json.loads(art("sessions", "--json").stdout)
    called = art("invoke", local.runtime_arn(session["runtime_id"]), "{}", "--session-id", name)
    assert json.loads(called.stdout)["calls"] == 2, called.stderr
    assert art("stop", "--all").stdout == "stopped 1 session\n"


def test_a_log_is_followed_until_the_session_ends(invoke: Callable[[], str]) -> None:
    name = invoke()
    following = subprocess.Popen(
        [*ART, "logs", "-f", name], stdout=subprocess.PIPE, env={**os.environ, **ENV}
    )
    assert following.stdout is not None
    try:
        assert following.stdout.readline() == b"hello\n"
        assert following.poll() is None
        art("stop", name)
        assert following.wait(timeout=60) == 0
    finally:
        following.kill()
        following.wait()
        following.stdout.close()


def test_watching_goes_on_until_it_is_interrupted(invoke: Callable[[], str]) -> None:
    name = invoke()
    watching = subprocess.Popen(
        [*ART, "sessions", "--json", "--watch"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **ENV},
    )
    assert watching.stdout is not None
    try:
        seen = [json.loads(watching.stdout.readline())["session_id"] for _ in range(2)]
        assert seen == [name, name]
        watching.terminate()
        assert watching.wait(timeout=60) == 143
    finally:
        watching.kill()
        watching.wait()
        watching.stdout.close()
    art("stop", name)


def test_a_shell_fed_by_a_pipe(invoke: Callable[[], str]) -> None:
    name = invoke()
    done = art("shell", name[:20], stdin="echo $((6 * 7)); echo no >&2; exit 5\n")
    assert (done.stdout, done.stderr, done.returncode) == ("42\n", "no\n", 5)
    done = art("shell", name, stdin="cat\nsome text\n")
    assert (done.stdout, done.returncode) == ("some text\n", 0), "the end of input ends it"
    art("stop", name)


def test_a_shell_on_a_terminal_of_a_size(invoke: Callable[[], str]) -> None:
    name = invoke()
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 31, 97, 0, 0))
    before = termios.tcgetattr(theirs)
    environment = {n: v for n, v in os.environ.items() if n not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        [*ART, "shell", name],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
        start_new_session=True,
    )
    try:
        screen = Screen(ours)
        os.write(ours, b"stty size; tty -s && echo on a terminal $((1 + 1))\n")
        screen.shows(b"31 97")
        screen.shows(b"on a terminal 2")
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 12, 88, 0, 0))
        process.send_signal(28)  # SIGWINCH, as a terminal sends it to its foreground
        os.write(ours, b"sleep 0.2; stty size\n")
        screen.shows(b"12 88")
        os.write(ours, b"exit 4\n")
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:
            screen.read()
        assert process.wait(timeout=60) == 4
        assert termios.tcgetattr(theirs)[:4] == before[:4], "the terminal is as it was"
    finally:
        process.kill()
        process.wait()
        os.close(ours)
        os.close(theirs)
    art("stop", name)


class Screen:
    def __init__(self, terminal: int) -> None:
        self.terminal, self.text = terminal, b""

    def read(self) -> None:
        if select.select([self.terminal], [], [], 0.1)[0]:
            self.text += os.read(self.terminal, 65536)

    def shows(self, wanted: bytes) -> None:
        deadline = time.monotonic() + 60
        while wanted not in self.text:
            assert time.monotonic() < deadline, self.text
            self.read()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(("stop",), "name one session, or give --all", id="stop what"),
        pytest.param(("stop", "x", "--all"), "name one session, or give --all", id="stop both"),
        pytest.param(("stop", "nobody"), "no live session begins with", id="unknown"),
        pytest.param(("shell", "nobody"), "no live session begins with", id="shell of nobody"),
        pytest.param(("logs", "n" * 40), "has no log here", id="log of nobody"),
        pytest.param(("logs", "nobody"), "has no log here", id="log that begins like nobody's"),
        pytest.param(
            ("sessions", "--endpoint", "http://127.0.0.1:1"), "art runtime serve", id="no runtime"
        ),
    ],
)
def test_errors_say_what_to_do(
    runtime: RuntimeThread, arguments: tuple[str, ...], said: str
) -> None:
    done = art(*arguments)
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr
