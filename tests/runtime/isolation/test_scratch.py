from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from agentcore_rl_toolkit.runtime.isolation import scratch


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_what_a_killed_runtime_left_is_removed_and_what_lives_is_spared(own_folder: Path) -> None:
    living = scratch.Scratch()
    left = own_folder / "art-session-left"
    (left / "app").mkdir(parents=True)
    young, forgotten = own_folder / "art-new-young", own_folder / "art-new-forgotten"
    young.mkdir()
    forgotten.mkdir()
    os.utime(forgotten, (0, 0))
    (own_folder / "art-session-link").symlink_to(own_folder / "elsewhere")
    scratch.sweep.cache_clear()
    scratch.sweep()
    assert {path.name for path in own_folder.glob("art-*") if path.is_dir()} == {
        young.name,
        living.path.name,
    }
    living.remove()
    living.remove()
    assert not living.path.exists()
