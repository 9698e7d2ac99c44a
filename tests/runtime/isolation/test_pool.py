"""Sessions that are started ahead."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path
from typing import Any

import pytest

from agentcore_rl_toolkit.runtime.isolation import Agent, SessionSpec, pool
from agentcore_rl_toolkit.runtime.isolation.inside import tree
from agentcore_rl_toolkit.runtime.isolation.template import ProcessTemplate

from .conftest import ASGI, Workshop, eventually, ping, run_inside


async def filled(workshop: Workshop, size: int = 2, **changes: object) -> ProcessTemplate:
    template = await workshop.template(pool=size, **changes)
    assert isinstance(template, ProcessTemplate)
    await template.spawn(workshop.spec())
    await eventually(lambda: len(template._pool) == size)
    return template


async def test_a_waiting_session_is_given_and_replaced(workshop: Workshop) -> None:
    template = await filled(workshop)
    waiting = {member.compute.pid for member in template._pool._ready}
    spec = workshop.spec()
    compute = await template.spawn(spec)
    assert compute.pid in waiting
    await run_inside(compute, "print('said')")
    assert spec.log_path.read_text() == "said\n"
    await eventually(lambda: len(template._pool) == 2)


async def test_a_session_with_its_own_environment_is_started_for_it(workshop: Workshop) -> None:
    template = await filled(workshop)
    waiting = {member.compute.pid for member in template._pool._ready}
    compute = await template.spawn(workshop.spec(MINE="1"))
    assert compute.pid not in waiting
    assert await run_inside(compute, "value = os.environ['MINE']") == "1"


async def test_a_revived_session_goes_on_with_its_log(workshop: Workshop) -> None:
    template = await filled(workshop)
    spec = workshop.spec()
    spec.log_path.write_text("before\n")
    compute = await template.spawn(spec)
    await run_inside(compute, "print('after')")
    assert spec.log_path.read_text() == "before\nafter\n"


async def test_a_waiting_session_that_died_is_not_given(workshop: Workshop) -> None:
    template = await filled(workshop)
    for member in template._pool._ready:
        os.kill(member.compute.pid, 9)
    await eventually(lambda: all(member.compute.ended for member in template._pool._ready))
    compute = await template.spawn(workshop.spec())
    assert await ping(compute) == "Healthy"


async def test_an_agent_that_ends_on_its_own_is_not_started_for_ever(workshop: Workshop) -> None:
    source = ASGI + "raise SystemExit(3)\n"
    template = await workshop.template(source, pool=3, zygote=False)
    first = await template.spawn(workshop.spec())
    assert await first.wait() == "exit code 3"
    assert isinstance(template, ProcessTemplate)
    await eventually(lambda: template._pool._filling is not None and template._pool._filling.done())
    assert len(template._pool) <= 3


async def test_closing_ends_what_waits_and_removes_its_logs(
    workshop: Workshop, tmp_path: Path
) -> None:
    template = await filled(workshop, size=3)
    waiting = [member.compute.pid for member in template._pool._ready]
    family = [pid for one in waiting for pid in (one, *tree.descendants(one))]
    await template.close()
    assert not [pid for pid in family if os.path.exists(f"/proc/{pid}")]
    assert not list(tmp_path.glob(".ready-*"))


async def test_what_waits_is_frozen_and_answers_when_it_is_taken(workshop: Workshop) -> None:
    template = await filled(workshop, freeze_s=0.1)
    waiting = [member.compute for member in template._pool._ready]
    await eventually(lambda: all(compute.frozen for compute in waiting))
    taken = await template.spawn(workshop.spec())
    assert taken in waiting
    assert await ping(taken) == "Healthy"


@pytest.mark.parametrize("zygote", [True, False], ids=["forked", "fresh"])
async def test_nothing_waits_without_a_pool(workshop: Workshop, zygote: bool) -> None:
    template = await workshop.template(zygote=zygote)
    compute = await template.spawn(workshop.spec())
    assert await ping(compute) == "Healthy"
    assert isinstance(template, ProcessTemplate)
    assert len(template._pool) == 0


class Counted:
    """Stands for a session, where only the pool's own steps matter."""

    pid, way, answered, ended = 0, "", False, False

    async def connect(self) -> None:
        raise OSError("nobody listens")

    def freeze(self) -> bool:
        return False


def fillers() -> list[asyncio.Task[object]]:
    return [task for task in asyncio.all_tasks() if task.get_name() == "fill pool"]


async def test_a_pool_is_filled_by_one_at_a_time_and_by_nobody_after_it_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "REST_S", 0.002)

    async def start(spec: SessionSpec) -> Counted:
        spec.log_path.touch()
        await asyncio.sleep(0)
        return Counted()

    agent = Agent("r", "1", tmp_path, "rl_app.py", "python", pool=2)
    waiting: pool.Pool[Any] = pool.Pool(agent, start)
    chance = random.Random(3)
    for number in range(500):
        await waiting.spawn(SessionSpec(str(number), {}, tmp_path / f"{number}.log"))
        await asyncio.sleep(chance.choice((0, 0, 0.001, 0.004)))
        assert len(waiting) <= 2
        assert len(fillers()) <= 1
    await waiting.close()
    assert not fillers()


async def test_a_start_that_is_given_up_leaves_no_log(workshop: Workshop, tmp_path: Path) -> None:
    template = await workshop.template(pool=2)
    await template.spawn(workshop.spec())
    await eventually(lambda: bool(list(tmp_path.glob(".ready-*"))))
    await template.close()
    assert not list(tmp_path.glob(".ready-*"))
    assert not fillers()
