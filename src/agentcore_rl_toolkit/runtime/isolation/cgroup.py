"""Control groups, version 1 or 2, where this user may make them: memory, processes, CPU.

One parent group per runtime process, one group below it per session, removed some seconds after
the session; what a killed runtime left is removed by the next.

To join a group is to wait for the kernel, from a tenth of a millisecond to half a second on a busy
machine. So the runtime moves a session in while its agent is starting; what the session used
before stays on the runtime's account.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import itertools
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from .base import Limits
from .inside import tree

_PREFIX = "art-"
_numbers = itertools.count(1)
"""Of the groups of this process, whoever makes them."""
LINGER_S = 15.0
"""From a session's end to the end of its group, which is empty by then. The kernel looks through
every file system on the machine for each group, and has enough to do while sessions end."""
REMOVE_S = 2.0
CLOSE_S = 15.0
"""At the runtime's end, for all groups together: whoever was killed still needs CPU time to die."""
WAITING = ThreadPoolExecutor(32, "control groups")
"""For what waits for the kernel. The event loop's own threads are few, and others need them."""


@dataclass
class Hierarchy:
    version: int
    folder: Path
    """The runtime's own group in it."""
    controllers: frozenset[str]


@dataclass
class Group:
    """Of one session."""

    limits: Limits
    joined: list[Path]
    memory: Path | None
    """The one of them that bounds memory."""

    def join(self, pid: int) -> None:
        """Blocking. The processes from ``pid`` down, and so all that they start."""
        for path in self.joined:
            _move(pid, path)

    def memory_bytes(self) -> int | None:
        for name in ("memory.current", "memory.usage_in_bytes") if self.memory else ():
            if (value := _read(f"{self.memory}/{name}")) is not None:
                return int(value)
        return None

    def ran_out(self) -> bool:
        """Whether the kernel killed something of it for memory."""
        for name in ("memory.events", "memory.oom_control") if self.memory else ():
            for line in (_read(f"{self.memory}/{name}") or "").splitlines():
                if line.startswith("oom_kill ") and int(line.split()[1]) > 0:
                    return True
        return False

    def remove_later(self) -> None:
        """On the running event loop, or before, by ``remove_left``."""
        if self.joined:
            loop = asyncio.get_running_loop()
            _left[id(self)] = self, loop.call_later(LINGER_S, WAITING.submit, self.remove)

    def remove(self) -> None:
        """Blocking, for a moment: the kernel lets go of the dead a little later."""
        _left.pop(id(self), None)
        for path in self.joined:
            _remove_one(path)


_left: dict[int, tuple[Group, asyncio.TimerHandle]] = {}
"""Groups of sessions that have ended, and when they are to go."""


async def remove_left() -> None:
    """Those of this event loop's sessions, many at a time; at the exit it would be one by one."""
    loop = asyncio.get_running_loop()
    left = list(_left.values())
    for _, timer in left:
        timer.cancel()
    await asyncio.gather(*(loop.run_in_executor(WAITING, group.remove) for group, _ in left))


class Groups:
    """The hierarchies that this runtime may use."""

    def __init__(self, hierarchies: list[Hierarchy]) -> None:
        self._hierarchies = hierarchies

    @property
    def memory(self) -> bool:
        return any("memory" in one.controllers for one in self._hierarchies)

    def describe(self) -> str:
        """How sessions are bounded, in words."""
        found = {name for one in self._hierarchies for name in one.controllers}
        if not found:
            return "memory is watched, no control groups may be made here"
        return f"control groups bound {', '.join(sorted(found))}"

    def make(self, limits: Limits, processes: bool) -> Group:
        """``processes``: bound their number here; a user namespace of its own does it already."""
        number = next(_numbers)
        joined: list[Path] = []
        memory: Path | None = None
        for one in self._hierarchies:
            path = one.folder / str(number)
            settings = _settings(one, limits, processes)
            if settings:
                path.mkdir()
                joined.append(path)
                memory = path if "memory" in one.controllers else memory
                for name, value in settings.items():
                    _try_write(f"{path}/{name}", value)
        return Group(limits, joined, memory)

    def close(self) -> None:
        deadline = time.monotonic() + CLOSE_S
        for one in self._hierarchies:
            _remove(one.folder, max(0.0, deadline - time.monotonic()))


def _move(pid: int, target: Path) -> None:
    moved: set[int] = set()
    procs = os.open(target / "cgroup.procs", os.O_WRONLY)
    try:
        while left := [one for one in (pid, *tree.descendants(pid)) if one not in moved]:
            for one in left:  # parents first: what they start from here on is already inside
                try:
                    os.write(procs, str(one).encode())
                except ProcessLookupError:
                    pass
            moved.update(left)
    finally:
        os.close(procs)


