"""The reward of the migration agent: a real build for Java 17, and tests that still pass.

The tests are copies from before the agent began, and for the shipped projects also ones from
``checks`` that the agent's folder never had, with inputs drawn when they run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from java import Original, Verdict, judge

from agentcore_rl_toolkit import RewardFunction

FOR_BUILDING = 0.2
CHECKS = {
    folder.name: {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*.java")}
    for folder in (Path(__file__).resolve().parent / "checks").iterdir()
}
"""In memory from the start: what happens to the files later does not matter."""


class MigrationReward(RewardFunction):
    """0 without a build for Java 17; with it 0.2, and the rest by the share of tests passed."""

    def __init__(self, folder: Path, num_test_cases: int = 0) -> None:
        """Before the agent starts: keeps what it must not change."""
        self.original = Original.of(folder, CHECKS.get(folder.name))
        self.num_test_cases = num_test_cases
        self.verdict = Verdict()

    def __call__(self, *, folder: Path | None = None, escaped: bool = False, **_: Any) -> float:
        if folder is None or escaped:
            return 0.0
        self.verdict = verdict = judge(folder, self.original)
        total = max(verdict.total, self.num_test_cases)
        if not verdict.migrated or not total:
            return 0.0
        return FOR_BUILDING + (1 - FOR_BUILDING) * verdict.passed / total
