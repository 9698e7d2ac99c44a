"""A test agent that does what its payload asks for, in this order; see ``MODES``.

With none of them it answers ``{"rewards": 1.0, "echo": <payload without _rollout>}``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Any

from agentcore_rl_toolkit import AgentCoreRLApp

MODES = {
    "memory_mb": "hold this much touched memory until the end",
    "spawn": "leave a daemonised grandchild behind that sleeps for an hour; its pid is returned",
    "cpu": "burn this many seconds of CPU",
    "sleep": "wait this many seconds",
    "raise": "raise RuntimeError with this message",
    "exit": "end the whole process with this exit code",
    "garbage": "return a value that has no JSON form",
    "return": "return this",
}

app = AgentCoreRLApp()


@app.rollout_entrypoint
def echo(payload: dict[str, Any], context: Any) -> Any:
    extra: dict[str, Any] = {}
    block = _hold(int(payload.get("memory_mb", 0)) << 20)
    if payload.get("spawn"):
        extra["spawned_pid"] = _leave_grandchild()
    _burn(float(payload.get("cpu", 0)))
    time.sleep(float(payload.get("sleep", 0)))
    if "raise" in payload:
        raise RuntimeError(payload["raise"])
    if "exit" in payload:
        os._exit(int(payload["exit"]))
    if payload.get("garbage"):
        return {"rewards": object()}
    if "return" in payload:
        answer = payload["return"]
        return {**answer, **extra} if isinstance(answer, dict) else answer
    plain = {key: value for key, value in payload.items() if key != "_rollout"}
    return {
        "rewards": 1.0,
        "echo": plain,
        "session_id": context.session_id,
        "pid": os.getpid(),
        "held_bytes": len(block),
        **extra,
    }


def _hold(size: int) -> bytearray:
    block = bytearray(size)
    block[::4096] = b"\1" * len(range(0, size, 4096))  # untouched pages take no memory
    return block


def _leave_grandchild() -> int:
    """A process in its own session whose parent is gone, as a daemon has."""
    script = (
        "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', "
        "'import time; time.sleep(3600)'], start_new_session=True, stdin=subprocess.DEVNULL, "
        "stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL); print(p.pid)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    return int(done.stdout)


def _burn(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        sum(range(1000))


if __name__ == "__main__":
    app.run()
