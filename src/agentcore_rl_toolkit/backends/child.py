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

LACKS = (
    "import importlib.util, sys; "
    "print(*[name for name in sys.argv[1:] if importlib.util.find_spec(name) is None])"
)
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


def interpreter(section: Mapping[str, Any], name: str, *packages: str) -> str:
    """``python`` of a backend's section: the trainer's own environment, or ours.

    ConfigError when it is none, or lacks one of the packages that it is to run.
    """
    python = section.get("python")
    found = sys.executable if python is None else str(Path(str(python)).expanduser())
    if not Path(found).is_file() or not os.access(found, os.X_OK):
        what = "is no program" if Path(found).exists() else "does not exist"
        raise ConfigError(f"{name}.python: {python} {what}")
    asked = subprocess.run([found, "-c", LACKS, *packages], stdout=subprocess.PIPE)
    if missing := asked.stdout.decode(errors="replace").split():
        raise ConfigError(
            f"{found} lacks {' and '.join(missing)}: install it there, or name the interpreter of "
            f"{name}'s environment in {name}.python"
        )
    return found


def mapping(section: Mapping[str, Any], name: str, key: str) -> dict[str, Any]:
    """A part of a backend's section that holds keys of its own."""
    found = section.get(key)
    if found is not None and not isinstance(found, Mapping):
        raise ConfigError(f"{name}.{key} must be a mapping, such as {{key: value}}")
    return dict(found or {})
