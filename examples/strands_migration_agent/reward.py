"""The reward of the migration agent: a real build for Java 17, and tests that still pass.

The tests are copies from before the agent began. For the shipped projects there are also questions
that come with the payload and are in no file of the session; the answers are compared here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from java import HeldOut, Original, Verdict, judge

from agentcore_rl_toolkit import RewardFunction


class MigrationReward(RewardFunction):
    """0 without a build for Java 17; with it the share of what is right.

    Building alone earns nothing: a stub with the right interface builds as well.
    """

    def __init__(
        self, folder: Path, num_test_cases: int = 0, held_out: Mapping[str, Any] | None = None
    ) -> None:
        """Before the agent starts: keeps what it must not change."""
        self.original = Original.of(folder, HeldOut(**held_out) if held_out else None)
        self.num_test_cases = num_test_cases
        self.verdict = Verdict()

    def __call__(self, *, folder: Path | None = None, escaped: bool = False, **_: Any) -> float:
        if folder is None or escaped:
            return 0.0
        self.verdict = verdict = judge(folder, self.original)
        total = max(verdict.total, self.num_test_cases)
        if not verdict.migrated or not total:
            return 0.0
        return max(0.0, min(1.0, verdict.passed / total))
