"""What a hostile or broken agent tries, from inside a session of level ``namespace``.

Every test has a neighbour in another session, and the neighbour must not notice.
``test_ordinary_user`` runs this file again without root.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agentcore_rl_toolkit.runtime import isolation
from agentcore_rl_toolkit.runtime.isolation import Compute, Limits, Template, usage
from agentcore_rl_toolkit.runtime.isolation.inside import tree

from .conftest import PLAIN, Workshop, eventually, ping, run_inside

PROBE = isolation.drivers()["namespace"].probe()
pytestmark = pytest.mark.skipif(not PROBE.available, reason=PROBE.reason)

LIMITS = Limits(memory_mb=200, processes=40, disk_mb=24, open_files=200)
ERRNO = """
def outcome(call, *arguments):
    try:
        result = call(*arguments)
    except OSError as error:
        return error.errno
    return 0 if result is None else result
"""
EPERM, ENOENT, ESRCH, EACCES, EROFS, ENOSYS = 1, 2, 3, 13, 30, 38


class Pair(NamedTuple):
    attacker: Compute
    neighbour: Compute
    template: Template
    shop: Workshop

    async def try_(self, code: str) -> Any:
        return await run_inside(self.attacker, ERRNO + code)

    async def inspect(self, code: str) -> Any:
        return await run_inside(self.neighbour, ERRNO + code)


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    shop = Workshop(tmp_path, "namespace")
    template = await shop.template(limits=LIMITS)
    one, two = [await template.spawn(shop.spec()) for _ in range(2)]
    await ping(one)
    yield Pair(one, two, template, shop)
    assert await ping(two) == "Healthy"
    await shop.close()


# --- too much of everything -------------------------------------------------------------------


async def test_a_fork_bomb_stops_at_the_limit_and_ends_with_the_session(pair: Pair) -> None:
    bomb = (
        "import time\nvalue = 0\n"
        "try:\n"
        "    while value < 1000:\n"
        "        if os.fork() == 0:\n"
        "            os.closerange(3, 200); os.setsid(); time.sleep(600)\n"
        "        value += 1\n"
        "except BlockingIOError:\n    pass\n"
    )
    assert 10 < await pair.try_(bomb) < LIMITS.processes
    assert await pair.inspect("value = os.system('true')") == 0
    family = tree.descendants(pair.attacker.pid)
    assert len(family) > 10
    await pair.attacker.kill()
    await eventually(lambda: not [pid for pid in family if os.path.exists(f"/proc/{pid}")])


async def test_threads_count_as_processes(pair: Pair) -> None:
    threads = (
        "import threading, time\nvalue = 0\n"
        "try:\n"
        "    while value < 1000:\n"
        "        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
        "        value += 1\n"
        "except RuntimeError:\n    pass\n"
    )
    assert 10 < await pair.try_(threads) < LIMITS.processes


async def test_a_memory_hog_ends_alone_and_the_reason_is_told(pair: Pair) -> None:
    hog = "held = []\nwhile True:\n    held.append(b'x' * 4_000_000)\n"
    with pytest.raises((ValueError, OSError)):
        await pair.try_(hog)
    assert "out of memory" in await asyncio.wait_for(pair.attacker.wait(), 60)


async def test_the_disk_of_a_session_is_bounded(pair: Pair) -> None:
    fill = (
        "value = 0\n"
        "for place in ('/tmp/a', '/app/a', '/home/agent/a', '/dev/shm/a', '/var/tmp/a'):\n"
        "    try:\n"
        "        with open(place, 'wb', buffering=0) as file:\n"
        "            while True:\n"
        "                value += file.write(bytes(1_000_000))\n"
        "    except OSError:\n        pass\n"
    )
    assert 10e6 < await pair.try_(fill) <= LIMITS.disk_mb * 1024 * 1024
    assert await pair.inspect("value = open('/tmp/mine', 'wb').write(bytes(1_000_000))") == 1e6


async def test_empty_files_run_out_too(pair: Pair) -> None:
    code = (
        "value = 0\n"
        "try:\n"
        "    while value < 100_000:\n"
        "        open(f'/tmp/{value}', 'x').close(); value += 1\n"
        "except OSError:\n    pass\n"
    )
    assert await pair.try_(code) < LIMITS.disk_mb * 256


async def test_the_log_of_a_session_is_bounded(pair: Pair) -> None:
    flood = (
        "try:\n    while True: os.write(1, b'x' * 1_000_000)\nexcept OSError as error:\n"
        "    value = error.errno\n"
    )
    too_big = 27
    assert await pair.try_(flood) == too_big
    logs = [path.stat().st_size for path in pair.shop.folder.glob("*.log")]
    assert max(logs) <= LIMITS.disk_mb * 1024 * 1024


async def test_limits_of_other_processes_cannot_be_set(pair: Pair) -> None:
    code = (
        "import resource, subprocess, sys\n"
        "kind = resource.RLIMIT_NOFILE\n"
        "child = subprocess.Popen(['sleep', '60'])\n"
        "tries = [outcome(resource.prlimit, pid, kind, (5, 5)) for pid in (1, child.pid)]\n"
        "child.kill(); child.wait()\n"
        "helper = 'import os, resource; resource.prlimit(os.getppid(), 7, (5, 5))'\n"
        "done = subprocess.run([sys.executable, '-c', helper], capture_output=True, text=True)\n"
        "own = resource.getrlimit(kind)\n"
        "resource.setrlimit(kind, (150, 150))\n"
        "value = [tries, 'PermissionError' in done.stderr, own, resource.prlimit(0, kind)]\n"
    )
    limit = LIMITS.open_files
    assert await pair.try_(code) == [[EPERM, EPERM], True, [limit, limit], [150, 150]]


async def test_a_session_cannot_end_its_init_by_signals(pair: Pair) -> None:
    code = "value = [outcome(os.kill, 1, number) for number in (1, 2, 9, 10, 12, 15, 17)]"
    assert await pair.try_(code) == [0] * 7
    assert await ping(pair.attacker) == "Healthy"


async def test_open_files_are_bounded(pair: Pair) -> None:
    leak = (
        "held = []\n"
        "try:\n"
        "    while True: held.append(open('/dev/null'))\n"
        "except OSError as error:\n"
        "    value = [error.errno, len(held)]\n"
        "del held\n"
    )
    code, count = await pair.try_(leak)
    assert code == 24
    assert count < LIMITS.open_files


# --- out of the session -----------------------------------------------------------------------


async def test_the_machine_is_not_in_view(pair: Pair) -> None:
    secret = pair.shop.folder / "secret"
    secret.write_text("of the host")
    assert os.path.exists(secret)
    places = [str(secret), str(Path(__file__)), "/etc/shadow", "/root/.ssh", "/var/log", "/boot"]
    code = f"value = [os.path.exists(path) for path in {places!r}]"
    assert await pair.try_(code) == [False] * len(places)
    assert await pair.try_("value = os.listdir('/sys') + os.listdir('/home')") == ["agent"]


async def test_files_of_another_session_are_not_in_view(pair: Pair) -> None:
    await pair.inspect("for place in ('/tmp', '/app', '/dev/shm'): open(place + '/mine', 'x')")
    places = ["/tmp/mine", "/app/mine", "/dev/shm/mine"]
    assert await pair.try_(f"value = [os.path.exists(path) for path in {places!r}]") == [False] * 3


async def test_what_is_shared_is_read_only(pair: Pair) -> None:
    code = (
        "value = [outcome(open, path + '/x', 'w') for path in\n"
        "         ('/', '/usr', '/etc', '/dev', os.path.dirname(uvicorn.__file__))]\n"
        "value.append(outcome(os.chmod, sys.executable, 0o777))\n"
        "value.append(outcome(os.remount if hasattr(os, 'remount') else os.rename, '/usr', '/x'))\n"
    )
    for outcome in await pair.try_(code):
        assert outcome in (EROFS, EACCES, EPERM, 16, 18)


async def test_processes_outside_can_be_neither_seen_nor_signalled(pair: Pair) -> None:
    code = (
        "pids = [int(name) for name in os.listdir('/proc') if name.isdigit()]\n"
        f"value = [sorted(set(pids) - {{os.getpid()}}), [outcome(os.kill, pid, 9) for pid in "
        f"({os.getpid()}, {pair.neighbour.pid}, {tree.parents()[pair.attacker.pid]})]]\n"
    )
    pids, outcomes = await pair.try_(code)
    assert pids == [1]
    assert outcomes == [ESRCH] * 3


async def test_killing_everyone_reaches_only_the_session(pair: Pair) -> None:
    await pair.try_("value = [outcome(os.kill, pid, 9) for pid in (-1, 1)]")
    assert await ping(pair.attacker) == "Healthy"


async def test_init_holds_nothing_of_what_the_agent_imported(pair: Pair) -> None:
    large = f"LARGE = b'x' * 100_000_000\n{PLAIN}"
    compute = await (await pair.shop.template(large)).spawn(pair.shop.spec())
    assert await ping(compute) == "Healthy"
    (agent,) = tree.descendants(compute.pid)
    assert usage.resident_bytes(agent) > 100e6
    assert usage.resident_bytes(compute.pid) < 50e6


async def test_init_is_out_of_reach_of_its_agent(pair: Pair) -> None:
    code = (
        "value = [outcome(os.open, f'/proc/1/{name}', os.O_RDONLY) for name in\n"
        "         ('mem', 'environ', 'maps')]\n"
        "value += [outcome(os.listdir, f'/proc/1/{name}') for name in ('root', 'fd', 'cwd')]\n"
        "value.append(outcome(os.open, '/proc/1/mem', os.O_RDWR))\n"
    )
    assert set(await pair.try_(code)) <= {EPERM, EACCES}


async def test_the_agent_holds_no_way_to_the_runtime(pair: Pair) -> None:
    code = (
        "import socket, stat\nvalue = []\n"
        "own = f'/proc/{os.getpid()}/fd'\n"
        "for name in os.listdir(own):\n"
        "    try:\n        mode = os.fstat(int(name)).st_mode\n"
        "    except OSError:\n        continue\n"
        "    if stat.S_ISSOCK(mode):\n"
        "        sock = socket.socket(fileno=os.dup(int(name)))\n"
        "        value.append(sock.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE))\n"
        "        sock.close()\n"
        "    elif stat.S_ISDIR(mode) and os.readlink(f'{own}/{name}') != own:\n"
        "        value.append(os.readlink(f'{own}/{name}'))\n"
    )
    stream = 1
    assert set(await pair.try_(code)) <= {stream}


async def test_the_ports_of_another_session_are_out_of_reach(pair: Pair) -> None:
    listen = (
        "import socket\nkept = socket.create_server(('127.0.0.1', 9999))\nvalue = kept.fileno()"
    )
    await pair.inspect(f"{listen}\nimport builtins; builtins.kept = kept")
    code = "import socket\nvalue = outcome(socket.create_connection, ('127.0.0.1', 9999), 3)"
    refused = 111
    assert await pair.try_(code) == refused
    with socket.create_server(("127.0.0.1", 0)) as host:
        address = host.getsockname()
        code = f"import socket\nvalue = outcome(socket.create_connection, {address!r}, 3)"
        assert await pair.try_(code) == refused


CALLS = """
import ctypes, platform
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    ctypes.set_errno(0)
    return ctypes.get_errno() if libc.syscall(number, *arguments) < 0 else "permitted"
