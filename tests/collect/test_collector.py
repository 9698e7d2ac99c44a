"""From tasks to rewarded rows, with everything real but the model."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from agentcore_rl_toolkit.collect import Task
from agentcore_rl_toolkit.errors import ContractError, GatewayError
from agentcore_rl_toolkit.rollout import FailureKind
from agentcore_rl_toolkit.trajectory.row import RowStatus

from .conftest import Make, Stand

ECHO, OPENAI = "echo_agent", "openai_agent"


def task(index: int = 0, **payload: Any) -> Task:
    return Task(index, f"group-{index}", payload)


def question(index: int = 0, answer: str = "42") -> Task:
    return task(index, prompt="What is it?", answer=answer)


def check_sums(stand: Stand) -> None:
    report = stand.collector.report()
    assert report.submitted == report.succeeded + sum(report.failed.values()) + report.running
    assert report.running == 0
    assert not stand.open_sessions()


async def test_a_group_becomes_rows_with_the_agents_rewards(stand: Make) -> None:
    made = await stand(OPENAI, sampling={"temperature": 0.5})
    replies = iter(["#### 42", "#### 42", "no idea"])
    made.engine.answer = lambda body, choice: next(replies)
    (group,) = await made.collector.collect([question(7)], group_size=3)
    assert sorted(rollout.reward for rollout in group) == [0.0, 1.0, 1.0]
    for sample, rollout in enumerate(group):
        (row,) = rollout.rows
        assert row.reward == rollout.reward
        assert row.rollout_id == rollout.rollout_id == f"group-7-{sample}"
        assert row.group_id == rollout.group_id == "group-7"
        assert row.session_id == rollout.session_id
        text = "".join(chr(i) for i in row.token_ids[row.loss_mask > 0])
        assert ("42" in text) == (rollout.reward == 1.0), "a row has the reward of its own answer"
        assert rollout.task == 7
        assert rollout.turns == 1
        assert rollout.timings.model_s > 0
        assert 0 < rollout.timings.reward_s < rollout.timings.agent_s
        assert rollout.timings.finish_s > 0
        assert rollout.metrics == {"turns": 1.0}
    assert {request["temperature"] for request in made.engine.requests} == {0.5}
    assert {rollout.rollout_id for rollout in made.seen} == {r.rollout_id for r in group}
    check_sums(made)


async def test_concurrency_is_bounded_and_waiting_is_counted_as_queue_time(stand: Make) -> None:
    made = await stand(ECHO, max_concurrent=1)
    groups = await made.collector.collect([task(i, sleep=0.3) for i in range(3)])
    queued = sorted(group[0].timings.queue_s for group in groups)
    assert queued[0] < 0.3
    assert queued[2] > 0.6
    assert [group[0].task for group in groups] == [0, 1, 2], "groups keep the tasks' order"


async def test_an_agent_that_raises_keeps_its_rows_with_the_configured_reward(
    stand: Make,
) -> None:
    made = await stand(OPENAI, failed_reward=-0.5)
    made.engine.tool_call = {
        "id": "1",
        "type": "function",
        "function": {"name": "calculator", "arguments": '{"no": "expression"}'},
    }
    rollout = await made.collector.rollout(question())
    assert rollout.failure is not None
    assert rollout.failure.kind is FailureKind.AGENT
    assert (rollout.reward, rollout.rows[0].reward) == (-0.5, -0.5)
    assert rollout.rows[0].status is RowStatus.FAILED
    assert rollout.rows[0].n_trained > 0
    assert rollout.attempts == 1, "running it again would train survivors only"
    check_sums(made)


async def test_an_agent_error_after_a_failed_model_call_is_the_models_and_is_never_trained(
    stand: Make,
) -> None:
    made = await stand(OPENAI, retries=1)
    made.engine.fail = [(400, '{"error": {"message": "no"}}', {})] * 2
    made.engine.answer = lambda body, choice: "#### 42"
    lost = await made.collector.rollout(question(0))
    assert lost.failure is not None
    assert lost.failure.kind is FailureKind.MODEL
    assert (lost.rows, lost.reward, lost.counted, lost.attempts) == ((), None, False, 2)
    good = await made.collector.rollout(question(1))
    assert good.reward == 1.0
    report = made.collector.report()
    assert (report.failed, report.retried) == ({"model": 1}, {"model": 1})
    check_sums(made)


async def test_a_retry_after_a_model_failure_has_sessions_of_its_own_and_no_old_rows(
    stand: Make,
) -> None:
    made = await stand(OPENAI)
    made.engine.fail = [(400, '{"error": {"message": "no"}}', {})]
    made.engine.answer = lambda body, choice: "#### 42"
    rollout = await made.collector.rollout(question())
    assert (rollout.failure, rollout.reward, rollout.attempts) == (None, 1.0, 2)
    assert len(rollout.rows) == 1
    assert rollout.timings.retry_s > 0
    ids = {session.session_id for session in made.gateway.sessions}
    assert len(ids) == 2
    assert rollout.rows[0].session_id == rollout.session_id
    check_sums(made)


async def test_a_lost_session_is_tried_again_and_at_last_counted(stand: Make) -> None:
    made = await stand(ECHO, retries=1)
    rollout = await made.collector.rollout(task(exit=3))
    assert rollout.failure is not None
    assert rollout.failure.kind is FailureKind.SESSION_LOST
    assert (rollout.attempts, rollout.reward) == (2, None)
    assert made.collector.report().attempts == 2
    check_sums(made)


async def test_a_timeout_ends_the_session_and_is_not_trained(stand: Make) -> None:
    made = await stand(ECHO, timeout_s=0.5, retries=0)
    rollout = await made.collector.rollout(task(sleep=60))
    assert rollout.failure is not None
    assert rollout.failure.kind is FailureKind.TIMEOUT
    assert not rollout.counted
    check_sums(made)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ({"answer": 1}, "no 'rewards'"),
        ({"rewards": "good"}, "'good'"),
        ({"rewards": None}, "None"),
        ({"rewards": [0.1, 0.2]}, "2 rewards"),
    ],
    ids=["no rewards", "text", "null", "more rewards than turns"],
)
async def test_what_would_recur_on_every_rollout_stops_all(
    stand: Make, result: Any, message: str
) -> None:
    made = await stand(ECHO)
    tasks = [task(0, **{"return": result}), task(1, sleep=30)]
    began = time.monotonic()
    with pytest.raises(ContractError, match=message):
        await made.collector.collect(tasks)
    assert time.monotonic() - began < 25
    report = made.collector.report()
    assert report.failed == {"contract": 1, "cancelled": 1}
    check_sums(made)


async def test_cancelling_ends_every_session(stand: Make, runtime: Any) -> None:
    made = await stand(ECHO)
    work = asyncio.create_task(made.collector.collect([task(i, sleep=60) for i in range(3)]))
    while len(made.open_sessions()) < 3:
        await asyncio.sleep(0.01)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert made.collector.report().failed == {"cancelled": 3}
    check_sums(made)


async def test_groups_stream_as_they_are_completed(stand: Make) -> None:
    made = await stand(ECHO)
    order = []
    async for group in made.collector.stream([task(0, sleep=1.0), task(1)]):
        order.append(group[0].task)
    assert order == [1, 0]
    async for _ in made.collector.stream([task(0), task(1, sleep=60)]):
        break
    while made.collector.report().running:
        await asyncio.sleep(0.01)
    check_sums(made)


async def test_an_agent_that_asks_no_model_is_counted_as_empty(stand: Make) -> None:
    made = await stand(ECHO)
    rollout = await made.collector.rollout(task())
    assert (rollout.reward, rollout.rows, rollout.counted) == (1.0, (), True)
    assert made.collector.report().empty == 1


async def test_a_record_is_plain_and_holds_every_stage(stand: Make) -> None:
    made = await stand(OPENAI)
    made.engine.answer = lambda body, choice: "#### 42"
    record = (await made.collector.rollout(question())).record()
    assert record["reward"] == 1.0
    assert record["tokens"] == len("#### 42")
    assert record["timings"].keys() == {
        *("queue_s", "start_s", "agent_s", "model_s", "reward_s", "finish_s", "retry_s")
    }


class ShutGateway:
    """A gateway whose disk is full, or that is away, for so many openings or finishes."""

    def __init__(self, gateway: Any, openings: int = 0, finishes: int = 0) -> None:
        self._gateway, self._openings, self._finishes = gateway, openings, finishes

    async def open_session(self, spec: Any) -> Any:
        if self._openings:
            self._openings -= 1
            raise GatewayError("the journal could not be written: No space left on device")
        return await self._gateway.open_session(spec)

    async def finish_session(self, session_id: str, **options: Any) -> Any:
        finished = await self._gateway.finish_session(session_id, **options)
        if self._finishes:
            self._finishes -= 1
            raise GatewayError("the journal could not be written: No space left on device")
        return finished


async def test_a_gateway_that_opens_no_session_is_tried_again_and_at_last_counted(
    stand: Make,
) -> None:
    made = await stand(ECHO, retries=1)
    made.collector._gateway = ShutGateway(made.gateway, openings=3)
    lost = await made.collector.rollout(task(0))
    assert lost.failure is not None
    assert (lost.failure.kind, lost.attempts, lost.counted) == (FailureKind.MODEL, 2, False)
    assert (await made.collector.rollout(task(1))).ok, "one refusal, then a session"
    check_sums(made)


async def test_an_agents_failure_whose_rows_are_lost_is_not_its_own(stand: Make) -> None:
    made = await stand(ECHO, retries=1)
    made.collector._gateway = ShutGateway(made.gateway, finishes=1)
    rollout = await made.collector.rollout(task(**{"raise": "mine"}))
    assert rollout.failure is not None
    assert rollout.failure.kind is FailureKind.AGENT
    assert (rollout.attempts, rollout.reward) == (2, 0.0)
    assert made.collector.report().retried == {"model": 1}
    check_sums(made)
