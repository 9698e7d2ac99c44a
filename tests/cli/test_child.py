"""A command's own runtime ends with the command, however that ends."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from agentcore_rl_toolkit.cli.child import PREFIX, sweep

COMMAND = """
import time
from agentcore_rl_toolkit.cli.child import own_runtime
with own_runtime() as url:
    print(url, flush=True)
    time.sleep(100)
"""


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/_art/", timeout=60):
            return True
    except (urllib.error.URLError, OSError):
        return False


def test_a_killed_command_leaves_no_runtime_and_the_next_removes_its_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", COMMAND], stdout=subprocess.PIPE, text=True, env=env
    ) as command:
        assert command.stdout is not None
        url = command.stdout.readline().strip()
        assert answers(url)
        sweep()
        assert list(tmp_path.glob(f"{PREFIX}*")), "it is in use"
        command.kill()
    deadline = time.monotonic() + 30
    while answers(url) or list(tmp_path.glob(f"{PREFIX}*")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
        sweep()
