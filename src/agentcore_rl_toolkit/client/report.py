"""What became of everything that was submitted; the parts always sum to the whole."""

from __future__ import annotations

import collections
import dataclasses
import threading
import time
from collections.abc import Mapping

from ..rollout import Failure


@dataclasses.dataclass(frozen=True)
class Report:
    """``submitted == succeeded + sum(failed.values()) + running``, at every moment."""

    submitted: int
    succeeded: int
    failed: Mapping[str, int]
    """By failure kind."""
    running: int
    """Queued, being accepted, or under way."""
    attempts: int
    """Sessions asked for; more than submitted when rollouts were tried again."""
    stops_failed: int
    """Sessions that could not be stopped; the runtime ends them when they are idle."""

    def __str__(self) -> str:
        failed = ", ".join(f"{count} {kind}" for kind, count in sorted(self.failed.items()))
        return (
            f"{self.submitted} submitted: {self.succeeded} succeeded, "
            f"{sum(self.failed.values())} failed{f' ({failed})' if failed else ''}, "
            f"{self.running} running; {self.attempts} attempts"
        )


@dataclasses.dataclass(frozen=True)
class Progress:
    """A batch at one moment."""

    submitted: int
    running: int
    done: int
    """Ended, well or not."""
    failed: int
    by_kind: Mapping[str, int]
    elapsed: float
    """Seconds since the batch began."""


class Tally:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started = time.monotonic()
        self._submitted = self._succeeded = self._attempts = 0
        self._failed: collections.Counter[str] = collections.Counter()

    def submit(self) -> None:
        with self._lock:
            self._submitted += 1

    def attempt(self) -> None:
        with self._lock:
            self._attempts += 1

    def settle(self, failure: Failure | None) -> None:
        with self._lock:
            if failure is None:
                self._succeeded += 1
            else:
                self._failed[failure.kind.value] += 1

    def report(self, stops_failed: int) -> Report:
        with self._lock:
            done = self._succeeded + self._failed.total()
            return Report(
                submitted=self._submitted,
                succeeded=self._succeeded,
                failed=dict(self._failed),
                running=self._submitted - done,
                attempts=self._attempts,
                stops_failed=stops_failed,
            )

    def progress(self) -> Progress:
        with self._lock:
            failed = self._failed.total()
            done = self._succeeded + failed
            return Progress(
                submitted=self._submitted,
                running=self._submitted - done,
                done=done,
                failed=failed,
                by_kind=dict(self._failed),
                elapsed=time.monotonic() - self._started,
            )
