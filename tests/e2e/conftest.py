"""Whole stacks of real parts: a runtime in its own process, deployed agents, a scripted model."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentcore_rl_toolkit.cli.deploy import control_client, register

ROOT = Path(__file__).resolve().parents[2]
ECHO = ROOT / "tests" / "agents" / "echo_agent"
MATH = ROOT / "examples" / "strands_math_agent"
START_S = 60.0


def wait_until(condition: Callable[[], object], what: str, timeout: float = 90.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout} s in vain until {what}"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def marked(mark: str) -> list[int]:
    """Processes whose environment holds the mark: everything that a runtime started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes() and alive(int(folder.name)):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


class Stack:
    """A runtime that can be killed and started again on the same port and state."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def env(self) -> dict[str, str]:
        return {**os.environ, "ART_HOME": str(self.home)}

    def start(self) -> None:
        state = self.home / "runtime.json"
        state.unlink(missing_ok=True)
        with (self.home / "runtime.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "agentcore_rl_toolkit.runtime", "--port", str(self.port)],
                env=self.env,
                stdout=log,
                stderr=log,
            )
        wait_until(state.is_file, "the runtime has started", START_S)
        self.port = int(json.loads(state.read_text())["endpoint_url"].rpartition(":")[2])

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(30)

    def deploy(self, folder: Path, entry: str = "rl_app.py", **env: str) -> str:
        """The agent's sessions carry a mark in their environment, so that they can be counted."""
        variables = {"TEST_MARK": str(self.home), **env}
        made = register(control_client(self.url), folder.name, folder, entry, variables)
        return str(made["agentRuntimeArn"])

    def session_processes(self) -> list[int]:
        return marked(f"TEST_MARK={self.home}")


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    made = Stack(home)
    made.start()
    try:
        yield made
    finally:
        made.stop()
        wait_until(lambda: not made.session_processes(), "no session process is left")


@pytest.fixture(scope="session")
def model_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The scripted model of the math example, always right."""
    log = tmp_path_factory.mktemp("model") / "log"
    with log.open("wb") as out:
        child = subprocess.Popen(
            [sys.executable, str(MATH / "scripted_model.py"), "--port", "0"],
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_until(lambda: b"http://" in log.read_bytes(), "the model has started", START_S)
        yield next(word for word in log.read_text().split() if word.startswith("http://"))
    finally:
        child.terminate()
        child.wait()
