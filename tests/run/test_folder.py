"""The run folder: written line by line, read live or crashed."""

import json
import stat
import threading
from pathlib import Path

import numpy as np
import pytest

from agentcore_rl_toolkit.errors import ConfigError
from agentcore_rl_toolkit.run import LineReader, LineWriter, RunFolder, RunReader, RunWriter
from agentcore_rl_toolkit.run import find_runs as runs_below


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    with RunWriter(tmp_path / "run", config="train: {steps: 1}\n") as writer:
        writer.rollout({"rollout_id": "r", "reward": np.float32(0.5)})
        writer.metric({"step": 1, "loss": float("nan")})
        writer.event({"event": "started"})
        writer.result("exp/in/s.json", b'{"rewards": 1}')
    reader = RunReader(tmp_path / "run")
    assert reader.config() == "train: {steps: 1}\n"
    assert list(reader.rollouts()) == [{"rollout_id": "r", "reward": 0.5}]
    assert list(reader.metrics()) == [{"step": 1, "loss": None}]
    assert list(reader.events()) == [{"event": "started"}]
    assert (tmp_path / "run/results/exp/in/s.json").read_bytes() == b'{"rewards": 1}'
    assert reader.problems == []


def test_the_folder_and_its_files_are_private(tmp_path: Path) -> None:
    with RunWriter(tmp_path / "deep" / "run", config="") as writer:
        writer.result("a/b.json", b"{}")
    for path in [tmp_path / "deep" / "run", *(tmp_path / "deep" / "run").rglob("*")]:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path


def test_a_run_is_not_mixed_with_another_unless_resumed(tmp_path: Path) -> None:
    with RunWriter(tmp_path, config="a: 1") as writer:
        writer.metric({"step": 1})
    with pytest.raises(ConfigError, match="choose another run_dir, or resume"):
        RunWriter(tmp_path)
    with RunWriter(tmp_path, resume=True) as writer:
        writer.metric({"step": 2})
    assert [m["step"] for m in RunReader(tmp_path).metrics()] == [1, 2]


@pytest.mark.parametrize("key", ["", "/etc/x", "../x", "a/../../x", "a\\b", "a\nb"], ids=repr)
def test_a_result_key_cannot_leave_the_folder(tmp_path: Path, key: str) -> None:
    with pytest.raises(ConfigError, match="result key"):
        RunFolder(tmp_path).result(key)


def test_a_half_written_last_line_is_tolerated_and_reported(tmp_path: Path) -> None:
    whole = b'{"step": 1}\n{"step": 2}\n'
    path = RunFolder(tmp_path).metrics
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        reader = RunReader(tmp_path)
        steps = [m["step"] for m in reader.metrics()]
        assert steps == [1, 2][: whole[:cut].count(b"\n")]
        half = cut > 0 and not whole[:cut].endswith(b"\n")
        assert bool(reader.problems) == half


def test_a_line_cut_by_a_crash_costs_only_itself(tmp_path: Path) -> None:
    path = RunFolder(tmp_path).metrics
    path.write_bytes(b'{"step": 1}\n{"st')
    with RunWriter(tmp_path, resume=True) as writer:
        writer.metric({"step": 3})
        writer.metric({"step": 4})
    reader = RunReader(tmp_path)
    assert [m["step"] for m in reader.metrics()] == [1, 3, 4]
    assert len(reader.problems) == 1


def test_lines_of_several_threads_do_not_mix(tmp_path: Path) -> None:
    lines = LineWriter(tmp_path / "x.jsonl")

    def work(n: int) -> None:
        for i in range(200):
            lines.append({"n": n, "i": i, "pad": "x" * 500})

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines.close()
    seen = [json.loads(line) for line in (tmp_path / "x.jsonl").read_text().splitlines()]
    assert len({(line["n"], line["i"]) for line in seen}) == 800


def test_a_live_file_is_followed_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    reader = LineReader(path)
    assert list(reader.poll()) == []
    path.write_bytes(b'{"a": 1}\n{"a"')
    assert list(reader.poll()) == [{"a": 1}]
    assert reader.half == 4
    with path.open("ab") as file:
        file.write(b": 2}\n[]\n\n")
    assert list(reader.poll()) == [{"a": 2}]
    assert [problem.message for problem in reader.problems] == ["a line is not an object"]
    assert list(reader.poll()) == []


def test_runs_are_found_latest_first_and_other_folders_are_not_runs(tmp_path: Path) -> None:
    assert runs_below(tmp_path / "none") == []
    (tmp_path / "empty").mkdir()
    RunWriter(tmp_path / "a", config="").close()
    assert [run.path.name for run in runs_below(tmp_path)] == ["a"]
