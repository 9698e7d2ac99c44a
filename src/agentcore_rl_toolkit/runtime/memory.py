"""How much memory this process may still take: the machine's, within its control groups' limits.

What a group counts as used includes files that the kernel would drop at once; they are free here,
as they are in the machine's own ``MemAvailable``.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import NamedTuple

UNLIMITED = 1 << 60
"""Version 1 says "no limit" with a number near 2**63."""


class Memory(NamedTuple):
    total: int
    free: int


def read(proc: Path = Path("/proc")) -> Memory | None:
    """Bytes; None where the system does not tell (it is not Linux)."""
    try:
        lines = (proc / "meminfo").read_text().splitlines()
        values = {name: int(rest.split()[0]) * 1024 for name, _, rest in map(_parted, lines)}
        found = Memory(values["MemTotal"], values["MemAvailable"])
    except (OSError, ValueError, KeyError, IndexError):
        return None
    for group in _groups(proc):
        if (bound := _of_group(group)) is not None:
            found = Memory(min(found.total, bound.total), min(found.free, bound.free))
    return found


def _parted(line: str) -> tuple[str, str, str]:
    return line.partition(":")


def _of_group(group: Path) -> Memory | None:
    """None when the group has no limit, or memory is not bounded in this hierarchy."""
    for limit_file, used_file, cache in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        try:
            limit = int((group / limit_file).read_text())
            if limit >= UNLIMITED:
                return None
            used = int((group / used_file).read_text())
            stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        except (OSError, ValueError):  # "max" is no number
            continue
        held = max(used - int(stat.get(cache, 0)), 0)
        return Memory(limit, max(limit - held, 0))
    return None


@functools.cache
def _groups(proc: Path) -> list[Path]:
    """The groups of this process in which memory may be bounded, with all above them."""
    try:
        own = (proc / "self/cgroup").read_text().splitlines()
        mounts = (proc / "self/mountinfo").read_text().splitlines()
    except OSError:
        return []
    paths: dict[str, str] = {}
    found: list[Path] = []
    for line in own:
        _, controllers, path = line.split(":", 2)
        paths |= dict.fromkeys(controllers.split(","), path)
    for line in mounts:
        before, _, after = line.partition(" - ")
        kind, options = after.split()[0], after.split()[2].split(",")
        wanted = "" if kind == "cgroup2" else "memory"
        if kind != "cgroup2" and not (kind == "cgroup" and "memory" in options):
            continue
        root, point = before.split()[3], Path(before.split()[4])
        path = paths.get(wanted, "/")
        inside = Path(path.removeprefix(root).lstrip("/"))
        found += [point / part for part in (inside, *inside.parents) if (point / part).is_dir()]
    return found
