"""The results of an evaluation on disk.

The results file is the truth: one JSON line per finished rollout, appended as it ends. Beside it,
``<out>.inflight`` names the sessions that were asked for, so that after a crash the same command
first collects (or ends) what is still running, then runs what is missing. Rows that failed
through infrastructure run again on resume; an agent's own failure is a result and stays.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from ..errors import ConfigError
from ..rollout import Failure, FailureKind

if TYPE_CHECKING:
    from ..client import RolloutFuture


@dataclasses.dataclass
class Entry:
    index: int
    digest: str
    agent: str
    model_id: str | None
    success: bool
    reward: float | None
    failure: str | None
    error: str | None
    elapsed_s: float | None
    result: dict[str, Any] | None

    @classmethod
    def of(cls, record: dict[str, Any]) -> Entry:
        values: dict[str, Any] = {f.name: record.get(f.name) for f in dataclasses.fields(cls)}
        return cls(**values)

    @property
    def final(self) -> bool:
        return self.failure is None or not FailureKind(self.failure).infrastructure


class ResultLog:
    """Owns the results file and the list of sessions in flight beside it."""

    def __init__(
        self, path: Path, rows: list[dict[str, Any]], *, agent: str, model_id: str | None
    ) -> None:
        self.path, self._agent, self._model_id = path, agent, model_id
        self.digests = [digest(row) for row in rows]
        self.entries: dict[int, Entry] = {}
        self.inflight_path = path.with_name(path.name + ".inflight")
        path.parent.mkdir(parents=True, exist_ok=True)
        for record in read_lines(path):
            entry = Entry.of(record)
            if entry.index >= len(rows) or entry.digest != self.digests[entry.index]:
                raise ConfigError(
                    f"{path} holds results of other data (row {entry.index}): "
                    "choose another --out, or remove it"
                )
            if (entry.agent, entry.model_id) != (agent, model_id):
                raise ConfigError(
                    f"{path} holds results of agent {entry.agent} with model {entry.model_id}: "
                    "choose another --out, or remove it"
                )
            self.entries[entry.index] = entry
        known = [
            record
            for record in read_lines(self.inflight_path)
            if record["index"] < len(rows) and record["digest"] == self.digests[record["index"]]
        ]
        self.unfinished = {r["index"]: r for r in known if r["index"] not in self.finished}
        """Sessions whose result is not here yet; the last attempt of each row."""
        self.ended = [r for r in known if r["index"] in self.finished]
        """Sessions whose result is here, but which may have been killed before their stop."""
        self._lock = threading.Lock()
        self._out = open_append(path)
        self._inflight = open_append(self.inflight_path)

    @property
    def finished(self) -> set[int]:
        return {index for index, entry in self.entries.items() if entry.final}

    def missing(self) -> list[int]:
        done = self.finished
        return [index for index in range(len(self.digests)) if index not in done]

    def started(self, index: int, future: RolloutFuture) -> None:
        """Called from the client's threads."""
        record = {
            "index": index,
            "digest": self.digests[index],
            "session_id": future.session_id,
            "result_key": future.result_key,
        }
        with self._lock:
            write_line(self._inflight, record)

    def add(
        self,
        index: int,
        result: dict[str, Any] | None,
        failure: Failure | None,
        elapsed: float | None,
    ) -> None:
        entry = Entry(
            index=index,
            digest=self.digests[index],
            agent=self._agent,
            model_id=self._model_id,
            success=failure is None,
            reward=reward_of(result),
            failure=failure.kind if failure else None,
            error=failure.message if failure else None,
            elapsed_s=round(elapsed, 3) if elapsed is not None else None,
            result=result,
        )
        self.entries[index] = entry
        write_line(self._out, dataclasses.asdict(entry))

    def close(self) -> None:
        self._out.close()
        self._inflight.close()
        if not self.missing():
            self.inflight_path.unlink(missing_ok=True)


def reward_of(result: dict[str, Any] | None) -> float | None:
    """A list counts by its last value, as rllm does."""
    rewards = (result or {}).get("rewards")
    if isinstance(rewards, list):
        rewards = rewards[-1] if rewards else None
    return float(rewards) if isinstance(rewards, int | float) else None


def digest(row: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(row, sort_keys=True).encode()).hexdigest()[:16]


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Complete lines only: a line cut by a crash is left out, and its row runs again."""
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    records = []
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and isinstance(record.get("index"), int):
            records.append(record)
    return records


def open_append(path: Path) -> TextIO:
    """Starts on a fresh line, also after a crash in the middle of one."""
    # half of a surrogate pair, in what an agent returned, stays an escape
    file = path.open("a+", encoding="utf-8", errors="backslashreplace")
    if file.tell() and not path.read_bytes().endswith(b"\n"):
        file.write("\n")
    return file


def write_line(file: TextIO, record: dict[str, Any]) -> None:
    file.write(json.dumps(record, ensure_ascii=False) + "\n")
    file.flush()
