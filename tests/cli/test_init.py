"""``art init`` as a user types it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentcore_rl_toolkit.cli import init
from agentcore_rl_toolkit.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]


def test_a_new_agent_is_whole(tmp_path: Path) -> None:
    folder = tmp_path / "my_agent"
    init.init(folder, apply=False)
    made = {path.name for path in folder.iterdir()}
    assert made == {
        "basic_app.py",
        "rl_app.py",
        "reward.py",
        "data.jsonl",
        "requirements.txt",
        "README.md",
    }
    assert "/data.jsonl --agent my_agent --base-url" in (folder / "README.md").read_text()
    rows = [json.loads(line) for line in (folder / "data.jsonl").read_text().splitlines()]
    assert all(row.keys() == {"prompt", "answer"} for row in rows)
    code = "import rl_app; print(rl_app.reward(response='so #### 42', answer='42'))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.stdout.strip() == "1.0", done.stderr
    with pytest.raises(ConfigError, match="trainable already"):
        init.init(folder / "rl_app.py", apply=True)


def test_an_agent_is_shown_its_difference_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "basic_app.py"
    script.write_text((ROOT / "examples" / "strands_math_agent" / "basic_app.py").read_text())
    init.init(script, apply=False)
    assert "+@app.rollout_entrypoint" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["basic_app.py"]


def test_apply_writes_beside_the_agent_and_over_nothing(tmp_path: Path) -> None:
    script = tmp_path / "basic_app.py"
    text = (ROOT / "examples" / "strands_math_agent" / "basic_app.py").read_text()
    script.write_text(text)
    init.init(tmp_path, apply=True)
    assert script.read_text() == text
    assert "rollout_entrypoint" in (tmp_path / "rl_app.py").read_text()
    assert "NotImplementedError" in (tmp_path / "reward.py").read_text()
    with pytest.raises(ConfigError, match="exists already"):
        init.init(script, apply=True)


def test_a_folder_in_use_and_a_missing_script_are_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="not empty"):
        init.init(tmp_path, apply=False)
    with pytest.raises(ConfigError, match="does not exist"):
        init.init(tmp_path / "nothing.py", apply=False)
    (tmp_path / "photo.py").write_bytes(b"\xff\xd8")
    with pytest.raises(ConfigError, match="not a text in UTF-8"):
        init.init(tmp_path / "photo.py", apply=False)


def test_what_is_there_already_is_not_advised_to_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "my_agent"
    init.init(folder, apply=False)
    init.init(folder, apply=False)
    said = capsys.readouterr().err.replace("\n", " ")
    assert "rl_app.py exists already: deploy it" in said
    assert "--apply writes" not in said
