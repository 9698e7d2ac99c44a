"""What goes into the collector and what comes out, one frozen record each."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ..rollout import Failure
from ..trajectory.row import Row


@dataclasses.dataclass(frozen=True)
class Task:
    """One problem; its rollouts form a group."""

    index: int
    """Place in the data."""
    group_id: str
    """Unique in the run, part of every result key."""
    payload: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Timings:
    """Seconds of the last attempt by stage, ``retry_s`` those of the attempts before."""

    queue_s: float = 0.0
    """Waiting for one of ``max_concurrent`` places."""
    start_s: float = 0.0
    """From the request until the session has taken the rollout."""
    agent_s: float = 0.0
    """The agent's own work: until its handler returned, less ``model_s`` and ``reward_s``.

    An agent that tells no times has no ``reward_s``, and here also the storing of its result.
    """
    model_s: float = 0.0
    """Its model calls, as the gateway saw them."""
    reward_s: float = 0.0
    """Its ``RewardFunction``; a reward that is a plain function counts as agent."""
    finish_s: float = 0.0
    """Storing and fetching the result, taking the rows from the gateway."""
    retry_s: float = 0.0

    @property
    def total_s(self) -> float:
        return float(sum(dataclasses.astuple(self)))


@dataclasses.dataclass(frozen=True)
class Rollout:
    """One task attempted once, however many attempts infrastructure made of it."""

    task: int
    sample: int
    group_id: str
    rollout_id: str
    session_id: str
    """Of the last attempt."""
    rows: tuple[Row, ...]
    """Empty when infrastructure failed it, or when the agent asked the model nothing."""
    reward: float | None
    """None when infrastructure failed it: such a rollout says nothing about the policy."""
    result: Mapping[str, Any] | None
    """As the agent saved it."""
    failure: Failure | None
    attempts: int
    turns: int
    timings: Timings
    metrics: Mapping[str, float]
    """Scalars that the agent returned."""

    @property
    def ok(self) -> bool:
        return self.failure is None

    @property
    def counted(self) -> bool:
        """Whether it says something about the policy: its agent ran to an end, good or bad."""
        return self.reward is not None

    @property
    def tokens(self) -> int:
        return sum(row.n_trained for row in self.rows)

    def record(self) -> dict[str, Any]:
        """Its line in ``rollouts.jsonl``; rows are derived from the journal, not stored twice."""
        return {
            "task": self.task,
            "sample": self.sample,
            "group_id": self.group_id,
            "rollout_id": self.rollout_id,
            "session_id": self.session_id,
            "reward": self.reward,
            "failure": None if self.failure is None else self.failure.kind.value,
            "error": None if self.failure is None else self.failure.message,
            "attempts": self.attempts,
            "rows": len(self.rows),
            "turns": self.turns,
            "tokens": self.tokens,
            "versions": sorted({v for row in self.rows for v, _, _ in row.weight_versions}),
            "metrics": dict(self.metrics),
            "timings": {k: round(v, 4) for k, v in dataclasses.asdict(self.timings).items()},
        }
