"""Where a session's output lies, and its last lines. Logs outlive their sessions by two weeks.

A session writes to its log itself, so its size is bounded from outside: one that has grown too
large loses its beginning, and says so.
"""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

TAIL_BYTES = 4000
KEEP_S = 14 * 24 * 3600.0
MAX_BYTES = 16 * 1024 * 1024
"""Looked at once a second; far below the largest file that a session may write."""
CUT_TO_BYTES = 4 * 1024 * 1024
MAX_NAME = 200
"""A session id may be longer than a file name may be."""


def log_path(folder: Path, session_id: str) -> Path:
    name = session_id
    if len(name) > MAX_NAME:
        name = name[: MAX_NAME - 17] + "-" + hashlib.sha256(name.encode()).hexdigest()[:16]
    return folder / f"{name}.log"


def logs_of(folder: Path, beginning: str) -> list[Path]:
    """Of the session with this id; when there is none, of those whose ids begin so."""
    exact = log_path(folder, beginning)
    if exact.is_file():
        return [exact]
    return [Path(one.path) for one in os.scandir(folder) if one.name.startswith(beginning)]


def prune(folder: Path, keep_s: float = KEEP_S) -> None:
    oldest = time.time() - keep_s
    for path in folder.glob("*.log"):
        if path.stat().st_mtime < oldest:
            path.unlink(missing_ok=True)


def too_large(path: Path) -> bool:
    try:
        return path.stat().st_size > MAX_BYTES
    except OSError:
        return False


def cut(path: Path) -> None:
    """Blocking. Keeps the end; lines that are written in this very moment may be lost, too."""
    with open(path, "r+b", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(size - CUT_TO_BYTES)
        kept = file.read(CUT_TO_BYTES).partition(b"\n")[2]
        file.truncate(0)
    with open(path, "ab", buffering=0) as file:  # as the session does: at the end, wherever it is
        file.write(f"[the log grew over {MAX_BYTES} bytes: {size - len(kept)} left out]\n".encode())
        file.write(kept)


def tail(path: Path, start: int = 0, limit: int = TAIL_BYTES) -> str:
    """The last bytes that were written after ``start``."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, 2)
            file.seek(max(start, size - limit))
            return file.read().decode(errors="replace").strip()
    except OSError:
        return ""
