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
    young = own_folder / "art-session-young"
    young.mkdir()
    (own_folder / "art-session-link").symlink_to(own_folder / "elsewhere")
    for old in (left, living.path):
        os.utime(old, (0, 0))
    scratch.sweep.cache_clear()
    scratch.sweep()
    assert (left.exists(), young.exists(), living.path.exists()) == (False, True, True)
    living.remove()
    living.remove()
    assert not living.path.exists()
