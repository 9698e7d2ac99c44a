"""What process groups use, as ``ps`` tells it: for systems without /proc."""

from __future__ import annotations

import subprocess
import time

from .base import Stats

LOOK_S = 2.0
_seen: tuple[float, dict[int, Stats]] = (float("-inf"), {})


def groups() -> dict[int, Stats]:
    """Blocking, for some milliseconds; asked again when the last answer is old."""
    global _seen
    if time.monotonic() - _seen[0] > LOOK_S:
        _seen = (time.monotonic(), _ask_ps())
    return _seen[1]


def _ask_ps() -> dict[int, Stats]:
    try:
        asked = ["ps", "-A", "-o", "pgid=,rss=,time="]
        lines = subprocess.run(asked, capture_output=True, text=True, timeout=5).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    found: dict[int, Stats] = {}
    for group, resident, spent in (line.split() for line in lines.splitlines()):
        before = found.get(int(group), Stats(0, 0, 0.0))
        memory = before.memory_bytes + int(resident) * 1024
        found[int(group)] = Stats(memory, before.processes + 1, before.cpu_s + _seconds(spent))
    return found


def _seconds(spent: str) -> float:
    """Of ``[days-][hours:]minutes:seconds``."""
    days, _, rest = spent.rpartition("-")
    total = 0.0
    for part in rest.split(":"):
        total = total * 60 + float(part)
    return total + 86_400 * int(days or 0)
