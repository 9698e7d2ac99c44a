"""What is done to processes: their clock jumps, their disk is full, they stand still."""

from __future__ import annotations

import asyncio
import os
import struct
import sys
from pathlib import Path

import pytest

from faults.part import Part, PartError, children, limit_files, parent
from faults.stack import CLOCK

CLOCK_SCRIPT = "import time\nwhile input(): print(time.time(), time.monotonic(), flush=True)"
DISK_SCRIPT = """
import sys
file = open(sys.argv[1], "ab", buffering=0)
while input():
    try:
        file.write(b"x" * 100)
        print("written", flush=True)
    except OSError as error:
        print(error.errno, flush=True)
"""


async def start(*arguments: str, env: dict[str, str] | None = None) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", *arguments, stdin=pipe, stdout=pipe, env={**os.environ, **(env or {})}
    )


async def ask(process: asyncio.subprocess.Process) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"go\n")
    return (await process.stdout.readline()).decode().strip()


async def end(process: asyncio.subprocess.Process) -> None:
    await process.communicate(b"\n")


async def test_the_wall_clock_jumps_and_the_monotonic_one_does_not(tmp_path: Path) -> None:
    clock = tmp_path / "clock"
    clock.write_bytes(struct.pack("<d", 0.0))
    env = {"PYTHONPATH": str(CLOCK), "FAULTS_CLOCK": str(clock)}
    process = await start(CLOCK_SCRIPT, env=env)
    wall, steady = map(float, (await ask(process)).split())
    with clock.open("r+b") as file:
        file.write(struct.pack("<d", -86400.0))
    later, steadily = map(float, (await ask(process)).split())
    assert -86400 < later - wall < -86300
    assert 0 <= steadily - steady < 100
    await end(process)


async def test_a_full_disk_refuses_writes_until_there_is_room_again(tmp_path: Path) -> None:
    process = await start(DISK_SCRIPT, str(tmp_path / "file"))
    assert await ask(process) == "written"
    limit_files([process.pid], 150)
    seen = {await ask(process) for _ in range(3)}
    assert any(word.isdigit() for word in seen)
    limit_files([process.pid], None)
    assert await ask(process) == "written"
    await end(process)


async def test_a_part_that_ends_by_itself_is_told_with_what_it_said(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('no luck')"]
    part = Part("thing", command, os.environ, tmp_path / "log")
    await part.start()
    assert part.process is not None
    await part.process.wait()
    with pytest.raises(PartError, match="no luck"):
        part.check()


async def test_a_part_is_started_killed_and_stopped(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    part = Part("thing", command, os.environ, tmp_path / "log")
    await part.start()
    assert part.pid in children(os.getpid())
    assert parent(part.pid) == os.getpid()
    part.check()
    await part.hold(0.01)
    await part.kill()
    part.check()
    await part.start()
    await part.stop()
    assert not part.up
    assert len(part.pids) == 2
