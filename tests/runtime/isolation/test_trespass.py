"""Ways from one session to another, or to the machine, that lead through the kernel's side doors.

Every test has a neighbour in another session, and the neighbour must not notice.
``test_ordinary_user`` runs this file again without root.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from pathlib import Path

import pytest

from agentcore_rl_toolkit.runtime.isolation.inside import tree

from .conftest import Workshop, eventually, ping, run_inside
from .test_attack import EACCES, ENOENT, EPERM, EROFS, PROBE, Pair, pair

__all__ = ["pair"]
pytestmark = pytest.mark.skipif(not PROBE.available, reason=PROBE.reason)
ECONNREFUSED, ETXTBSY = 111, 26
LIBC = "import ctypes, socket, builtins\nlibc = ctypes.CDLL(None, use_errno=True)\n"


async def test_unix_sockets_of_another_session_are_out_of_reach(pair: Pair) -> None:
    addresses = ["\\0art-neighbour", "/tmp/neighbour.sock", "/dev/shm/neighbour.sock"]
    listen = LIBC + "builtins.kept = []\n"
    for address in addresses:
        listen += (
            "sock = socket.socket(socket.AF_UNIX)\n"
            f"sock.bind('{address}'); sock.listen(); kept.append(sock)\n"
        )
    await pair.inspect(listen)
    connect = LIBC + "value = []\n"
    for address in addresses:
        connect += (
            "sock = socket.socket(socket.AF_UNIX)\n"
            f"value.append(outcome(sock.connect, '{address}')); sock.close()\n"
        )
    assert await pair.try_(connect) == [ECONNREFUSED, ENOENT, ENOENT]
    assert await pair.inspect(connect) == [0, 0, 0], "they do listen"
    await pair.inspect("import builtins\nfor sock in kept: sock.close()\ndel builtins.kept\n")


async def test_shared_memory_and_queues_of_another_session_are_out_of_reach(pair: Pair) -> None:
    create, private = 0o1000, 0o600
    make = (
        LIBC + f"value = [libc.shmget(0x617274, 4096, {create | private}) >= 0,\n"
        f"         libc.msgget(0x617274, {create | private}) >= 0,\n"
        f"         libc.semget(0x617274, 1, {create | private}) >= 0]\n"
    )
    assert await pair.inspect(make) == [True] * 3
    find = (
        LIBC + "calls = [(libc.shmget, 0x617274, 4096, 0), (libc.msgget, 0x617274, 0),\n"
        "         (libc.semget, 0x617274, 1, 0)]\n"
        "value = [ctypes.get_errno() if call(*rest) < 0 else 0 for call, *rest in calls]\n"
    )
    assert await pair.try_(find) == [ENOENT] * 3


async def test_keys_of_the_runtimes_user_can_be_neither_seen_nor_used(pair: Pair) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    add_key, keyctl = {"x86_64": (248, 250), "aarch64": (217, 219)}[os.uname().machine]
    user_keyring, unlink = -4, 9
    name = f"art-test-{os.getpid()}".encode()
    key = libc.syscall(add_key, b"user", name, b"secret", 6, user_keyring)
    if key < 0:
        pytest.skip("this user may not keep keys here")
    assert name.decode() in Path("/proc/keys").read_text()
    try:
        code = LIBC + (
            f"numbers = {(add_key, keyctl)!r}\n"
            "def call(*arguments):\n"
            "    return ctypes.get_errno() if libc.syscall(*arguments) < 0 else 'permitted'\n"
            f"value = [call(numbers[1], 11, {key}, 0, 0),\n"
            f"         call(numbers[1], 10, -4, b'user', {name!r}),\n"
            "         call(numbers[0], b'user', b'x', b'y', 1, -3)]\n"
            "try: value.append('art-test' in open('/proc/keys').read())\n"
            "except OSError: value.append(False)\n"
        )
        assert await pair.try_(code) == [EPERM, EPERM, EPERM, False]
    finally:
        libc.syscall(keyctl, unlink, key, user_keyring)


async def test_the_links_of_proc_lead_nowhere_else(pair: Pair) -> None:
    code = (
        "root = sorted(os.listdir('/'))\n"
        "ways = ['/proc/self/root', '/proc/self/root/..', '/proc/thread-self/root/../..',\n"
        "        '/proc/self/cwd/../../..', '/..', f'/proc/{os.getpid()}/root/../..']\n"
        "value = [sorted(os.listdir(way)) == root for way in ways]\n"
        "folder = os.open('/', os.O_PATH | os.O_DIRECTORY)\n"
        "for _ in range(8): folder = os.open('..', os.O_PATH | os.O_DIRECTORY, dir_fd=folder)\n"
        "value.append(sorted(os.listdir(f'/proc/self/fd/{folder}')) == root)\n"
        "value.append(outcome(os.chroot, '/tmp'))\n"
    )
    assert await pair.try_(code) == [True] * 7 + [EPERM]


async def test_programs_that_others_run_cannot_be_overwritten(pair: Pair) -> None:
    code = (
        "paths = ['/proc/self/exe', '/proc/1/exe', sys.executable, '/bin/sh', uvicorn.__file__]\n"
        "value = [outcome(os.open, path, os.O_RDWR) for path in paths]\n"
        "value += [outcome(os.open, path, os.O_WRONLY | os.O_TRUNC) for path in paths]\n"
    )
    assert set(await pair.try_(code)) <= {EACCES, EPERM, EROFS, ETXTBSY, ENOENT}


async def test_mounting_and_tracing_are_refused_with_arguments_that_would_work(pair: Pair) -> None:
    code = LIBC + (
        "import subprocess\n"
        "def failed(result): return ctypes.get_errno() if result < 0 else 'permitted'\n"
        "child = subprocess.Popen(['sleep', '60'])\n"
        "value = [failed(libc.mount(b'none', b'/tmp', b'tmpfs', 0, None)),\n"
        "         failed(libc.mount(b'/', b'/tmp', None, 4096, None)),\n"
        "         failed(libc.umount2(b'/proc', 2)),\n"
        "         failed(libc.unshare(0x10000000)), failed(libc.unshare(0x20000)),\n"
        "         failed(libc.ptrace(16, child.pid, None, None)),\n"
        "         failed(libc.setns(os.open('/proc/self/ns/net', os.O_RDONLY), 0))]\n"
        "child.kill(); child.wait()\n"
    )
    assert await pair.try_(code) == [EPERM] * 7


async def test_a_namespace_of_the_neighbour_cannot_even_be_named(pair: Pair) -> None:
    mine = await pair.inspect("value = os.readlink('/proc/self/ns/net')")
    code = (
        "value = [os.readlink(f'/proc/{one}/ns/net') for one in os.listdir('/proc') if one == '2']"
    )
    assert mine not in await pair.try_(code)
    for one in ("user", "pid", "mnt", "ipc", "uts", "cgroup", "net"):
        code = f"value = os.readlink('/proc/self/ns/{one}')"
        assert await pair.try_(code) != await pair.inspect(code), one


async def test_a_session_that_ignores_every_signal_ends_with_all_it_started(pair: Pair) -> None:
    stubborn = (
        "import signal\n"
        "def ignore():\n"
        "    for number in range(1, 65):\n"
        "        try: signal.signal(number, signal.SIG_IGN)\n"
        "        except (OSError, ValueError): pass\n"
        "    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\n"
        "ignore()\n"
        "for _ in range(3):\n"
        "    if os.fork() == 0:\n"
        "        ignore(); os.setsid(); os.closerange(3, 200)\n"
        "        while True: signal.pause()\n"
        "value = os.getpid()\n"
    )
    await pair.try_(stubborn)
    family = [pair.attacker.pid, *tree.descendants(pair.attacker.pid)]
    assert len(family) == 5
    for pid in family[1:]:
        os.kill(pid, 15)
    assert await ping(pair.attacker) == "Healthy", "it does ignore them"
    await pair.attacker.kill()
    await eventually(lambda: not [pid for pid in family if os.path.exists(f"/proc/{pid}")])


async def test_a_session_that_uses_every_core_does_not_silence_its_neighbour(pair: Pair) -> None:
    burn = (
        "for _ in range(8):\n"
        "    if os.fork() == 0:\n"
        "        os.closerange(3, 200)\n"
        "        while True: pass\n"
    )
    await pair.try_(burn)
    assert await pair.inspect("value = sum(range(1000))") == 499500


async def test_a_killed_zygote_harms_no_session_of_another_agent(pair: Pair) -> None:
    other = await pair.shop.template()
    stranger = await other.spawn(pair.shop.spec())
    os.kill(tree.parents()[stranger.pid], 9)
    await asyncio.wait_for(stranger.wait(), 60)
    assert await ping(pair.attacker) == "Healthy"
    again = await other.spawn(pair.shop.spec())
    assert await ping(again) == "Healthy"


async def test_a_stopped_session_can_be_ended(workshop: Workshop) -> None:
    """SIGSTOP cannot be ignored, and what is stopped answers nobody."""
    template = await workshop.template()
    one, two = [await template.spawn(workshop.spec()) for _ in range(2)]
    assert await run_inside(one, "value = os.system('setsid sleep 600 &')") == 0
    family = [one.pid, *tree.descendants(one.pid)]
    for pid in reversed(family):
        os.kill(pid, 19)
    await one.kill()
    await eventually(lambda: not [pid for pid in family if os.path.exists(f"/proc/{pid}")])
    assert await ping(two) == "Healthy"