def _settings(one: Hierarchy, limits: Limits, processes: bool) -> dict[str, str]:
    memory = str(limits.memory_mb * 1024 * 1024)
    quota = str(int(limits.cpus * 100_000))
    scarce = limits.cpus < (os.cpu_count() or 1)
    found: dict[str, str] = {}
    if "memory" in one.controllers:
        if one.version == 1:
            found |= {"memory.limit_in_bytes": memory, "memory.memsw.limit_in_bytes": memory}
        else:
            found |= {"memory.max": memory, "memory.swap.max": "0", "memory.oom.group": "1"}
    if "pids" in one.controllers and (processes or one.version == 2):
        found["pids.max"] = str(limits.processes)
    if "cpu" in one.controllers and scarce:
        if one.version == 1:
            found["cpu.cfs_quota_us"] = quota
        else:
            found["cpu.max"] = f"{quota} 100000"
    return found


@functools.cache
def find() -> Groups:
    """Looked for once; without any, limits fall to their substitutes."""
    found = [one for mount in _mounts() if (one := _settle(*mount)) is not None]
    groups = Groups(found)
    atexit.register(groups.close)
    return groups


def _settle(version: int, wanted: frozenset[str], candidates: list[Path]) -> Hierarchy | None:
    """The runtime's own group: the nearest that can bound most. A group that has processes in it,
    as the one we were started in, often bounds nothing below itself."""
    best: Hierarchy | None = None
    for parent in candidates:
        folder = parent / f"{_PREFIX}{os.getpid()}"
        try:
            _sweep(parent)
            folder.mkdir(exist_ok=True)
        except OSError:
            continue
        one = Hierarchy(version, folder, wanted if version == 1 else _delegated(folder))
        if len(one.controllers) <= (len(best.controllers) if best else 0):
            _remove(folder)
            continue
        if best is not None:
            _remove(best.folder)
        best = one
        if version == 1 or {"memory", "pids", "cpu"} <= one.controllers:
            break
    return best


def _mounts() -> list[tuple[int, frozenset[str], list[Path]]]:
    """Version, controllers, and the folders in which a group may be made, nearest first."""
    own: dict[str, str] = {}
    for line in (_read(Path("/proc/self/cgroup")) or "").splitlines():
        _, names, path = line.split(":", 2)
        own |= dict.fromkeys(names.split(","), path)
    found = []
    for line in (_read(Path("/proc/self/mountinfo")) or "").splitlines():
        before, _, after = line.partition(" - ")
        kind, options = after.split()[0], set(after.split()[2].split(","))
        point = Path(before.split()[4])
        if kind == "cgroup2":
            base = Path(f"{point}{own.get('', '/')}")
            near = [base, base.parent] if base != point else []
            found.append((2, frozenset[str](), [*near, point]))
        elif kind == "cgroup":
            controllers = frozenset(options & {"memory", "pids", "cpu"})
            if controllers:
                place = own.get(min(controllers), "/")
                found.append((1, controllers, [Path(f"{point}{place}"), point]))
    return found


def _delegated(folder: Path) -> frozenset[str]:
    """What a version 2 group can bound below itself."""
    usable = set((_read(folder / "cgroup.controllers") or "").split()) & {"memory", "pids", "cpu"}
    for name in sorted(usable):
        if not _try_write(folder / "cgroup.subtree_control", f"+{name}"):
            usable.discard(name)
    return frozenset(usable)


def _sweep(parent: Path) -> None:
    """Removes groups of runtimes that are no more."""
    for folder in parent.glob(f"{_PREFIX}*"):
        name = folder.name.removeprefix(_PREFIX)
        if name.isdigit() and not os.path.exists(f"/proc/{name}"):
            _remove(folder, patience_s=0)


def _remove(folder: Path, patience_s: float = REMOVE_S) -> None:
    """With the groups of sessions in it; the patience is for all of them together."""
    deadline = time.monotonic() + patience_s
    for child in [path for path in folder.glob("*") if path.is_dir()]:
        _remove_one(child, max(0.0, deadline - time.monotonic()))
    _remove_one(folder, max(0.0, deadline - time.monotonic()))


def _remove_one(folder: Path, patience_s: float = REMOVE_S) -> None:
    deadline = time.monotonic() + patience_s
    while True:
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            return
        except OSError:
            if time.monotonic() >= deadline:
                return
            time.sleep(0.01)
        else:
            return


def _read(path: str | Path) -> str | None:
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return None


def _try_write(path: str | Path, value: str) -> bool:
    try:
        descriptor = os.open(path, os.O_WRONLY)
    except OSError:
        return False
    try:
        os.write(descriptor, value.encode())
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True