numbers = {numbers!r}
value = {{name: call(number, 0, 0, 0, 0, 0) for name, number in numbers.items()}}
"""


async def test_dangerous_system_calls_are_refused(pair: Pair) -> None:
    from agentcore_rl_toolkit.runtime.isolation.inside.seccomp import DENIED

    column = {"x86_64": 0, "aarch64": 1}[os.uname().machine]
    numbers = {name: both[column] for name, both in DENIED.items() if both[column] is not None}
    answers = await pair.try_(CALLS.format(numbers=numbers))
    assert answers == dict.fromkeys(numbers, EPERM)
    clone3 = CALLS.format(numbers={"clone3": 435})
    assert await pair.try_(clone3) == {"clone3": ENOSYS}


async def test_new_namespaces_and_odd_sockets_are_refused(pair: Pair) -> None:
    clone = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
    new_user = 0x10000000
    code = (
        CALLS.format(numbers={})
        + f"value = [call({clone}, {new_user} | 17, 0, 0, 0, 0)]\n"
        + "import socket\n"
        + "for family in (38, 40): value.append(outcome(socket.socket, family, 1, 0))\n"
    )
    assert await pair.try_(code) == [EPERM, 97, 97]


async def test_no_right_is_left(pair: Pair) -> None:
    code = (
        "lines = dict(line.split(':', 1) for line in open('/proc/self/status'))\n"
        "value = {name: lines[name].strip() for name in lines if name.startswith('Cap')}\n"
        "value |= {name: lines[name].strip() for name in ('NoNewPrivs', 'Seccomp')}\n"
        "value['uid'] = [os.getuid(), os.geteuid(), outcome(os.setuid, 0)]\n"
    )
    answer = await pair.try_(code)
    assert {value for name, value in answer.items() if name.startswith("Cap")} == {"0" * 16}
    assert (answer["NoNewPrivs"], answer["Seccomp"]) == ("1", "2")
    assert answer["uid"][:2] == [1000, 1000]
    assert answer["uid"][2] in (EPERM, 22)


async def test_a_session_of_root_is_nobody_outside(pair: Pair) -> None:
    agent = tree.descendants(pair.attacker.pid)[0]
    line = next(x for x in Path(f"/proc/{agent}/status").read_text().splitlines() if "Uid:" in x)
    uids = {int(word) for word in line.split()[1:]}
    if os.geteuid() == 0:
        assert min(uids) > 1_000_000_000
    else:
        assert uids == {os.geteuid()}


async def test_kernel_settings_cannot_be_written(pair: Pair) -> None:
    paths = [
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/kernel/hostname",
        "/proc/sys/vm/overcommit_memory",
        "/proc/sysrq-trigger",
        "/proc/1/oom_score_adj",
    ]
    code = f"value = [outcome(os.open, path, os.O_WRONLY) for path in {paths!r}]\n"
    assert set(await pair.try_(code)) <= {EACCES, EPERM, EROFS, ENOENT}
    code = "value = [outcome(os.open, path, os.O_RDONLY) for path in ('/proc/kcore', '/dev/mem')]"
    assert set(await pair.try_(code)) <= {EACCES, EPERM, ENOENT}


async def test_a_link_in_the_agents_folder_leads_nowhere(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, "namespace")
    agent = shop.agent()
    (tmp_path / "secret").write_text("of the host")
    (agent.folder / "link").symlink_to(tmp_path / "secret")
    compute = await (await shop.prepare(agent)).spawn(shop.spec())
    assert await run_inside(compute, "value = os.path.exists('/app/link')") is False
    await shop.close()


async def test_code_that_runs_at_import_is_in_the_view_already(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, "namespace")
    (tmp_path / "secret").write_text("of the host")
    source = (
        "import os, socket\nSEEN = [os.path.exists({path!r}), os.listdir('/home'), 0]\n"
        "try: socket.create_connection(('169.254.169.254', 80), 2)\n"
        "except OSError as error: SEEN[2] = error.errno\n"
    ).format(path=str(tmp_path / "secret"))
    template = await shop.template(source + PLAIN)
    compute = await template.spawn(shop.spec())
    assert await run_inside(compute, "value = SEEN") == [False, ["agent"], 101]
    await shop.close()


async def test_many_sessions_die_at_once_and_none_stays(pair: Pair) -> None:
    computes = await asyncio.gather(*(pair.template.spawn(pair.shop.spec()) for _ in range(12)))
    family = [pid for one in computes for pid in (one.pid, *tree.descendants(one.pid))]
    await asyncio.gather(*(compute.kill() for compute in computes))
    await eventually(lambda: not [pid for pid in family if os.path.exists(f"/proc/{pid}")])


REUSE = """
import ctypes, socket, struct
libc = ctypes.CDLL(None, use_errno=True)
value = []
for name in os.listdir('/proc/self/fd'):
    try:
        kind = os.readlink('/proc/self/fd/' + name)
    except OSError:
        continue
    if not kind.startswith('socket:'):
        continue
    fd = os.dup(int(name))
    unspecified = struct.pack('=H14x', 0)
    libc.connect(fd, unspecified, 16)
    sock = socket.socket(fileno=fd)
    if sock.family != socket.AF_INET:
        sock.close()
        continue
    sock.settimeout(2)
    value.append(outcome(sock.connect, ('127.0.0.1', {port})))
    sock.close()
"""


async def test_no_socket_of_the_agent_belongs_to_the_machines_network(pair: Pair) -> None:
    """A socket can be disconnected and connected anew, and then it is where it was made."""
    reached = asyncio.Event()

    async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.set()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        await pair.try_(REUSE.format(port=port))
    except (ValueError, OSError):
        pass  # it has cut the connection on which it was to answer
    assert not reached.is_set()
    server.close()
    await server.wait_closed()
