"""A local runtime in a process of its own, with one agent deployed, for the benchmarks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple


class Served(NamedTuple):
    url: str
    arn: str
    pid: int


def serve(
    stack: ExitStack, folder: Path, entry: str = "rl_app.py", *arguments: str, **variables: str
) -> Served:
    """Ends with the stack. Its state folder is named by ART_HOME from here on."""
    from agentcore_rl_toolkit.cli.deploy import control_client, register

    home = os.environ["ART_HOME"] = stack.enter_context(tempfile.TemporaryDirectory())
    command = [sys.executable, "-m", "agentcore_rl_toolkit.runtime", "--port", "0", *arguments]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    stack.callback(child.wait)
    stack.callback(child.terminate)
    state = Path(home) / "runtime.json"
    while not state.is_file():
        if child.poll() is not None:
            raise SystemExit("the local runtime did not start")
        time.sleep(0.05)
    url = json.loads(state.read_text())["endpoint_url"]
    made = register(control_client(url), "bench", folder, entry, variables)
    return Served(url, made["agentRuntimeArn"], child.pid)
