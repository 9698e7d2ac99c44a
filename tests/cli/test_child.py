"""A command's own runtime ends with the command, however that ends."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from pathlib import Path

import pytest

from agentcore_rl_toolkit.cli.child import PREFIX, own_runtime, sweep
from agentcore_rl_toolkit.cli.train import kept_logs

from ..runtime.conftest import Aws

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


def test_logs_of_its_sessions_stay_where_they_were_asked_for(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    session_id = str(uuid.uuid4())
    with own_runtime(isolation="process", logs=logs) as url:
        aws = Aws(url)
        aws.ask(aws.deploy(), {"say": "hello from the agent"}, session_id)
        aws.close()
    assert "hello from the agent" in (logs / f"{session_id}.log").read_text()


def test_a_run_that_printed_nothing_leaves_no_folder_for_logs(tmp_path: Path) -> None:
    with kept_logs(tmp_path / "runs" / "one") as logs:
        assert logs.stat().st_mode & 0o777 == logs.parent.stat().st_mode & 0o777 == 0o700
    assert not (tmp_path / "runs" / "one").exists()
    with kept_logs(tmp_path / "runs" / "one") as logs:
        (logs / "session.log").write_text("hello")
    assert (logs / "session.log").read_text() == "hello"


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
