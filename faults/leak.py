"""What a run must not leave behind, and how much memory its parts take.

Found by what is the run's own: a mark in the environment of its processes, its ports, its work
folder, and control groups by the process numbers of its runtimes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

LISTEN = "0A"
GROUPS = Path("/sys/fs/cgroup")
CACHES = ("torchinductor_",)
SLACK_MB = 64.0
GROWTH = 1.5


def processes(mark: str) -> list[str]:
    """Alive, with the mark in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        if int(folder.name) == os.getpid():
            continue
        try:
            if mark.encode() not in (folder / "environ").read_bytes():
                continue
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            said = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:120]
        except OSError:
            continue
        if state != "Z":
            found.append(f"process {folder.name}: {said}")
    return found


def sockets(ports: Iterable[int]) -> list[str]:
    wanted = set(ports)
    found = []
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        port = int(fields[1].rpartition(":")[2], 16)
        if fields[3] == LISTEN and port in wanted:
            found.append(f"somebody still listens on port {port}")
    return found


def mounts(work: Path) -> list[str]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [f"mount: {line}" for line in lines if str(work) in line]


def groups(pids: Iterable[int], base: Path = GROUPS) -> list[str]:
    names = {f"art-{pid}" for pid in pids}
    found = []
    for folder, below, _ in os.walk(base):
        found += [f"control group {folder}/{name}" for name in below if name in names]
    return found


def folders(tmp: Path) -> list[str]:
    """All but caches that libraries keep there on purpose."""
    left = [path for path in tmp.iterdir() if not path.name.startswith(CACHES)]
    return [f"temporary folder {path}" for path in left]


def memory_mb(pids: Iterable[int]) -> float:
    """Private and shared, as the kernel counts it fairly; plain resident size where it does not."""
    total = 0.0
    for pid in pids:
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        for line in text.splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) / 1024
    return total


def files(pids: Iterable[int]) -> int:
    """Open descriptors."""
    total = 0
    for pid in pids:
        try:
            total += len(os.listdir(f"/proc/{pid}/fd"))
        except OSError:
            continue
    return total


def grown(name: str, before: float, after: float, slack: float = SLACK_MB) -> list[str]:
    if after <= before * GROWTH + slack:
        return []
    return [f"{name} grew from {before:.0f} to {after:.0f}"]
