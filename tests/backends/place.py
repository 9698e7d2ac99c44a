"""What tests of real trainers stand on: environments, a Tinker server, a runtime, a killer."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from environment import folder as cache_folder  # beside this file
from environment import python_of as made_python

from agentcore_rl_toolkit.cli.deploy import control_client, register
from agentcore_rl_toolkit.errors import ConfigError

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
START_S = 600.0
QUIET = {
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "JAX_PLATFORMS": "cpu",
    "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16",
    "TINKER_API_KEY": "tml-local",
    "TINKER_TELEMETRY": "0",
    # the tree under test, not the one that the environment was made with
    "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(HERE)]),
}


def python_of(name: str) -> Path:
    """Interpreter of a trainer's environment; skips where there is none."""
    found = made_python(name)
    if found is None:
        pytest.skip(f"no environment for it: python tests/backends/environment.py {name}")
    return found


def wait_until(
    condition: Callable[[], object], child: subprocess.Popen[bytes], log: Path, seconds: float
) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert child.poll() is None, log.read_text(errors="replace")[-4000:]
        assert time.monotonic() < deadline, log.read_text(errors="replace")[-4000:]
        time.sleep(0.05)


@contextlib.contextmanager
def started(command: list[str], log: Path, **more: Any) -> Iterator[subprocess.Popen[bytes]]:
    """In a group of its own, which is gone at the end."""
    env = {**os.environ, **QUIET, **more.pop("env", {})}
    with log.open("ab") as out:
        child = subprocess.Popen(
            command, env=env, stdout=out, stderr=out, start_new_session=True, **more
        )
    try:
        yield child
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(30)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


@contextlib.contextmanager
def tinker_server(base: Path, model: Path) -> Iterator[str]:
    """URL of a Tinker server on this machine."""
    port = free_port()
    url, log = f"http://127.0.0.1:{port}", base / "server.log"
    command = [str(python_of("skyrl")), str(HERE / "tinker_server.py"), str(port)]
    # most of its time goes into compiling, for the same shapes every time
    cache = {
        "JAX_COMPILATION_CACHE_DIR": str(cache_folder("jax")),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    with started([*command, str(model), str(base / "state")], log, env=cache) as child:
        wait_until(lambda: _answers(f"{url}/api/v1/healthz"), child, log, START_S)
        yield url


def _answers(url: str) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5):
        return True
    return False


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def steps_in(text: str) -> list[dict[str, float]]:
    """What verl and rllm print of each step."""
    number = r"([\w/@.-]+):(?:np\.float\d+\()?(-?[\d.]+(?:e-?\d+)?)\)?(?= |$)"
    lines = [line for line in text.splitlines() if re.search(r"\bstep:\d+ - ", line)]
    return [{k: float(v) for k, v in re.findall(number, line)} for line in lines]


class Runtime:
    """A runtime process with one agent, that can be looked into."""

    def __init__(self, url: str, arn: str) -> None:
        self.url, self.arn = url, arn

    def sessions(self) -> list[dict[str, Any]]:
        """Those that are at work."""
        with urllib.request.urlopen(f"{self.url}/_art/sessions", timeout=10) as reply:
            found = json.load(reply)["sessions"]
        return [s for s in found if s.get("pid") and s["state"] == "active"]

    def refused(self) -> int:
        """Calls that it throttled."""
        with urllib.request.urlopen(f"{self.url}/_art/metrics", timeout=10) as reply:
            found = re.findall(r'_requests_total\{.*status="429"\} (\d+)', reply.read().decode())
        return sum(map(int, found))


@contextlib.contextmanager
def runtime(home: Path, agent: Path, quotas: str = "") -> Iterator[Runtime]:
    """``art runtime serve --quotas …`` with the agent deployed."""
    home.mkdir()
    log, state = home / "log", home / "runtime.json"
    command = [sys.executable, "-m", "agentcore_rl_toolkit.cli.main", "runtime", "serve"]
    command += ["--port", "0", "--home", str(home), "--quotas", quotas]
    with started(command, log, env={"ART_HOME": str(home)}) as child:
        wait_until(state.is_file, child, log, START_S)
        url = str(json.loads(state.read_text())["endpoint_url"])
        yield Runtime(url, deploy(url, agent))


def deploy(url: str, agent: Path) -> str:
    """Its ARN. Again when it did not start in time: engines that start beside it take all there
    is."""
    control = control_client(url)
    try:
        for left in (2, 1, 0):
            try:
                made = register(control, agent.name, agent, "rl_app.py", {})
                return str(made["agentRuntimeArn"])
            except ConfigError:
                if not left:
                    raise
        raise AssertionError
    finally:
        control.close()


class Killer(threading.Thread):
    """Kills the first session that it sees at work, with a signal that nothing can answer."""

    def __init__(self, where: Runtime) -> None:
        super().__init__(daemon=True)
        self.where = where
        self.killed: str | None = None
        self.over = threading.Event()

    def run(self) -> None:
        while self.killed is None and not self.over.wait(0.05):
            with contextlib.suppress(OSError, ValueError):
                self._look()

    def _look(self) -> None:
        for session in self.where.sessions()[:1]:
            os.kill(session["pid"], signal.SIGKILL)
            self.killed = session["session_id"]

    def stop(self) -> str | None:
        self.over.set()
        self.join()
        return self.killed
