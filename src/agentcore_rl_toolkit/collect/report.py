"""What became of everything that was collected; the parts always sum to the whole."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping

from .record import Rollout


@dataclasses.dataclass(frozen=True)
class CollectReport:
    """``submitted == succeeded + sum(failed.values()) + running``, at every moment."""

    submitted: int
    succeeded: int
    failed: Mapping[str, int]
    """By failure kind, after all retries."""
    running: int
    """Queued or under way."""
    attempts: int
    retried: Mapping[str, int]
    """Attempts that infrastructure failed and that were made again, by kind."""
    empty: int
    """Succeeded without a single trained token: the agent did not use the model."""

    def __str__(self) -> str:
        def kinds(counts: Mapping[str, int]) -> str:
            return ", ".join(f"{n} {kind}" for kind, n in sorted(counts.items()))

        text = f"{self.submitted} rollouts: {self.succeeded} succeeded"
        failed = sum(self.failed.values())
        text += f", {failed} failed" + (f" ({kinds(self.failed)})" if failed else "")
        if self.running:
            text += f", {self.running} running"
        if self.retried:
            text += f"; retried {kinds(self.retried)}"
        return text


class Tally:
    """Counts as things happen; one event loop only."""

    def __init__(self) -> None:
        self.submitted = self.succeeded = self.attempts = self.empty = 0
        self.failed: collections.Counter[str] = collections.Counter()
        self.retried: collections.Counter[str] = collections.Counter()

    def settle(self, rollout: Rollout) -> None:
        if rollout.failure is not None:
            self.failed[rollout.failure.kind.value] += 1
            return
        self.succeeded += 1
        self.empty += not rollout.tokens

    def report(self) -> CollectReport:
        return CollectReport(
            submitted=self.submitted,
            succeeded=self.succeeded,
            failed=dict(self.failed),
            running=self.submitted - self.succeeded - self.failed.total(),
            attempts=self.attempts,
            retried=dict(self.retried),
            empty=self.empty,
        )
