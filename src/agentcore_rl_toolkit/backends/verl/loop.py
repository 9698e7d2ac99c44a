"""verl's agent loop: one run is one rollout of the deployed agent.

Imported by verl in its agent-loop workers. A rollout that infrastructure failed, after its retries,
raises: verl then counts the rollout as failed and trains its siblings (sync) or draws the group
again (async). A broken contract would fail every rollout, so the whole run is told to end, with
the explanation.
"""

from __future__ import annotations

import json
import logging
from typing import Any

import transfer_queue as tq  # type: ignore[import-not-found]
from omegaconf import OmegaConf  # type: ignore[import-not-found]
from verl.experimental.agent_loop.agent_loop import (  # type: ignore[import-not-found]
    AgentLoopBase,
    AgentLoopMetrics,
    AgentLoopOutput,
)

from ...collect import Rollout, Task
from ...errors import ContractError, RolloutError
from ..bridge import BridgeSetting
from .fields import rollout_fields
from .host import Policy, shared

logger = logging.getLogger(__name__)

STOP_KEY = "agentcore-contract"


class AgentCoreLoop(AgentLoopBase):  # type: ignore[misc]
    def __init__(self, *args: Any, hf_model_type: str | None = None, **kwargs: Any) -> None:
        super().__init__(*args, hf_model_type=hf_model_type, **kwargs)
        rollout = self.rollout_config
        section = OmegaConf.select(rollout, "custom.agentcore") or OmegaConf.create({})
        given = OmegaConf.to_container(section, resolve=True)
        self._sampling = dict(given.pop("sampling", None) or {})
        self._setting = BridgeSetting.of(given).divided(rollout.agent.num_workers)
        longest = rollout.max_model_len or rollout.prompt_length + rollout.response_length
        experts = bool(rollout.get("enable_rollout_routing_replay", False))
        self._policy = Policy(self.tokenizer, hf_model_type, int(longest), experts)

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> list[AgentLoopOutput]:
        bridge = await shared(self._setting, self._policy, self.server_manager)
        collector = bridge.collector({**self._sampling, **sampling_of(sampling_params)})
        task = Task(int(row["index"]), str(row["uid"]), json.loads(row["payload"]))
        try:
            rollout = await collector.rollout(task, int(row.get("session_id", 0)))
        except ContractError as error:
            await stop_run(str(error))
            raise
        if rollout.failure is not None and rollout.failure.kind.infrastructure:
            raise RolloutError(f"rollout {rollout.rollout_id}: {rollout.failure}")
        step = int(row["global_steps"]) if row.get("global_steps") is not None else None
        return outputs(rollout, step)


def outputs(rollout: Rollout, step: int | None = None) -> list[AgentLoopOutput]:
    timings = rollout.timings
    metrics = AgentLoopMetrics(
        generate_sequences=timings.model_s, tool_calls=timings.agent_s, num_preempted=0
    )
    return [
        AgentLoopOutput(**fields, metrics=metrics) for fields in rollout_fields(rollout, step=step)
    ]


def sampling_of(given: dict[str, Any]) -> dict[str, Any]:
    """verl's sampling parameters as clients of the OpenAI API may send them."""
    found = {"temperature": float(given["temperature"]), "top_p": float(given["top_p"])}
    if given.get("top_k", -1) > 0:
        found["top_k"] = int(given["top_k"])
    if given.get("repetition_penalty", 1.0) != 1.0:
        found["repetition_penalty"] = float(given["repetition_penalty"])
    return found


async def stop_run(why: str) -> None:
    """Ends the trainer: what it polls is the queue, and a group whose status it does not know is
    an error there, with the status in its message."""
    logger.error("the run ends: %s", why)
    tag = {"is_prompt": True, "global_steps": 0, "status": f"broken contract: {why}"}
    for partition in ("train", "val"):
        await tq.async_kv_put(key=STOP_KEY, partition_id=partition, tag=tag)
