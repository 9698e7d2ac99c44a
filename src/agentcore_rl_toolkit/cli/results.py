"""The results of an evaluation on disk.

The results file is the truth: one JSON line per finished rollout, appended as it ends. Beside it,
``<out>.inflight`` names the sessions that were asked for, so that after a crash the same command
first collects (or ends) what is still running, then runs what is missing. Successes are what a
file is resumed with: failed rows leave it then and run again, so it has one line a row. Successes
of another agent, another version of it, or another model are never mixed in.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from ..errors import ConfigError, ContractError
from ..rollout import Failure, FailureKind

if TYPE_CHECKING:
    from ..client import RolloutFuture


@dataclasses.dataclass(frozen=True)
class Subject:
    """What is evaluated; a redeployed agent keeps its ARN."""

    agent: str
    version: str | None
    """None where it is not known."""
    model_id: str | None

    @classmethod
    def of(cls, record: dict[str, Any]) -> Subject:
        return cls(str(record.get("agent")), record.get("version"), record.get("model_id"))

    def same(self, other: Subject) -> bool:
        known = self.version is not None and other.version is not None
        return (self.agent, self.model_id) == (other.agent, other.model_id) and (
            not known or self.version == other.version
        )

    def __str__(self) -> str:
        version = f", version {self.version}," if self.version else ""
        return f"agent {self.agent}{version} with model {self.model_id}"


@dataclasses.dataclass
class Entry:
    index: int
    digest: str
    agent: str
    version: str | None
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
        """Of this run: an agent's own failure is a result, until somebody runs it again."""
        return self.failure is None or self.failure == FailureKind.AGENT


class ResultLog:
    """Owns the results file and the list of sessions in flight beside it."""

    def __init__(
        self,
        path: Path,
        rows: list[dict[str, Any]],
        subject: Subject,
        *,
        overwrite: bool = False,
    ) -> None:
        """``overwrite``: whatever the file holds is dropped, and sessions in flight are ended."""
        self.path, self._subject = path, subject
        self.digests = [digest(row) for row in rows]
        self.entries: dict[int, Entry] = {}
        self.inflight_path = path.with_name(path.name + ".inflight")
        path.parent.mkdir(parents=True, exist_ok=True)
        if overwrite:
            rewrite(path, [])
        else:
            self._read()
        known = [
            record
            for record in read_lines(self.inflight_path)
            if record["index"] < len(rows)
            and record["digest"] == self.digests[record["index"]]
            and record.get("agent") == subject.agent
        ]
        done = self.finished
        wanted: list[dict[str, Any]] = []
        over: list[dict[str, Any]] = []
        for record in known:
            is_open = record["index"] not in done and Subject.of(record).same(subject)
            (wanted if is_open and not overwrite else over).append(record)
        self.unfinished = {record["index"]: record for record in wanted}
        """Sessions whose result is not here yet; the last attempt of each row."""
        self.ended = over
        """Sessions whose result is not wanted, but which may have been killed before their stop."""
        self._lock = threading.Lock()
        self._out = open_append(path)
        self._inflight = open_append(self.inflight_path)

    def _read(self) -> None:
        lines = read_lines(self.path)
        for record in lines:
            entry = Entry.of(record)
            if entry.index >= len(self.digests) or entry.digest != self.digests[entry.index]:
                raise ConfigError(
                    f"{self.path} holds results of other data (row {entry.index}): "
                    "choose another --out, or --overwrite it"
                )
            if not entry.success:
                continue
            if not (found := Subject.of(record)).same(self._subject):
                raise ConfigError(
                    f"{self.path} holds results of {found}, and this is {self._subject}: choose "
                    "another --out, or --overwrite it to evaluate anew"
                )
            self.entries[entry.index] = entry
        if len(self.entries) < len(lines):
            rewrite(self.path, [dataclasses.asdict(entry) for entry in self.entries.values()])

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
            **dataclasses.asdict(self._subject),
        }
        with self._lock:
            write_line(self._inflight, record)

    def add(
        self,
        index: int,
        result: dict[str, Any] | None,
        failure: Failure | None,
        elapsed: float | None,
    ) -> Failure | None:
        """The failure as counted: a result that no trainer could use is one."""
        reward = None
        if failure is None:
            reward, failure = judged(result or {})
        entry = Entry(
            index=index,
            digest=self.digests[index],
            **dataclasses.asdict(self._subject),
            success=failure is None,
            reward=reward,
            failure=failure.kind if failure else None,
            error=failure.message if failure else None,
            elapsed_s=round(elapsed, 3) if elapsed is not None else None,
            result=result,
        )
        self.entries[index] = entry
        write_line(self._out, dataclasses.asdict(entry))
        return failure

    def close(self) -> None:
        self._out.close()
        self._inflight.close()
        if len(self.entries) == len(self.digests):  # every row ended, well or not
            self.inflight_path.unlink(missing_ok=True)


def judged(result: dict[str, Any]) -> tuple[float | None, Failure | None]:
    """The reward by the rule of training. Turns are not known here, so a list is their sum."""
    from ..trajectory.row import reward_total, rewards_of

    try:
        return reward_total(rewards_of(result)), None
    except ContractError as error:
        return None, Failure(FailureKind.CONTRACT, str(error))


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


def rewrite(path: Path, records: list[dict[str, Any]]) -> None:
    """Whole or not at all."""
    new = path.with_name(path.name + ".new")
    with new.open("w", encoding="utf-8", errors="backslashreplace") as file:
        for record in records:
            write_line(file, record)
    os.replace(new, path)


def write_line(file: TextIO, record: dict[str, Any]) -> None:
    file.write(json.dumps(record, ensure_ascii=False) + "\n")
    file.flush()
