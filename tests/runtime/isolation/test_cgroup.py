"""Control groups version 2 on a hierarchy made of files: folders get the files that the kernel
would put there, and can be removed with them."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentcore_rl_toolkit.runtime.isolation import cgroup
from agentcore_rl_toolkit.runtime.isolation.base import Limits

LIMITS = Limits(memory_mb=100, processes=7, cpus=0.5)
FILES = {
    "memory": ["memory.max", "memory.swap.max", "memory.oom.group", "memory.events"],
    "pids": ["pids.max"],
    "cpu": ["cpu.max"],
}


class Kernel:
    """What a group can bound is what its parent has enabled for it."""

    def __init__(self, root: Path, offered: str) -> None:
        self.root = root
        root.mkdir()
        self.fill(root, offered)

    def fill(self, folder: Path, offered: str) -> None:
        (folder / "cgroup.controllers").write_text(offered)
        for name in ("cgroup.subtree_control", "cgroup.procs"):
            (folder / name).touch()
        if folder != self.root:
            for controller in offered.split():
                for name in FILES[controller]:
                    (folder / name).touch()
            if "memory" in offered.split():
                (folder / "memory.current").write_text("4096\n")

    def enabled(self, folder: Path) -> str:
        return (folder / "cgroup.subtree_control").read_text().replace("+", " ").strip()

    def group(self, name: str, enabled: str = "") -> Path:
        folder = self.root
        for part in Path(name).parts:
            folder = folder / part
            if not folder.exists():
                folder.mkdir()
        (folder / "cgroup.subtree_control").write_text(enabled)
        return folder


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernel]:
    root = tmp_path / "cgroup"
    made = Kernel(root, "cpu memory pids")
    mkdir, try_write = Path.mkdir, cgroup._try_write

    def make(path: Path, *rest: object, **options: object) -> None:
        mkdir(path, *rest, **options)  # type: ignore[arg-type]
        if root in path.parents:
            made.fill(path, made.enabled(path.parent))

    def remove(folder: Path, patience_s: float = 0.0) -> None:
        assert root in folder.parents
        assert not [one for one in folder.iterdir() if one.is_dir()], "the kernel would refuse"
        shutil.rmtree(folder)

    def write(path: str | Path, value: str) -> bool:
        if str(path).endswith("subtree_control"):
            offered = (Path(path).parent / "cgroup.controllers").read_text().split()
            if value.removeprefix("+") not in offered:
                return False
            with open(path, "a") as file:
                file.write(f" {value}")
            return True
        return try_write(path, value)

    monkeypatch.setattr(Path, "mkdir", make)
    monkeypatch.setattr(cgroup, "_remove_one", remove)
    monkeypatch.setattr(cgroup, "_try_write", write)
    monkeypatch.setattr(cgroup.atexit, "register", lambda _: None)
    cgroup.find.cache_clear()
    yield made
    cgroup.find.cache_clear()


@pytest.fixture
def placed(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], cgroup.Groups]:
    """As found by a runtime that was started in the given group."""
    real = cgroup._read

    def find(own: str) -> cgroup.Groups:
        told = {
            "/proc/self/cgroup": f"0::{own}\n",
            "/proc/self/mountinfo": f"30 24 0:26 / {kernel.root} rw - cgroup2 cgroup2 rw\n",
        }
        monkeypatch.setattr(cgroup, "_read", lambda path: told.get(str(path)) or real(path))
        cgroup.find.cache_clear()
        return cgroup.find()

    return find


@pytest.fixture
def process() -> Iterator[int]:
    with subprocess.Popen(["sleep", "600"]) as child:
        yield child.pid
        child.kill()


def own(folder: Path) -> Path:
    return folder / f"art-{os.getpid()}"


def test_a_delegated_group_bounds_memory_processes_and_processor(
    kernel: Kernel, placed: Callable[[str], cgroup.Groups], process: int
) -> None:
    kernel.group("user", "+memory +pids +cpu")
    home = kernel.group("user/app", "+memory +pids +cpu")
    groups = placed("/user/app")
    assert groups.memory
    assert groups.describe() == "control groups bound cpu, memory, pids"
    group = groups.make(LIMITS, processes=False)
    (folder,) = group.joined
    assert folder.parent == own(home)
    written = {name: (folder / name).read_text() for name in ("memory.max", "pids.max", "cpu.max")}
    assert written == {
        "memory.max": str(100 * 1024 * 1024),
        "pids.max": "7",
        "cpu.max": "50000 100000",
    }
    assert (folder / "memory.swap.max").read_text() == "0"
    assert (folder / "memory.oom.group").read_text() == "1", "a session ends as a whole"
    group.join(process)
    assert (folder / "cgroup.procs").read_text() == str(process)
    assert group.memory_bytes() == 4096
    assert not group.ran_out()
    (folder / "memory.events").write_text("low 0\nmax 3\noom 1\noom_kill 1\n")
    assert group.ran_out()
    group.remove()
    assert not folder.exists()
    groups.close()
    assert not own(home).exists()


def test_the_group_we_run_in_bounds_nothing_so_the_one_above_is_taken(
    kernel: Kernel, placed: Callable[[str], cgroup.Groups]
) -> None:
    """A group with processes in it cannot enable controllers for those below it."""
    above = kernel.group("machine", "+memory +pids +cpu")
    here = kernel.group("machine/session")
    groups = placed("/machine/session")
    assert groups.describe() == "control groups bound cpu, memory, pids"
    assert own(above).exists()
    assert not own(here).exists(), "what was tried is removed"


def test_where_nothing_is_delegated_no_group_is_made(
    kernel: Kernel, placed: Callable[[str], cgroup.Groups]
) -> None:
    above = kernel.group("machine")
    here = kernel.group("machine/session")
    groups = placed("/machine/session")
    assert "memory is watched" in groups.describe()
    group = groups.make(LIMITS, processes=True)
    assert (groups.memory, group.joined, group.memory_bytes()) == (False, [], None)
    assert not [one for one in (kernel.root, above, here) if own(one).exists()]


def test_what_a_killed_runtime_left_is_removed(
    kernel: Kernel, placed: Callable[[str], cgroup.Groups]
) -> None:
    kernel.group("app", "+memory +pids +cpu")
    left = kernel.group("app/art-999999999/3").parent
    living = kernel.group("app/art-1")
    placed("/app")
    assert not left.exists()
    assert living.exists(), "process 1 is still there"


def test_without_a_writable_group_limits_fall_to_their_substitutes(
    kernel: Kernel, placed: Callable[[str], cgroup.Groups], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    groups = placed("/")
    assert not groups.memory
    group = groups.make(LIMITS, processes=True)
    assert (group.joined, group.memory_bytes()) == ([], None)
    group.remove()


def test_the_end_waits_longer_for_groups_whose_processes_are_slow_to_die(tmp_path: Path) -> None:
    """A killed process needs CPU time to be gone, which a busy machine gives late."""
    busy = tmp_path / "art-1" / "7"
    busy.mkdir(parents=True)
    (busy / "somebody").touch()
    timer = threading.Timer(cgroup.REMOVE_S + 0.3, (busy / "somebody").unlink)
    timer.start()
    cgroup.Groups([cgroup.Hierarchy(2, tmp_path / "art-1", frozenset({"memory"}))]).close()
    timer.join()
    assert list(tmp_path.iterdir()) == []
