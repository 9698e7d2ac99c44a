"""A process tree as /proc shows it, its standing still, and its end."""

from __future__ import annotations

import functools
import os
import signal
import time
from collections.abc import Callable

_LISTED = os.path.exists(f"/proc/self/task/{os.getpid()}/children")
"""Whether this kernel lists the children of a process."""
_STOP_ROUNDS = 8


def parents() -> dict[int, int]:
    """Parent of every visible process."""
    found: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                # The command name may hold spaces and brackets; the fields after it do not.
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        found[int(name)] = int(fields[1])
    return found


def descendants(root: int, table: dict[int, int] | None = None) -> list[int]:
    """Everything below ``root``, not itself, parents before their children.

    With a table of all processes as it says; without, from the tree alone where the kernel lists
    children, which costs nothing extra on a machine full of sessions.
    """
    below: Callable[[int], list[int]] = _children_of
    if table is not None or not _LISTED:
        by_parent: dict[int, list[int]] = {}
        for pid, parent in (parents() if table is None else table).items():
            by_parent.setdefault(parent, []).append(pid)
        below = functools.partial(_look_up, by_parent)
    found: list[int] = []
    queue = [root]
    while queue:
        children = below(queue.pop(0))
        found += children
        queue += children
    return found


def _look_up(by_parent: dict[int, list[int]], pid: int) -> list[int]:
    return by_parent.get(pid, [])


def _children_of(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as file:
                found += [int(word) for word in file.read().split()]
    except OSError:  # it has just ended
        pass
    return found


def reap() -> dict[int, int]:
    """Collects every child that has ended: pid to wait status."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = status


def stop_below(root: int) -> frozenset[int]:
    """Stops all below ``root``; those it stopped, none when the tree grows while it is stopped.

    A stopped process can be killed and needs no control group, which is why it is done this way:
    to join one holds up every fork on the machine, and version 1 keeps the dead from dying.
    """
    seen: set[int] = set()
    stopped: set[int] = set()
    for _ in range(_STOP_ROUNDS):
        fresh = [pid for pid in descendants(root) if pid not in seen]
        if not fresh:
            return frozenset(stopped)
        seen.update(fresh)
        for pid in fresh:  # parents first: what is stopped starts nothing more
            if _runs(pid) and _send(pid, signal.SIGSTOP):
                stopped.add(pid)
    go_on_below(root, frozenset(stopped))
    return frozenset()


def go_on_below(root: int, stopped: frozenset[int]) -> None:
    """Only what is still there: another process may have the number of one that was killed."""
    for pid in descendants(root) if stopped else ():
        if pid in stopped:
            _send(pid, signal.SIGCONT)


def _runs(pid: int) -> bool:
    """False also for what has been stopped by somebody else, who will wake it."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in b"TtZX"
    except OSError:
        return False


def _send(pid: int, number: signal.Signals) -> bool:
    try:
        os.kill(pid, number)
    except OSError:
        return False
    return True


def end_below(root: int, spare: frozenset[int] = frozenset(), patience_s: float = 10.0) -> bool:
    """Kills all below ``root`` but the trees of ``spare``; True once nothing is left.

    The caller is a subreaper, so what a killed process leaves behind comes to it. Stopping first
    keeps a fork bomb from outrunning the sweep.
    """
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        table = None if _LISTED else parents()
        kept = {pid for one in spare for pid in (one, *descendants(one, table))}
        victims = [pid for pid in descendants(root, table) if pid not in kept]
        if not victims and not set(children()) - spare:
            return True
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in victims:
                try:
                    os.kill(pid, number)
                except OSError:
                    pass
        for pid in victims:
            try:
                os.waitpid(pid, os.WNOHANG)
            except OSError:
                pass
        time.sleep(0.001)
    return False


def children() -> list[int]:
    """Direct children of this process, ended but unreaped ones included."""
    me = os.getpid()
    if _LISTED:
        return _children_of(me)
    return [pid for pid, parent in parents().items() if parent == me]
