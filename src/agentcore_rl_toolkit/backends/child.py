"""A trainer as a child process: started, waited for, ended with us."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import ConfigError, ToolkitError

GRACE_S = 10.0
"""Between its chance to end by itself and each way of asking it to."""


def run_child(
    name: str,
    command: Sequence[str],
    variables: Mapping[str, Any] | None = None,
    cwd: Path | None = None,
) -> None:
    """Returns when it has ended well; ToolkitError when it has not."""
    env = {**os.environ, **{key: str(value) for key, value in (variables or {}).items()}}
    child = subprocess.Popen(command, env=env, cwd=cwd)
    try:
        code = child.wait()
    except BaseException:
        _end(child)
        raise
    if code:
        raise ToolkitError(f"{name} ended with {code}: its output above says why")


def _end(child: subprocess.Popen[bytes]) -> None:
    """A terminal's Ctrl-C has reached it too; a signal that was sent to us has not."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        try:
            child.wait(GRACE_S)
            return
        except subprocess.TimeoutExpired:
            child.send_signal(number)
    child.wait()


def interpreter(section: Mapping[str, Any], name: str) -> str:
    """``python`` of a backend's section: the trainer's own environment, or ours."""
    python = section.get("python")
    if python is None:
        return sys.executable
    found = Path(python).expanduser()
    if not found.exists():
        raise ConfigError(f"{name}.python: {python} does not exist")
    return str(found)
