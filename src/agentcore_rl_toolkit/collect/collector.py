"""Tasks in, rows with rewards out.

A rollout is one or more attempts. What ends an attempt decides what follows:

    result             rows with the agent's rewards
    agent              rows with the configured reward
    contract           ContractError: it would recur on every rollout, so everything stops
    anything else      infrastructure: again with fresh sessions, at last only counted. Its rows
                       are never trained, because nobody knows what they deserved

An agent error in a session in which a model call had failed is ``model``. Every rollout that was
submitted is settled or cancelled, and ``report()`` sums at every moment. The collector lives on
one event loop; client, gateway and whatever consumes the rollouts belong to its maker.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import math
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any

from ..client import RolloutClient
from ..errors import ContractError
from ..rollout import FailureKind
from ..trajectory.row import Row, RowStatus, assign_rewards, reward_total, rewards_of
from .attempt import Ended, GatewayLike, attempt
from .record import Rollout, Task, Timings
from .report import CollectReport, Tally
from .setting import CollectSetting

logger = logging.getLogger(__name__)


class Collector:
    def __init__(
        self,
        client: RolloutClient,
        gateway: GatewayLike,
        setting: CollectSetting | None = None,
        *,
        on_rollout: Callable[[Rollout], None] | None = None,
    ) -> None:
        self.setting = setting or CollectSetting()
        self._client, self._gateway = client, gateway
        self._on_rollout = on_rollout
        self._places = asyncio.Semaphore(self.setting.max_concurrent)
        self._tally = Tally()

    def report(self) -> CollectReport:
        return self._tally.report()

    async def collect(self, tasks: Iterable[Task], group_size: int = 1) -> list[list[Rollout]]:
        """All groups, in the order of the tasks. ContractError stops them all."""
        try:
            async with asyncio.TaskGroup() as group:
                found = [group.create_task(self.group(task, group_size)) for task in tasks]
        except BaseExceptionGroup as errors:
            raise _first(errors) from None
        return [task.result() for task in found]

    async def stream(
        self, tasks: Iterable[Task], group_size: int = 1
    ) -> AsyncIterator[list[Rollout]]:
        """Groups as they are completed. Leaving the loop early cancels the rest."""
        running = {asyncio.create_task(self.group(task, group_size)) for task in tasks}
        try:
            while running:
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    yield task.result()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def group(self, task: Task, size: int) -> list[Rollout]:
        """``size`` rollouts of one task."""
        try:
            async with asyncio.TaskGroup() as group:
                found = [group.create_task(self.rollout(task, i)) for i in range(size)]
        except BaseExceptionGroup as errors:
            raise _first(errors) from None
        return [one.result() for one in found]

    async def rollout(self, task: Task, sample: int = 0) -> Rollout:
        self._tally.submitted += 1
        try:
            rollout = await self._attempts(task, sample)
        except ContractError:
            self._tally.failed[FailureKind.CONTRACT.value] += 1
            raise
        except BaseException:
            self._tally.failed[FailureKind.CANCELLED.value] += 1
            raise
        self._tally.settle(rollout)
        if self._on_rollout is not None:
            self._on_rollout(rollout)
        return rollout

    async def _attempts(self, task: Task, sample: int) -> Rollout:
        rollout_id = f"{task.group_id}-{sample}"
        asked = time.monotonic()
        async with self._places:
            began = time.monotonic()
            for number in range(1, self.setting.retries + 2):
                self._tally.attempts += 1
                at = time.monotonic()
                ended = await attempt(self._client, self._gateway, self.setting, task, rollout_id)
                failure = ended.failure
                if failure is None or not failure.kind.infrastructure:
                    break
                if number <= self.setting.retries:
                    self._tally.retried[failure.kind.value] += 1
                    logger.info(
                        "rollout=<%s> attempt=<%d> | again: %s", rollout_id, number, failure
                    )
        timings = dataclasses.replace(ended.timings, queue_s=began - asked, retry_s=at - began)
        return self._settle(task, sample, ended, number, timings)

    def _settle(
        self, task: Task, sample: int, ended: Ended, attempts: int, timings: Timings
    ) -> Rollout:
        failure = ended.failure
        if failure is not None and failure.kind is FailureKind.CONTRACT:
            raise ContractError(failure.message)
        started = time.monotonic()
        rollout_id = f"{task.group_id}-{sample}"
        rows, reward = self._rewarded(ended, rollout_id)
        spent = timings.finish_s + time.monotonic() - started
        finished = ended.finished
        return Rollout(
            task=task.index,
            sample=sample,
            group_id=task.group_id,
            rollout_id=rollout_id,
            session_id=ended.session_id,
            rows=tuple(rows),
            reward=reward,
            result=ended.result,
            failure=failure,
            attempts=attempts,
            turns=finished.count.turns if finished is not None else 0,
            timings=dataclasses.replace(timings, finish_s=spent),
            metrics=_metrics(ended.result),
        )

    def _rewarded(self, ended: Ended, rollout_id: str) -> tuple[list[Row], float | None]:
        failure = ended.failure
        if ended.finished is None or (failure is not None and failure.kind.infrastructure):
            return [], None
        rows = ended.finished.rows
        if failure is not None:
            for row in rows:
                row.status = RowStatus.FAILED
            assign_rewards(rows, self.setting.failed_reward)
            return rows, self.setting.failed_reward
        try:
            rewards = rewards_of(ended.result or {})
            assign_rewards(rows, rewards)
        except ContractError as error:
            raise ContractError(f"rollout {rollout_id}: {error}") from None
        # an agent that used no model has a reward all the same
        return rows, rows[0].reward if rows else reward_total(rewards)


def _metrics(result: Mapping[str, Any] | None) -> dict[str, float]:
    found = (result or {}).get("metrics")
    if not isinstance(found, Mapping):
        return {}
    return {
        str(name): float(value)
        for name, value in found.items()
        if isinstance(value, bool | int | float) and math.isfinite(value)
    }


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error that made the others be cancelled."""
    while isinstance(errors.exceptions[0], BaseExceptionGroup):
        errors = errors.exceptions[0]
    return errors.exceptions[0]
