"""Rollouts that every exporter must carry over without loss, made by the real graph.

Each is a list of model calls as a gateway sees them; ``delivered`` says which sampled ids a trainer
must train, and with what log-probability.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Iterator
from typing import Any

from agentcore_rl_toolkit.collect import Rollout, Timings
from agentcore_rl_toolkit.rollout import Failure, FailureKind
from agentcore_rl_toolkit.trajectory import RowStatus, SessionGraph, assign_rewards


@dataclasses.dataclass(frozen=True)
class Call:
    prompt: tuple[int, ...]
    sampled: tuple[int, ...]
    fields: dict[str, Any] = dataclasses.field(default_factory=dict)
    trained: bool = True
    retry_key: str | None = None


@dataclasses.dataclass(frozen=True)
class Golden:
    name: str
    calls: tuple[Call, ...]
    rewards: Any = 1.0
    failure: Failure | None = None

    def delivered(self) -> list[tuple[int, float]]:
        """(id, log-probability) of everything that must be trained, in no order."""
        if self.failure is not None and self.failure.kind.infrastructure:
            return []
        calls = [call for call in self.calls if call.trained]
        return sorted((i, logprob(i)) for call in calls for i in call.sampled)


def logprob(token_id: int) -> float:
    """Ids are unique in a rollout, so each has a log-probability of its own; exact in float32."""
    return -token_id / 64


GOLDEN = (
    Golden(
        "multi-turn with tools",
        (
            Call((1, 2, 3), (100, 101, 102), {"versions": [("4", 0, 3)]}),
            Call((1, 2, 3, 100, 101, 102, 7, 8), (103, 104), {"versions": [("4", 0, 2)]}),
            Call(
                (1, 2, 3, 100, 101, 102, 7, 8, 103, 104, 9),
                (105,),
                {"versions": [("5", 0, 1)]},
            ),
        ),
        rewards=0.5,
    ),
    Golden(
        "branches",
        (
            Call((1, 2), (110, 111)),
            Call((1, 2, 110, 111, 5), (112,)),
            Call((1, 2, 110, 111, 6), (113, 114)),  # the same history continued otherwise
            Call((40, 41), (115,)),  # a sub-agent with a history of its own
        ),
    ),
    Golden(
        "truncated",
        (Call((1, 2), (120,)), Call((1, 2, 120, 3), (121, 122), {"finish_reason": "length"})),
        rewards=0.0,
    ),
    Golden(
        "agent failed",
        (Call((1, 2), (130, 131)),),
        failure=Failure(FailureKind.AGENT, "ValueError: no such tool"),
    ),
    Golden(
        "infrastructure failed",
        (Call((1, 2), (140, 141)),),
        failure=Failure(FailureKind.SESSION_LOST, "its session died"),
    ),
    Golden(
        "retried turn",
        (
            Call((1, 2), (150, 151), {"delivered": False}, trained=False, retry_key="k"),
            Call((1, 2), (152, 153), retry_key="k"),
            Call((1, 2, 152, 153, 4), (154,)),
        ),
    ),
    Golden(
        "a reward per turn",
        (Call((1, 2), (160,)), Call((1, 2, 160, 3), (161, 162)), Call((50,), (163,))),
        rewards=[0.25, 0.0, 1.0],
    ),
)


def rollout_of(golden: Golden, sample: int = 0) -> Rollout:
    """As the collector gives it."""
    name = f"g{zlib.crc32(golden.name.encode()):x}-{sample}"
    graph = SessionGraph(f"s-{name}", rollout_id=name, group_id=golden.name)
    for call in golden.calls:
        placement = graph.place(prompt_ids=call.prompt, retry_key=call.retry_key)
        logprobs = [logprob(i) for i in call.sampled]
        graph.commit(
            graph.make_turn(placement, sampled=call.sampled, logprobs=logprobs, **call.fields)
        )
    failure = golden.failure
    rows = [] if failure is not None and failure.kind.infrastructure else graph.rows()
    reward = None
    if failure is None:
        reward = assign_rewards(rows, golden.rewards)[0].reward
    elif rows:
        reward = assign_rewards(rows, -1.0)[0].reward
        for row in rows:
            row.status = RowStatus.FAILED
    return Rollout(
        task=0,
        sample=sample,
        group_id=golden.name,
        rollout_id=name,
        session_id=f"s-{name}",
        rows=tuple(rows),
        reward=reward,
        result=None,
        failure=failure,
        attempts=1,
        turns=len(golden.calls),
        timings=Timings(),
        metrics={"answered": 1.0},
    )


def rollouts() -> Iterator[tuple[Golden, Rollout]]:
    for golden in GOLDEN:
        yield golden, rollout_of(golden)
