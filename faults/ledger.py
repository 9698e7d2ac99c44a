"""What the trainer did, one JSON line each, in an order that a kill cannot tear.

submit   a rollout was asked for
open     a gateway session was opened for an attempt at it
end      the rollout ended, and the rows in this very line were trained: one write, so that a
         killed trainer has either trained them and remembers, or has not and runs it again
report   the collector's account at that moment
stop     the trainer ended by itself
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentcore_rl_toolkit.collect import CollectReport, Rollout


class Ledger:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, kind: str, **fields: Any) -> None:
        os.write(self._fd, json.dumps({"kind": kind, **fields}).encode() + b"\n")

    def close(self) -> None:
        os.close(self._fd)


def end_line(rollout: Rollout) -> dict[str, Any]:
    """A rollout as it was given to the trainer, with the trained text of every turn."""
    rows = []
    for row in rollout.rows:
        row.check()
        turns = [
            [span.turn_id, "".join(map(chr, row.token_ids[span.start : span.end]))]
            for span in row.turns
        ]
        rows.append({"turns": turns, "tokens": row.n_trained})
    return {
        "rollout": rollout.rollout_id,
        "task": rollout.task,
        "session": rollout.session_id,
        "attempts": rollout.attempts,
        "failure": rollout.failure.kind.value if rollout.failure else None,
        "message": str(rollout.failure) if rollout.failure else None,
        "told": (rollout.result or {}).get("told"),
        "rows": rows,
        "start_s": rollout.timings.start_s,
        "finish_s": rollout.timings.finish_s,
    }


def report_line(report: CollectReport) -> dict[str, Any]:
    return {
        "submitted": report.submitted,
        "succeeded": report.succeeded,
        "failed": dict(report.failed),
        "running": report.running,
        "attempts": report.attempts,
        "retried": dict(report.retried),
    }


def read(path: Path) -> Iterator[dict[str, Any]]:
    """Whole lines; a half-written last one is left for later."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    for line in data.split(b"\n")[:-1]:
        yield json.loads(line)
