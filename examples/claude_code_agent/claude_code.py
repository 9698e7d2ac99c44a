"""Claude Code as it comes from npm, run once without a terminal.

    npm install --prefix tools @anthropic-ai/claude-code

``CLAUDE_CLI`` names the command. It is not changed and knows nothing of training: where its model
is, it learns from its own variables.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
TIMEOUT_S = 900.0
PR_SET_DUMPABLE = 4
SIGNALLED = 128
"""A program that catches a signal ends with this and the signal's number."""
FENCE = """
import ctypes, os, struct, sys
libc, scope_signal = ctypes.CDLL(None), 2
rules = struct.pack("3Q", 0, 0, scope_signal)
descriptor = libc.syscall(444, rules, len(rules), 0)  # landlock_create_ruleset
if descriptor >= 0:
    libc.prctl(38, 1, 0, 0, 0)  # no_new_privs
    libc.syscall(446, descriptor, 0)  # landlock_restrict_self
os.execvp(sys.argv[1], sys.argv[1:])
"""
"""Runs a command that can signal nobody but its own children (Linux 6.12), so not the agent."""
OPTIONS = ("--output-format", "text", "--dangerously-skip-permissions")


def find() -> str:
    found = os.environ.get("CLAUDE_CLI") or shutil.which("claude")
    if not found:
        raise RuntimeError(
            "Claude Code is not here: install it with 'npm install --prefix DIR "
            "@anthropic-ai/claude-code' and set CLAUDE_CLI to DIR/node_modules/.bin/claude"
        )
    return found


def claude(prompt: str, folder: Path, model: str, base_url: str, api_key: str) -> str:
    """What it says at the end; its work is in the folder, also when its time is over."""
    home = folder.parent / "home"
    home.mkdir(exist_ok=True)
    command = [sys.executable, "-I", "-c", FENCE, find(), "-p", prompt, "--model", model, *OPTIONS]
    env = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(home),
        "ANTHROPIC_BASE_URL": base_url,
        "ANTHROPIC_API_KEY": api_key,
        "ANTHROPIC_SMALL_FAST_MODEL": model,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "IS_SANDBOX": "1",
    }
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"[stopped after {TIMEOUT_S:g} s]"
    if done.returncode < 0 or done.returncode > SIGNALLED:  # its own commands did that, or memory
        return f"[stopped by a signal: {done.returncode}]"
    if done.returncode:
        tail = (done.stdout + done.stderr).strip()[-500:]
        raise RuntimeError(f"Claude Code ended with {done.returncode}: {tail}")
    return done.stdout.strip()


def conceal() -> None:
    """The command is the same user: it shall not read this process, nor plant modules."""
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0)
    sys.path[:] = [place for place in sys.path if place not in ("", str(HERE))]
