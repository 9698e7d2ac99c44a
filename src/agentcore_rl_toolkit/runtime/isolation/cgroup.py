"""Control groups, version 1 or 2, where this user may make them: memory, processes, CPU, freezing.

One parent group per runtime process, one group below it per session, removed with the session;
what a killed runtime left is removed by the next.

To join a group is to wait for the kernel, from a tenth of a millisecond to half a second on a busy
machine. So the runtime moves a session in while its agent is starting; what the session used
before stays on the runtime's account. Only version 2 freezes: what its predecessor has frozen
cannot be killed, and would outlive a runtime that dies.
"""

from __future__ import annotations

import atexit
import functools
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from .base import Limits
from .inside import tree

_PREFIX = "art-"
REMOVE_S = 2.0


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
    freezer: Path | None
    """Where it can be frozen; joined late when it is not among ``joined``."""
    _frozen: bool = field(default=False, init=False)

    def join(self, pid: int) -> None:
        """Blocking. The processes from ``pid`` down, and so all that they start."""
        for path in self.joined:
            _move(pid, path)

    def memory_bytes(self) -> int | None:
        for path in self.joined:
            for name in ("memory.current", "memory.usage_in_bytes"):
                if (value := _read(path / name)) is not None:
                    return int(value)
        return None

    def ran_out(self) -> bool:
        """Whether the kernel killed something of it for memory."""
        for path in self.joined:
            for name in ("memory.events", "memory.oom_control"):
                for line in (_read(path / name) or "").splitlines():
                    if line.startswith("oom_kill ") and int(line.split()[1]) > 0:
                        return True
        return False

    def freeze(self, pid: int, frozen: bool) -> bool:
        if self.freezer is None or self._frozen == frozen:
            return self.freezer is not None
        try:
            if self.freezer not in self.joined:
                self.freezer.mkdir(exist_ok=True)
                _move(pid, self.freezer)
            (self.freezer / "cgroup.freeze").write_text("1" if frozen else "0")
        except OSError:
            return False
        self._frozen = frozen
        return True

    def remove(self) -> None:
        """Blocking, for a moment: the kernel lets go of the dead a little later."""
        for path in {*self.joined, *([self.freezer] if self.freezer else [])}:
            _remove(path)


class Groups:
    """The hierarchies that this runtime may use."""

    def __init__(self, hierarchies: list[Hierarchy]) -> None:
        self._hierarchies = hierarchies
        self._count = 0

    @property
    def memory(self) -> bool:
        return any("memory" in one.controllers for one in self._hierarchies)

    def describe(self) -> str:
        """How sessions are bounded, in words."""
        found = {name for one in self._hierarchies for name in one.controllers}
        if not found & {"memory", "pids", "cpu"}:
            return "memory is watched, no control groups may be made here"
        return f"control groups bound {', '.join(sorted(found - {'freezer'}))}"

    def make(self, limits: Limits, processes: bool) -> Group:
        """``processes``: bound their number here; a user namespace of its own does it already."""
        self._count += 1
        joined: list[Path] = []
        freezer: Path | None = None
        for one in self._hierarchies:
            path = one.folder / str(self._count)
            settings = _settings(one, limits, processes)
            if "freezer" in one.controllers:
                freezer = path
            if settings:
                path.mkdir()
                joined.append(path)
                for name, value in settings.items():
                    _try_write(path / name, value)
        return Group(limits, joined, freezer)

    def close(self) -> None:
        for one in self._hierarchies:
            _remove(one.folder)


def _move(pid: int, target: Path) -> None:
    moved: set[int] = set()
    while left := [one for one in (pid, *tree.descendants(pid)) if one not in moved]:
        for one in left:  # parents first: what they start from here on is already inside
            try:
                (target / "cgroup.procs").write_text(str(one))
            except ProcessLookupError:
                pass
        moved.update(left)


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
    found: list[Hierarchy] = []
    for version, wanted, candidates in _mounts():
        for parent in candidates:
            folder = parent / f"{_PREFIX}{os.getpid()}"
            try:
                _sweep(parent)
                folder.mkdir(exist_ok=True)
            except OSError:
                continue
            controllers = wanted if version == 1 else _delegated(folder)
            if controllers:
                found.append(Hierarchy(version, folder, controllers))
                break
            _remove(folder)
    groups = Groups(found)
    atexit.register(groups.close)
    return groups


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
    """What a version 2 group can bound below itself. Freezing needs no controller."""
    usable = set((_read(folder / "cgroup.controllers") or "").split()) & {"memory", "pids", "cpu"}
    for name in sorted(usable):
        if not _try_write(folder / "cgroup.subtree_control", f"+{name}"):
            usable.discard(name)
    if (folder / "cgroup.freeze").exists():
        usable.add("freezer")
    return frozenset(usable)


def _sweep(parent: Path) -> None:
    """Removes groups of runtimes that are no more."""
    for folder in parent.glob(f"{_PREFIX}*"):
        name = folder.name.removeprefix(_PREFIX)
        if name.isdigit() and not os.path.exists(f"/proc/{name}"):
            _remove(folder, patience_s=0)


def _remove(folder: Path, patience_s: float = REMOVE_S) -> None:
    deadline = time.monotonic() + patience_s
    for child in [path for path in folder.glob("*") if path.is_dir()]:
        _remove(child, patience_s)
    while True:
        try:
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            if time.monotonic() >= deadline:
                return
            time.sleep(0.01)
        else:
            return


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None


def _try_write(path: Path, value: str) -> bool:
    try:
        path.write_text(value)
    except OSError:
        return False
    return True
