"""rllm's engine of remote rollouts, with this toolkit's rules for what failed.

rllm rewards every failure with 0. Here a rollout that infrastructure failed runs again, in a
session and a gateway session of its own; one that stays lost ends as an error, which
``compact_filtering`` leaves out of its group. One whose agent raised is an outcome: it keeps its
turns and gets ``failed_reward``; a result without rewards ends the run. Every rollout is one line
of ``rollouts.jsonl``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rllm.engine.remote_agent_flow_engine import (  # type: ignore[import-not-found]
    RemoteAgentFlowEngine,
)
from rllm.workflows.workflow import TerminationReason  # type: ignore[import-not-found]

from ...errors import ContractError
from ...rollout import FailureKind
from ...run.folder import RunFolder
from ...run.writer import LineWriter
from ..bridge import Alive

NO_REWARDS = "the agent's result has no 'rewards': return {\"rewards\": <number>}"


class Flow(RemoteAgentFlowEngine):  # type: ignore[misc]
    run_dir: Path
    retries: int
    failed_reward: float

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._lines = LineWriter(RunFolder(self.run_dir).rollouts)
        self._alive = Alive()

    async def process_task_with_retry(self, *args: Any, **named: Any) -> Any:
        attempt, again = 0, True
        while again:
            attempt += 1
            found = await super().process_task_with_retry(*args, **named)
            kind = failure_of(found[3])
            again = kind is not None and kind.infrastructure and attempt <= self.retries
        episode = found[3]
        if kind is FailureKind.AGENT:
            episode.termination_reason = TerminationReason.ENV_DONE
            for trajectory in episode.trajectories:
                trajectory.reward = self.failed_reward
        self._lines.append(record(episode, kind, attempt))
        self._alive.saw(kind and f"{kind.value}: {episode.metadata['error']['error_message']}")
        if kind is None and not rewarded(episode):
            raise ContractError(f"rollout {episode.id}: {NO_REWARDS}")
        return found

    def shutdown(self) -> None:
        super().shutdown()
        self._lines.close()


def rewarded(episode: Any) -> bool:
    """Its trainer would take a missing reward for a number."""
    found = [one.reward for one in episode.trajectories]
    return bool(found) and None not in found


def failure_of(episode: Any) -> FailureKind | None:
    """An agent that raised has stored a result that says so; anything else is infrastructure."""
    error = episode.metadata.get("error")
    if error is None:
        return None
    if "status_code" in error:
        return FailureKind.AGENT
    timed_out = episode.termination_reason == TerminationReason.TIMEOUT
    return FailureKind.TIMEOUT if timed_out else FailureKind.SESSION_LOST


def record(episode: Any, kind: FailureKind | None, attempts: int) -> dict[str, Any]:
    steps = [step for one in episode.trajectories for step in one.steps]
    lost = kind is not None and kind.infrastructure
    rewards = [one.reward for one in episode.trajectories]
    return {
        "rollout_id": episode.id,
        "group_id": str(episode.id).rpartition(":")[0],
        "session_id": episode.session_id,
        "reward": None if lost or not rewards else rewards[0],
        "failure": None if kind is None else kind.value,
        "error": (episode.metadata.get("error") or {}).get("error_message"),
        "attempts": attempts,
        "turns": len(steps),
        "tokens": sum(len(step.response_ids or ()) for step in steps),
    }


def make_flow(run_dir: Path, retries: int, failed_reward: float) -> type[Flow]:
    fields = {"run_dir": run_dir, "retries": retries, "failed_reward": failed_reward}
    return type("Flow", (Flow,), fields)
