"""Peers from PyPI, each in a virtual environment of its own outside the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "agentcore-rl-toolkit" / "peers"


def environment(name: str, *requirements: str) -> Path | None:
    """Interpreter of the peer's environment, made on first use; None, with a word, if it fails."""
    folder = cache() / name
    python = folder / "bin" / "python"
    stamp = folder / ".installed"
    wanted = "\n".join(requirements)
    if stamp.is_file() and stamp.read_text() == wanted:
        return python
    print(f"setting up {name} in its own environment ...", file=sys.stderr)
    try:
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, *requirements], check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        reason = getattr(error, "stderr", None) or str(error)
        print(f"{name} is left out: {reason.strip()[-300:]}", file=sys.stderr)
        return None
    stamp.write_text(wanted)
    return python
