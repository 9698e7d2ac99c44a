"""What goes wrong while a session is being started, or in the zygote that its agent comes from."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentcore_rl_toolkit.errors import IsolationError
from agentcore_rl_toolkit.runtime import isolation
from agentcore_rl_toolkit.runtime.isolation import Compute, cgroup, template, usage
from agentcore_rl_toolkit.runtime.isolation.inside import tree
from agentcore_rl_toolkit.runtime.isolation.template import ProcessTemplate

from .conftest import PLAIN, Workshop, eventually, ping, run_inside
from .test_session import THREAD, alive

PROBE = isolation.drivers()["namespace"].probe()
split = pytest.mark.skipif(not PROBE.available, reason=PROBE.reason)
"""Only there is a session's init another process's child than its agent."""


@pytest.fixture
async def namespaces(tmp_path: Path) -> AsyncIterator[Workshop]:
    shop = Workshop(tmp_path, "namespace")
    yield shop
    await shop.close()


async def prepared(shop: Workshop, source: str = PLAIN) -> ProcessTemplate:
    made = await shop.template(source)
    assert isinstance(made, ProcessTemplate)
    return made


def births(made: ProcessTemplate) -> tuple[int, int]:
    """The zygote and the maker below it."""
    assert made._zygote is not None
    (zygote,) = tree.descendants(made._zygote._process.pid)[:1]
    (maker,) = tree.descendants(zygote)[:1]
    return zygote, maker


async def held_up(made: ProcessTemplate, shop: Workshop) -> tuple[asyncio.Task[Compute], int, int]:
    """A start that waits for its agent, its first process, and the zygote that stands still."""
    zygote, maker = births(made)
    os.kill(zygote, signal.SIGSTOP)
    start = asyncio.create_task(made.spawn(shop.spec()))
    await eventually(lambda: bool(tree.descendants(maker)))
    return start, tree.descendants(maker)[0], zygote


@split
@pytest.mark.parametrize("victim", ["init", "zygote", "maker"])
async def test_a_session_whose_start_is_killed_is_started_again(
    namespaces: Workshop, victim: str
) -> None:
    made = await prepared(namespaces)
    start, init, zygote = await held_up(made, namespaces)
    maker = tree.parents()[init]
    os.kill({"init": init, "zygote": zygote, "maker": maker}[victim], signal.SIGKILL)
    if victim != "zygote":
        os.kill(zygote, signal.SIGCONT)
    compute = await start
    assert await ping(compute) == "Healthy"
    await namespaces.close()
    assert not alive([init, zygote, maker, compute.pid])


@split
async def test_a_start_that_hangs_is_given_up_and_says_what_to_do(
    namespaces: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(template, "START_S", 0.2)
    made = await prepared(namespaces)
    start, init, zygote = await held_up(made, namespaces)
    with pytest.raises(IsolationError, match="Start fewer sessions at a time"):
        await start
    assert not alive([init])
    os.kill(zygote, signal.SIGCONT)
    monkeypatch.undo()
    assert await ping(await made.spawn(namespaces.spec())) == "Healthy"


@split
async def test_a_start_that_nobody_waits_for_leaves_no_group(namespaces: Workshop) -> None:
    made = await prepared(namespaces)
    folders = [one.folder for one in made._groups._hierarchies]
    if not folders:
        pytest.skip("no control groups may be made here")

    def groups() -> int:
        return sum(path.is_dir() for folder in folders for path in folder.glob("*"))

    before = groups()
    _, maker = births(made)
    os.kill(maker, signal.SIGSTOP)
    start = asyncio.create_task(made.spawn(namespaces.spec()))
    await eventually(lambda: groups() > before)
    start.cancel()
    await asyncio.wait([start])
    os.kill(maker, signal.SIGCONT)
    await cgroup.remove_left()
    assert groups() == before
    assert await ping(await made.spawn(namespaces.spec())) == "Healthy"


async def test_a_session_that_ended_before_anybody_looked_is_told_from_the_runtime(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that has ended has the id 0, and 0 is the asking process for a control group."""

    look = usage.host_pid

    def late(handle: int) -> int:
        while look(handle):  # it is dead, and buried
            time.sleep(0.001)
        return look(handle)

    made = await workshop.template("raise SystemExit(3)\n", zygote=False)
    own = Path("/proc/self/cgroup").read_text()
    monkeypatch.setattr(usage, "host_pid", late)
    compute = await made.spawn(workshop.spec())
    assert compute.pid == 0
    assert not compute.freeze()
    compute.thaw()
    assert compute.stats() == (0, 0, 0.0)
    assert await compute.wait() == "exit code 3"
    assert Path("/proc/self/cgroup").read_text() == own


async def test_an_import_that_blocks_signals_keeps_no_session_from_ending(
    workshop: Workshop,
) -> None:
    block = "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))\n"
    made = await workshop.template(block + PLAIN)
    one, two = [await made.spawn(workshop.spec()) for _ in range(2)]
    mask = "value = sorted(signal.pthread_sigmask(signal.SIG_BLOCK, []))"
    assert signal.SIGCHLD in await run_inside(one, mask), "it stays the agent's own affair"
    family = [pid for each in (one, two) for pid in (each.pid, *tree.descendants(each.pid))]
    await asyncio.wait_for(one.kill(), 30)
    with pytest.raises(ValueError, match="Expecting value"):
        await run_inside(two, "os._exit(5)")
    assert await asyncio.wait_for(two.wait(), 30) == "exit code 5"
    assert not alive(family)


async def test_an_import_that_listens_to_its_children_still_does_in_the_session(
    workshop: Workshop,
) -> None:
    listen = "import signal\nheard = []\nsignal.signal(17, lambda *_: heard.append(1))\n"
    compute = await (await workshop.template(listen + PLAIN)).spawn(workshop.spec())
    code = "import subprocess; subprocess.run(['true']); value = bool(heard)"
    assert await run_inside(compute, code)


@split
async def test_a_zygote_that_reaps_nobody_is_ended_with_its_sessions(
    namespaces: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(template, "KILL_S", 0.2)
    source = "import os\nos.waitpid = lambda *_: (0, 0)\n" + PLAIN
    made = await prepared(namespaces, source)
    compute = await made.spawn(namespaces.spec())
    zygote, maker = births(made)
    family = [zygote, maker, compute.pid, *tree.descendants(compute.pid)]
    await asyncio.wait_for(namespaces.close(), 60)
    assert not alive(family)


async def test_an_agent_that_cannot_be_forked_any_more_gets_fresh_interpreters(
    workshop: Workshop,
) -> None:
    made = await prepared(workshop)
    compute = await made.spawn(workshop.spec())
    assert made.mode == "zygote"
    for folder in (made.agent.folder, made.scratch.path / "app"):
        if (entry := folder / "rl_app.py").exists():
            entry.write_text(THREAD + PLAIN)
    os.kill(tree.parents()[compute.pid], signal.SIGKILL)
    await compute.wait()
    again = await made.spawn(workshop.spec())
    assert await ping(again) == "Healthy"
    assert made.mode == "exec"
    assert "thread" in made.note


@split
async def test_why_an_agent_does_not_come_into_its_session_is_in_the_log(
    namespaces: Workshop,
) -> None:
    few = "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (12, 12))\n"
    made, spec = await prepared(namespaces, few + PLAIN), namespaces.spec()
    compute = await made.spawn(spec)
    assert await compute.wait() == "exit code 1"
    assert "Traceback" in spec.log_path.read_text()
