"""A local runtime of the command's own: a process beside it, gone when the command is.

It is a process and not a thread because sessions must not wait for a training step, and it is in
a process group of its own so that Ctrl-C reaches the command alone, which ends things in order.
What a killed command left of its state is removed by the next.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import RuntimeServiceError

PREFIX = "art-home-"
START_S = 60.0
STOP_S = 20.0


@contextmanager
def own_runtime(
    *, isolation: str = "auto", max_sessions: int | None = None, logs: Path | None = None
) -> Iterator[str]:
    """Gives its URL. Its state is in a folder that is removed at the end, but for the sessions'
    logs where ``logs`` names a folder for them: they are there however this process ends."""
    sweep()
    home = Path(tempfile.mkdtemp(prefix=PREFIX))
    if logs is not None:
        (home / "runtime").mkdir(mode=0o700)
        (home / "runtime" / "logs").symlink_to(logs.absolute())
    log = home / "log"
    command = [sys.executable, "-m", "agentcore_rl_toolkit.runtime", "--port", "0"]
    command += ["--home", str(home), "--isolation", isolation, "--until-eof"]
    if max_sessions is not None:
        command += ["--max-sessions", str(max_sessions)]
    with log.open("wb") as out:
        child = subprocess.Popen(
            command,
            stdout=out,
            stderr=out,
            stdin=subprocess.PIPE,  # closes with this process, however it ends
            start_new_session=True,
            env={**os.environ, "ART_HOME": str(home)},
        )
    try:
        yield _url(home, child, log)
    finally:
        assert child.stdin is not None
        child.stdin.close()
        child.terminate()
        try:
            child.wait(STOP_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        shutil.rmtree(home, ignore_errors=True)
        sweep()  # once more: a predecessor's runtime may have been ending when this one began


def sweep() -> None:
    """Removes the folders that killed commands left: those whose runtime holds its lock no more."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        try:
            lock = os.open(folder / "runtime" / "lock", os.O_RDWR | os.O_NOFOLLOW)
        except OSError:  # it is about to start, or another user's
            continue
        try:
            if os.fstat(lock).st_uid == os.geteuid():
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:
            pass
        finally:
            os.close(lock)


def _url(home: Path, child: subprocess.Popen[bytes], log: Path) -> str:
    state = home / "runtime.json"
    deadline = time.monotonic() + START_S
    while not state.is_file():
        if child.poll() is not None or time.monotonic() > deadline:
            said = log.read_text(errors="replace")[-2000:].strip()
            raise RuntimeServiceError(f"the local runtime did not start: {said or 'no output'}")
        time.sleep(0.02)
    return str(json.loads(state.read_text())["endpoint_url"])
