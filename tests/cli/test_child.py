"""A command's own runtime ends with the command, however that ends."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.error
import urllib.request

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


def test_a_killed_command_leaves_no_runtime() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", COMMAND], stdout=subprocess.PIPE, text=True
    ) as command:
        assert command.stdout is not None
        url = command.stdout.readline().strip()
        assert answers(url)
        command.kill()
    deadline = time.monotonic() + 30
    while answers(url):
        assert time.monotonic() < deadline
        time.sleep(0.05)
