"""Where a session's output lies, and its last lines. Logs outlive their sessions by two weeks."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

TAIL_BYTES = 4000
KEEP_S = 14 * 24 * 3600.0
MAX_NAME = 200
"""A session id may be longer than a file name may be."""


def log_path(folder: Path, session_id: str) -> Path:
    name = session_id
    if len(name) > MAX_NAME:
        name = name[: MAX_NAME - 17] + "-" + hashlib.sha256(name.encode()).hexdigest()[:16]
    return folder / f"{name}.log"


def prune(folder: Path, keep_s: float = KEEP_S) -> None:
    oldest = time.time() - keep_s
    for path in folder.glob("*.log"):
        if path.stat().st_mtime < oldest:
            path.unlink(missing_ok=True)


def tail(path: Path, start: int = 0, limit: int = TAIL_BYTES) -> str:
    """The last bytes that were written after ``start``."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, 2)
            file.seek(max(start, size - limit))
            return file.read().decode(errors="replace").strip()
    except OSError:
        return ""
