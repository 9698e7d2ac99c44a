"""Clients that are not ours, installed once into the user's cache folder.

    python tests/e2e/client_tool.py        installs all that the tests use, and says where

A test that needs one asks here; what cannot be installed is a skip that says why.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

CLAUDE_CODE = ("claude", "@anthropic-ai/claude-code@2.1.197")
CODEX = ("codex", "@openai/codex@0.166.0")
AGENTS_SDK = ("openai-agents", "openai-agents==0.24.0")
INSTALL_S = 180.0


class Missing(Exception):
    """Why a client is not here."""


def cache(name: str) -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "agentcore-rl-toolkit" / "clients" / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    return folder


def npm_folder(package: str) -> Path:
    return cache(package.rpartition("@")[0].strip("@").replace("/", "-"))


def npm_tool(name: str, package: str) -> Path:
    """The command ``name`` of an npm package."""
    folder = npm_folder(package)
    tool = folder / "node_modules" / ".bin" / name
    if not tool.exists():
        if shutil.which("npm") is None:
            raise Missing(f"{package} needs npm, which is not installed")
        _run(
            ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder), package], folder
        )
    done = subprocess.run([tool, "--version"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Missing(f"{package} does not start: {done.stderr.strip()[-200:]}")
    return tool


def python_with(name: str, requirement: str) -> Path:
    """The interpreter of an environment that has one package."""
    folder = cache(name)
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        shutil.rmtree(folder, ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(folder)], folder)
        _run([str(python), "-m", "pip", "install", "-q", requirement], folder)
        (folder / "ready").touch()
    return python


def _run(command: list[str], folder: Path) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=INSTALL_S, check=False
        )
    except subprocess.TimeoutExpired:
        shutil.rmtree(folder, ignore_errors=True)
        raise Missing(f"{command[-1]} was not installed within {INSTALL_S:g} s") from None
    if done.returncode:
        shutil.rmtree(folder, ignore_errors=True)
        raise Missing(f"{command[-1]} cannot be installed: {done.stderr.strip()[-200:]}")


if __name__ == "__main__":
    print(npm_tool(*CLAUDE_CODE))
    print(npm_tool(*CODEX))
    print(python_with(*AGENTS_SDK))
