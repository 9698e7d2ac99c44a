"""What agents and models put into a run folder does no harm to those who write and read it."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from agentcore_rl_toolkit.run import frame
from agentcore_rl_toolkit.run.index import RolloutIndex
from agentcore_rl_toolkit.run.reader import LineReader
from agentcore_rl_toolkit.run.writer import LineWriter

DEEP = b'{"rollout_id":"r","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n"


def test_half_of_a_surrogate_pair_does_not_stop_a_run(tmp_path: Path) -> None:
    lines = LineWriter(tmp_path / "rollouts.jsonl")
    lines.append({"error": "cut \ud83d", "metrics": {"\ud800": 1.0}, "list": ["\udfff"]})
    lines.append({"error": None})
    lines.close()
    reader = LineReader(tmp_path / "rollouts.jsonl")
    assert list(reader.poll()) == [
        {"error": "cut ?", "metrics": {"?": 1.0}, "list": ["?"]},
        {"error": None},
    ]
    assert reader.problems == []


def test_a_line_that_is_nested_without_end_is_told_and_stepped_over(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl"
    path.write_bytes(DEEP + json.dumps({"rollout_id": "after"}).encode() + b"\n")
    reader = LineReader(path)
    assert list(reader.poll()) == [{"rollout_id": "after"}]
    assert "not JSON" in reader.problems[0].message


def test_a_frame_that_is_nested_without_end_is_not_understood() -> None:
    payload = msgspec.msgpack.encode({"kind": "open", "session_id": "s", "at": 0.0, "settings": {}})
    deep = payload[:-1] + b"\x81\xa1a" + b"\x91" * 100_000 + b"\xc0"
    with pytest.raises(msgspec.ValidationError, match="recursion"):
        frame.decode(deep)


def test_the_index_steps_over_it_too(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl"
    path.write_bytes(DEEP)
    index = RolloutIndex(path)
    index.poll()
    assert [index.record(n) for n in range(len(index.heads))] in ([], [{}])
