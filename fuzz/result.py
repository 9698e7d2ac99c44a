"""Results, which agents write: read by the client, judged, written into a run and read again."""

from __future__ import annotations

import tempfile
from pathlib import Path

from agentcore_rl_toolkit.client.store import parse_result
from agentcore_rl_toolkit.errors import AgentError
from agentcore_rl_toolkit.rollout import Failure, failure_of
from agentcore_rl_toolkit.run.reader import LineReader
from agentcore_rl_toolkit.run.writer import LineWriter

SEEDS = [
    b'{"rewards": 1.0, "status_code": 200, "stop_reason": "end_turn"}',
    b'{"status_code": 500, "stop_reason": "cut \\ud83d", "failure_kind": "model"}',
    b'{"status_code": [], "failure_kind": {}, "rewards": [1, 1e999, null]}',
]
_FOLDER = tempfile.TemporaryDirectory(prefix="fuzz-result-")


def check(data: bytes) -> None:
    try:
        result = parse_result(data, "exp/in/session.json")
    except AgentError:
        return
    failure = failure_of(result)
    assert failure is None or isinstance(failure, Failure)
    path = Path(_FOLDER.name) / "rollouts.jsonl"
    path.unlink(missing_ok=True)
    lines = LineWriter(path)
    try:
        lines.append({"error": failure.message if failure else None})
        lines.append({"after": True})
    finally:
        lines.close()
    reader = LineReader(path)
    assert [list(record) for record in reader.poll()] == [["error"], ["after"]]
    assert reader.problems == []
