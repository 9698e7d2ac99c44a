"""The same attacks and faults, met by a runtime that an ordinary user has started."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import agentcore_rl_toolkit

NOBODY = 65534
HERE = Path(__file__).parent
SYSTEM_PYTHON = "/usr/bin/python3"


def missing() -> str:
    """Why it cannot be tried here, or nothing."""
    if os.geteuid() != 0:
        return "this is an ordinary user already"
    if not (shutil.which("setpriv") and os.path.exists(SYSTEM_PYTHON)):
        return "needs setpriv and a system Python"
    ask = "import sys; print(*sys.version_info[:2])"
    version = subprocess.run([SYSTEM_PYTHON, "-c", ask], capture_output=True, text=True).stdout
    if tuple(version.split()) != tuple(map(str, sys.version_info[:2])):
        return "the system Python is of another version than these packages"
    probe = subprocess.run([*as_nobody(), "ls", packages(), str(HERE)], capture_output=True)
    return "" if probe.returncode == 0 else "these packages are not readable for others"


def packages() -> str:
    return sysconfig.get_paths()["purelib"]


def as_nobody() -> list[str]:
    return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "part",
    ["test_attack.py", "test_trespass.py", "test_session.py", "test_birth.py", "../test_egress.py"],
)
def test_an_ordinary_user_gets_the_same(part: str) -> None:
    if reason := missing():
        pytest.skip(reason)
    base = Path("/tmp") / f"art-nobody-{os.getpid()}-{Path(part).stem}"
    base.mkdir()
    os.chown(base, NOBODY, NOBODY)
    source = str(Path(agentcore_rl_toolkit.__file__).parents[1])
    try:
        done = subprocess.run(
            [
                *as_nobody(),
                *(SYSTEM_PYTHON, "-m", "pytest", str(HERE / part), "-q", "-x"),
                *("-p", "no:cacheprovider"),
                f"--basetemp={base}/pytest",
                f"--rootdir={HERE.parents[2]}",
            ],
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": f"{packages()}:{source}",
                "PYTHONDONTWRITEBYTECODE": "1",
                "HOME": str(base),
                "TMPDIR": str(base),
            },
            cwd=HERE.parents[2],
            capture_output=True,
            text=True,
            timeout=300,
        )
    finally:
        shutil.rmtree(base, ignore_errors=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
