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

FOR_BUILDING = 0.2


class MigrationReward(RewardFunction):
    """0 without a build for Java 17; with it 0.2, and the rest by the share of what is right."""

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
        return FOR_BUILDING + (1 - FOR_BUILDING) * (verdict.passed / total)
