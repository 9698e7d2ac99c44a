"""Everything that a run produces, in one private folder of append-only files.

    config.yaml       what was asked for, resolved
    rollouts.jsonl    one line a finished rollout
    metrics.jsonl     one line a training step or measurement
    events.jsonl      what happened: starts, failures, weight updates, alarms
    turns/*.journal   every model call, see ``run.segment``
    results/          what agents returned, as they returned it
    logs/             what agents printed, where the run had a runtime of its own

Several processes write into it, each its own files: the trainer the lines, each gateway worker its
journal. Readers need no lock and no writer: a crashed run reads like a live one.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from ..errors import ConfigError

CONFIG = "config.yaml"
ROLLOUTS = "rollouts.jsonl"
METRICS = "metrics.jsonl"
EVENTS = "events.jsonl"
TURNS = "turns"
RESULTS = "results"
LOGS = "logs"


class RunFolder:
    """Paths of a run; touches nothing until ``create``."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.config = self.path / CONFIG
        self.rollouts = self.path / ROLLOUTS
        self.metrics = self.path / METRICS
        self.events = self.path / EVENTS
        self.turns = self.path / TURNS
        self.results = self.path / RESULTS
        self.logs = self.path / LOGS

    def exists(self) -> bool:
        """Holds a run, not only an empty folder."""
        lines = (self.config, self.rollouts, self.metrics, self.events)
        return any(path.exists() for path in lines)

    def create(self) -> RunFolder:
        """Makes what is missing, readable by its owner only; a folder that is there stays as is."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        for folder in (self.path, self.turns, self.results, self.logs):
            folder.mkdir(mode=0o700, exist_ok=True)
        return self

    def result(self, key: str) -> Path:
        """Where a result is kept; ConfigError for a key that would leave the folder."""
        parts = PurePosixPath(key).parts
        sound = bool(parts) and not key.startswith("/") and "\\" not in key and key.isprintable()
        if not sound or any(part in (".", "..") for part in parts):
            raise ConfigError(f"{key!r} is no result key: parts, divided by '/', without '..'")
        return self.results.joinpath(*parts)


def result_name(session_id: str) -> str:
    """Key of the result that a session's agent returned; one session, one result."""
    return f"{session_id}.json"


def find_runs(base: Path) -> list[RunFolder]:
    """Runs directly below ``base``, the latest first."""
    if not base.is_dir():
        return []
    found = [RunFolder(path) for path in base.iterdir() if path.is_dir()]
    runs = [run for run in found if run.exists()]
    return sorted(runs, key=lambda run: run.path.stat().st_mtime, reverse=True)
