"""Free memory, read from a machine made of files."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentcore_rl_toolkit.runtime.memory import Memory, read

GB = 1024**3
MEMINFO = f"MemTotal: {24 * GB // 1024} kB\nMemFree: 1 kB\nMemAvailable: {20 * GB // 1024} kB\n"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text(MEMINFO)
    return tmp_path / "proc"


def in_group(proc: Path, own: str, mount: str, files: dict[str, str]) -> None:
    root = proc.parent / "cgroup"
    (proc / "self/cgroup").write_text(own)
    (proc / "self/mountinfo").write_text(f"30 24 0:26 {mount.format(point=root)}\n")
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


V1 = "/ {point} rw - cgroup cgroup rw,memory"
V2 = "/ {point} rw - cgroup2 cgroup2 rw"


def test_without_groups_it_is_the_machines_own(proc: Path) -> None:
    assert read(proc) == Memory(24 * GB, 20 * GB)


def test_a_system_that_does_not_tell(tmp_path: Path) -> None:
    assert read(tmp_path) is None


def test_a_version_2_limit_bounds_it_and_file_cache_is_free(proc: Path) -> None:
    files = {
        "job/memory.max": str(8 * GB),
        "job/memory.current": str(5 * GB),
        "job/memory.stat": f"anon {4 * GB}\ninactive_file {1 * GB}\n",
        "job/step/memory.max": "max",
        "job/step/memory.current": str(GB),
        "job/step/memory.stat": "",
    }
    in_group(proc, "0::/job/step\n", V2, files)
    assert read(proc) == Memory(8 * GB, 4 * GB), "the group above counts"


def test_a_version_1_limit_bounds_it(proc: Path) -> None:
    files = {
        "memory.limit_in_bytes": "9223372036854771712",
        "box/memory.limit_in_bytes": str(2 * GB),
        "box/memory.usage_in_bytes": str(3 * GB),
        "box/memory.stat": "total_inactive_file 0\n",
    }
    in_group(proc, "5:memory:/box\n3:cpu:/elsewhere\n", V1, files)
    assert read(proc) == Memory(2 * GB, 0), "never less than nothing"


def test_inside_a_container_the_groups_root_is_the_mounts(proc: Path) -> None:
    files = {
        "memory.max": str(GB),
        "memory.current": str(GB // 2),
        "memory.stat": "",
    }
    in_group(proc, "0::/docker/123\n", "/docker/123 {point} rw - cgroup2 cgroup2 rw", files)
    assert read(proc) == Memory(GB, GB // 2)


def test_this_machine_has_some() -> None:
    found = read()
    if found is None:
        pytest.skip("this system does not tell its memory")
    assert 0 < found.free <= found.total
