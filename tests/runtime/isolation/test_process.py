"""What level ``process`` keeps a session from, where the kernel has Landlock."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentcore_rl_toolkit.runtime.isolation import Compute, Limits
from agentcore_rl_toolkit.runtime.isolation.inside import landlock, tree

from .conftest import Workshop, ping, run_inside

pytestmark = pytest.mark.skipif(landlock.version() < 1, reason="this kernel has no Landlock")
OUTCOME = """
def outcome(call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        return error.errno
    return 0
"""
EPERM, EACCES = 1, 13


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Workshop]:
    made = Workshop(tmp_path, "process")
    yield made
    await made.close()


@pytest.fixture
async def session(shop: Workshop) -> Compute:
    return await (await shop.template()).spawn(shop.spec())


async def test_files_of_the_user_can_be_neither_read_nor_written(
    session: Compute, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of the user")
    code = (
        f"value = [outcome(open, {str(secret)!r}), outcome(open, {str(secret)!r}, 'w'),\n"
        f"         outcome(os.listdir, {str(tmp_path)!r}), outcome(os.remove, {str(secret)!r})]"
    )
    assert await run_inside(session, OUTCOME + code) == [EACCES] * 4
    assert secret.read_text() == "of the user"


async def test_files_of_another_session_cannot_be_read(shop: Workshop) -> None:
    template = await shop.template()
    one, two = [await template.spawn(shop.spec()) for _ in range(2)]
    path = await run_inside(one, "value = os.path.abspath('mine'); open(value, 'x').close()")
    assert os.path.exists(path)
    assert await run_inside(two, OUTCOME + f"value = outcome(open, {path!r})") == EACCES


async def test_processes_outside_cannot_be_signalled(session: Compute) -> None:
    if landlock.version() < 6:
        pytest.skip("this kernel's Landlock does not scope signals")
    zygote = tree.parents()[session.pid]
    code = f"value = [outcome(os.kill, pid, 15) for pid in ({os.getpid()}, {zygote}, os.getppid())]"
    assert await run_inside(session, OUTCOME + code) == [EPERM] * 3
    assert await run_inside(session, "value = os.system('sleep 60 & kill $!')") == 0


async def test_the_memory_of_the_runtime_cannot_be_read(session: Compute) -> None:
    code = f"value = outcome(open, '/proc/{os.getpid()}/mem')"
    assert await run_inside(session, OUTCOME + code) in (EPERM, EACCES)


async def test_dangerous_system_calls_are_refused(session: Compute) -> None:
    code = (
        "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "def failed(result): return ctypes.get_errno() if result < 0 else 0\n"
        "value = [failed(libc.unshare(0x10000000)),\n"
        "         failed(libc.mount(b'x', b'/', b'tmpfs', 0, 0)),\n"
        f"         failed(libc.ptrace(16, {os.getpid()}, 0, 0))]\n"
        "value.append(open('/proc/self/status').read().count('Seccomp:\\t2'))\n"
    )
    assert await run_inside(session, code) == [EPERM, EPERM, EPERM, 1]


async def test_abstract_sockets_of_another_session_are_out_of_reach(shop: Workshop) -> None:
    if landlock.version() < 6:
        pytest.skip("this kernel's Landlock does not scope abstract sockets")
    template = await shop.template()
    one, two = [await template.spawn(shop.spec()) for _ in range(2)]
    listen = (
        "import builtins, socket\nbuiltins.kept = socket.socket(socket.AF_UNIX)\n"
        "kept.bind('\\0art-test-door'); kept.listen()\n"
    )
    await run_inside(one, listen)
    connect = (
        "import socket\nsock = socket.socket(socket.AF_UNIX)\n"
        "value = outcome(sock.connect, '\\0art-test-door'); sock.close()\n"
    )
    assert await run_inside(one, OUTCOME + connect) == 0, "it does listen"
    assert await run_inside(two, OUTCOME + connect) == EPERM


async def test_a_large_folder_is_linked_and_stays_as_it_is(shop: Workshop) -> None:
    agent = shop.agent()
    with open(agent.folder / "weights.bin", "wb") as file:
        file.truncate(17 * 1024 * 1024)
    compute = await (await shop.prepare(agent)).spawn(shop.spec())
    code = (
        "value = [os.path.getsize('weights.bin'), os.path.islink('weights.bin'),\n"
        "         outcome(open, 'weights.bin', 'r+b'), outcome(open, 'new', 'x')]"
    )
    assert await run_inside(compute, OUTCOME + code) == [17 * 1024 * 1024, True, EACCES, 0]


async def test_memory_is_bounded_and_the_neighbour_unharmed(shop: Workshop) -> None:
    template = await shop.template(limits=Limits(memory_mb=200))
    one, two = [await template.spawn(shop.spec()) for _ in range(2)]
    with pytest.raises((ValueError, OSError)):
        await run_inside(one, "held = []\nwhile True: held.append(b'x' * 4_000_000)")
    assert "out of memory" in await one.wait()
    assert await ping(two) == "Healthy"


async def test_limits_of_the_runtime_cannot_be_set(session: Compute) -> None:
    """Which the kernel permits to every process of the same user."""
    code = (
        "import resource\n"
        f"given = ({os.getpid()}, resource.RLIMIT_CORE)\n"
        "value = [outcome(resource.prlimit, *given), outcome(resource.prlimit, 0, given[1])]"
    )
    assert await run_inside(session, OUTCOME + code) == [EPERM, 0]
