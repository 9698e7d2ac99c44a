"""What the runtime counts about itself, in Prometheus' text format under ``/_art/metrics``.

Counters are plain numbers, added to on the runtime's loop; everything that has a size now is
looked up when somebody asks.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from ..prometheus import metric
from .life import State

if TYPE_CHECKING:
    from .server import RuntimeServer

PREFIX = "art_runtime"
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Metrics:
    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        """By operation and status."""
        self.starts: Counter[str] = Counter()
        """By way: from the pool, by fork, as a fresh interpreter."""
        self.start_s: defaultdict[str, float] = defaultdict(float)

    def answered(self, operation: str, status: int) -> None:
        self.requests[operation, status] += 1

    def started(self, way: str, seconds: float) -> None:
        self.starts[way] += 1
        self.start_s[way] += seconds

    def text(self, server: RuntimeServer) -> str:
        states = Counter(s.life.state.value for s in server.sessions.table.values())
        store, events = server.store, server.events
        lines = [
            *self._sums(),
            *_gauge("sessions", [({"state": s.value}, states[s.value]) for s in State]),
            *_gauge("resident_bytes", resident_bytes()),
            *_gauge("runtimes", len(server.deployments.registry.runtimes)),
            *_gauge(
                "objects", [({"bucket": b.name}, store.count(b.name)) for b in store.buckets()]
            ),
            *metric(f"{PREFIX}_events_total", "counter", events.count),
            *_gauge("event_readers", events.readers),
        ]
        return "\n".join(lines) + "\n"

    def _sums(self) -> list[str]:
        return [
            *metric(
                f"{PREFIX}_requests_total",
                "counter",
                [
                    ({"operation": name, "status": str(status)}, count)
                    for (name, status), count in sorted(self.requests.items())
                ],
            ),
            *metric(
                f"{PREFIX}_session_starts_total",
                "counter",
                [({"way": way}, count) for way, count in sorted(self.starts.items())],
            ),
            *metric(
                f"{PREFIX}_session_start_seconds_total",
                "counter",
                [({"way": way}, total) for way, total in sorted(self.start_s.items())],
            ),
        ]


def _gauge(name: str, samples: float | list[tuple[dict[str, str], float]]) -> list[str]:
    return metric(f"{PREFIX}_{name}", "gauge", samples)


def resident_bytes() -> int:
    """0 where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE
    except OSError:
        return 0
