from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agentcore_rl_toolkit.errors import IsolationError
from agentcore_rl_toolkit.runtime import wire
from agentcore_rl_toolkit.runtime.isolation.base import Agent
from agentcore_rl_toolkit.runtime.template import Templates

AGENT = Agent("agent-1", "1", Path("/agents/agent-1/1"), "rl_app.py", "python")


class Driver:
    """Counts; fails or waits as told. Real drivers are slow to make fail on purpose."""

    level = "process"
    mode = "zygote"

    def __init__(self) -> None:
        self.prepared = self.closed = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.failure: Exception | None = None

    async def prepare(self, _: Agent) -> Any:
        self.prepared += 1
        await self.gate.wait()
        if self.failure:
            raise self.failure
        return self

    async def close(self) -> None:
        self.closed += 1


@pytest.fixture
async def driver() -> Driver:
    return Driver()


@pytest.fixture
async def templates(driver: Driver) -> Templates:
    return Templates(lambda _: driver)  # type: ignore[arg-type, return-value]


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_many_uses_prepare_once(driver: Driver, templates: Templates) -> None:
    await asyncio.gather(*(templates.use(AGENT) for _ in range(20)))
    assert driver.prepared == 1
    await templates.close()
    assert driver.closed == 1


async def test_a_retired_template_closes_after_its_last_use(
    driver: Driver, templates: Templates
) -> None:
    await templates.use(AGENT)
    await templates.use(AGENT)
    templates.retire(("agent-1", "1"))
    templates.release(AGENT)
    await settle()
    assert driver.closed == 0
    templates.release(AGENT)
    await settle()
    assert driver.closed == 1
    await templates.use(AGENT)
    assert driver.prepared == 2
    await templates.close()


async def test_a_template_without_sessions_is_kept_for_the_next(
    driver: Driver, templates: Templates
) -> None:
    await templates.use(AGENT)
    templates.release(AGENT)
    await templates.use(AGENT)
    assert (driver.prepared, driver.closed) == (1, 0)
    await templates.close()


async def test_a_failure_reaches_all_and_is_tried_again_at_the_next_use(
    driver: Driver, templates: Templates
) -> None:
    driver.failure = IsolationError("does not import")
    failed = await asyncio.gather(*(templates.use(AGENT) for _ in range(3)), return_exceptions=True)
    assert [str(one) for one in failed] == ["does not import"] * 3
    assert driver.prepared == 1
    driver.failure = None
    await templates.use(AGENT)
    assert driver.prepared == 2
    await templates.close()


async def test_closing_ends_preparations_and_those_who_wait(
    driver: Driver, templates: Templates
) -> None:
    driver.gate.clear()
    waiting = asyncio.create_task(templates.use(AGENT))
    await settle()
    await templates.close()
    with pytest.raises(wire.WireError, match="shutting down"):
        await waiting
    with pytest.raises(wire.WireError, match="shutting down"):
        await templates.use(AGENT)


async def test_one_who_gives_up_waiting_does_not_end_the_preparation(
    driver: Driver, templates: Templates
) -> None:
    driver.gate.clear()
    first, second = (asyncio.create_task(templates.use(AGENT)) for _ in range(2))
    await settle()
    first.cancel()
    driver.gate.set()
    await second
    assert driver.prepared == 1
    await templates.close()
