"""What is left behind is found: a process, a listener, a folder, a control group, memory."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from faults import leak


def test_a_process_with_the_mark_is_found_until_it_is_gone(tmp_path: Path) -> None:
    mark = str(tmp_path)
    assert leak.processes(mark) == []
    child = subprocess.Popen(
        [sys.executable, "-c", "input()"], env={"MARK": mark}, stdin=subprocess.PIPE
    )
    try:
        while not (found := leak.processes(mark)):
            pass
        assert str(child.pid) in found[0]
        assert leak.memory_mb([child.pid]) > 0
        assert leak.files([child.pid]) >= 3
    finally:
        child.communicate(b"\n")
    assert leak.processes(mark) == []
    assert leak.memory_mb([child.pid]) == leak.files([child.pid]) == 0


def test_a_port_that_is_still_listened_on_is_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert leak.sockets([port]) == [f"somebody still listens on port {port}"]
    assert leak.sockets([port]) == []


def test_folders_groups_and_mounts_are_found(tmp_path: Path) -> None:
    (tmp_path / "art-gw-x").mkdir()
    assert len(leak.folders(tmp_path)) == 1
    (tmp_path / "memory" / "art-77").mkdir(parents=True)
    assert len(leak.groups([77], tmp_path)) == 1
    assert leak.groups([78], tmp_path) == []
    assert leak.mounts(tmp_path / "nothing") == []
    point = Path("/proc/self/mountinfo").read_text().splitlines()[0].split()[4]
    assert leak.mounts(Path(point)), "some mount has that in its line"


def test_memory_may_wave_but_not_grow() -> None:
    assert leak.grown("x", 100, 120) == []
    assert leak.grown("x", 100, 300) == ["x grew from 100 to 300"]
    assert os.getpid() not in [int(t.split()[1].rstrip(":")) for t in leak.processes("PATH")]
