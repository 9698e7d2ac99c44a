"""What a session is given that shares the machine's files and network, on every system.

An own home, temporary folder and working copy of the agent's folder; limits that a process can be
bound by; and, where nothing else ends it with the runtime, a line to hold on to.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import threading

COPY_BYTES = 16 * 1024 * 1024
"""Up to this an agent's folder is copied for each session; of a larger one only links are."""


def furnish(folder: str, scratch: str) -> tuple[dict[str, str], str]:
    """Variables that name its places, and the folder to work in."""
    home, temporary, work = (os.path.join(scratch, name) for name in ("home", "tmp", "work"))
    os.makedirs(home, mode=0o700)
    os.makedirs(temporary, mode=0o700)
    if _size(folder) <= COPY_BYTES:
        shutil.copytree(folder, work, symlinks=True)
    else:
        os.makedirs(work, mode=0o700)
        for name in os.listdir(folder):
            os.symlink(os.path.join(folder, name), os.path.join(work, name))
    return {"HOME": home, "TMPDIR": temporary}, work


def _size(folder: str) -> int:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            total += os.lstat(os.path.join(place, name)).st_size
        if total > COPY_BYTES:
            break
    return total


def limit(limits: dict[str, int]) -> None:
    """Of this process and all that it starts; memory is not among what can be bound like this."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for kind, value in (
        (resource.RLIMIT_NOFILE, limits["open_files"]),
        (resource.RLIMIT_FSIZE, limits["disk_mb"] * 1024 * 1024),
    ):
        hard = resource.getrlimit(kind)[1]
        bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (bound, bound))


def hold(line: int) -> None:
    """Ends this process group when whoever has the other end of the pipe is gone."""

    def wait() -> None:
        os.read(line, 1)
        os.killpg(os.getpgrp(), signal.SIGKILL)

    os.set_inheritable(line, False)
    threading.Thread(target=wait, name="held by the runtime", daemon=True).start()
