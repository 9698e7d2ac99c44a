"""One attempt at a rollout: a gateway session and a runtime session, opened and ended together.

However it ends, also by cancellation, the gateway session is finished and the runtime session is
stopped (by the client, whose future settles or is cancelled).
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Mapping
from typing import Any, Protocol

from ..client import RolloutClient
from ..client.order import new_id
from ..errors import ConfigError, GatewayError, RolloutError
from ..gateway.admin import Finished, Opened
from ..gateway.session import OpenSession
from ..rollout import Failure, FailureKind, failure_of
from .record import Task, Timings
from .setting import CollectSetting

NO_KEY = "EMPTY"
"""The key is in the path of ``base_url``."""


MAX_TOLD_S = 1e9
"""An agent that says more of its time is not believed."""


class GatewayLike(Protocol):
    """The slice of ``gateway.Gateway`` that a collector uses."""

    async def open_session(self, spec: OpenSession) -> Opened: ...

    async def finish_session(
        self,
        session_id: str,
        metadata: dict[str, Any] | None = None,
        timeout_s: float | None = None,
    ) -> Finished: ...


@dataclasses.dataclass(frozen=True)
class Ended:
    session_id: str
    result: Mapping[str, Any] | None
    failure: Failure | None
    finished: Finished | None
    """None when the gateway could not give the session's rows, which is a failure."""
    timings: Timings


async def attempt(
    client: RolloutClient,
    gateway: GatewayLike,
    setting: CollectSetting,
    task: Task,
    rollout_id: str,
) -> Ended:
    session_id = new_id()
    started = time.monotonic()
    spec = OpenSession(
        session_id=session_id,
        rollout_id=rollout_id,
        group_id=task.group_id,
        sampling=dict(setting.sampling),
        overwrite=True,
    )
    try:
        opened = await gateway.open_session(spec)
    except GatewayError as error:  # a full disk, or a gateway that is away: not this task's doing
        shut = Failure(FailureKind.MODEL, f"the gateway opened no session: {error}")
        return Ended(session_id, None, shut, None, Timings(start_s=time.monotonic() - started))
    accepted: float | None = None
    result: Mapping[str, Any] | None = None
    try:
        future = await client.invoke_async(
            task.payload,
            session_id=session_id,
            input_id=task.group_id,
            base_url=opened.base_url,
            model_id=setting.model_id,
            api_key=NO_KEY,
            sampling_params=dict(setting.sampling),
        )
        accepted = time.monotonic()
        result = await future.result_async(timeout=setting.timeout_s)
        failure = failure_of(result)
    except asyncio.CancelledError:
        current = asyncio.current_task()
        if current is None or current.cancelling():
            await _abandon(gateway, session_id)
            raise
        # not this task, but the rollout was cancelled: somebody closed the client
        failure = Failure(FailureKind.CANCELLED, "the rollout was cancelled")
    except (RolloutError, ConfigError) as error:
        failure = failure_from(error)
    ended = time.monotonic()
    finished, failure = await _finish(gateway, session_id, setting, failure)
    model_s = finished.model_s if finished is not None else 0.0
    worked = stages(result, ended - (accepted or ended), model_s)
    timings = dataclasses.replace(
        worked,
        start_s=(accepted or ended) - started,
        finish_s=worked.finish_s + time.monotonic() - ended,
    )
    return Ended(session_id, result, failure, finished, timings)


def stages(result: Mapping[str, Any] | None, spent: float, model_s: float) -> Timings:
    """The time from acceptance to result, as the agent tells it; its word is bounded by ours."""
    timing = result.get("timing") if isinstance(result, Mapping) else None
    told = timing if isinstance(timing, Mapping) else {}
    handler_s = min(spent, _seconds(told.get("handler_s"), spent))
    own_s = max(0.0, handler_s - model_s)
    reward_s = min(own_s, _seconds(told.get("reward_s"), 0.0))
    return Timings(
        agent_s=own_s - reward_s,
        model_s=model_s,
        reward_s=reward_s,
        finish_s=max(0.0, spent - max(handler_s, model_s)),
    )


def _seconds(value: object, missing: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return missing
    return float(value) if 0 <= value < MAX_TOLD_S else missing


async def _finish(
    gateway: GatewayLike, session_id: str, setting: CollectSetting, failure: Failure | None
) -> tuple[Finished | None, Failure | None]:
    drain = setting.drain_s if failure is None else 0.0
    try:
        finished = await gateway.finish_session(session_id, timeout_s=drain)
    except GatewayError as error:
        text = f"the gateway did not give the rows of session {session_id}: {error}"
        if failure is not None and failure.kind is not FailureKind.AGENT:
            return None, failure
        return None, Failure(FailureKind.MODEL, text)  # its rows are lost, whatever the agent did
    if failure is not None and failure.kind is FailureKind.AGENT and finished.status["failed"]:
        text = f"{finished.status['failed']} model calls failed, then the agent: {failure.message}"
        failure = Failure(FailureKind.MODEL, text)
    return finished, failure


async def _abandon(gateway: GatewayLike, session_id: str) -> None:
    try:
        await gateway.finish_session(session_id, timeout_s=0.0)
    except GatewayError:
        pass


def failure_from(error: Exception) -> Failure:
    kind = FailureKind(error.kind) if isinstance(error, RolloutError) else FailureKind.CONTRACT
    return Failure(kind, str(error) or type(error).__name__)
