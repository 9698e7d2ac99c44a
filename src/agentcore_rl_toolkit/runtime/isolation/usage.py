"""What a session uses, as /proc tells it."""

from __future__ import annotations

import os

from .base import Stats
from .inside import tree

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICK = os.sysconf("SC_CLK_TCK")


def host_pid(handle: int) -> int:
    """The pid, in this process's namespace, behind a pidfd; 0 when it has ended."""
    with open(f"/proc/self/fdinfo/{handle}") as file:
        for line in file:
            if line.startswith("Pid:"):
                return max(int(line.split()[1]), 0)
    return 0


def measure(pid: int, table: dict[int, int] | None = None) -> Stats:
    """Private memory, number and processor time of the processes from ``pid`` down."""
    memory = count = 0
    cpu = 0.0
    for one in (pid, *tree.descendants(pid, table)):
        try:
            cpu += _cpu_s(one)
            memory += private_bytes(one)
            count += 1
        except (OSError, ValueError):
            continue
    return Stats(memory, count, cpu)


def cpu_s(pid: int) -> float:
    """Processor time of the processes from ``pid`` down that still run."""
    total = 0.0
    for one in (pid, *tree.descendants(pid)):
        try:
            total += _cpu_s(one)
        except (OSError, ValueError):
            continue
    return total


def resident_bytes(pid: int) -> int:
    """Cheap, and never less than the private memory."""
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return 0


def private_bytes(pid: int) -> int:
    """Memory that would be free if the process were gone; pages shared with a zygote are not."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            lines = file.read().splitlines()
    except OSError:
        return resident_bytes(pid)
    wanted = (b"Private_Clean:", b"Private_Dirty:", b"Swap:")
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(wanted))


def _cpu_s(pid: int) -> float:
    with open(f"/proc/{pid}/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK
