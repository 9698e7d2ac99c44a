"""Large runs without holding them: heads of rollouts in memory, the rest by place in the files.

``RolloutIndex`` reads ``rollouts.jsonl`` once and then only what is new; a head holds what lists
and sums need, ``record`` reads a whole line again. ``find_session`` reads the turns of one session
and looks at no more than the heads of other frames; when the caller knows from when to when the
session ran, segments of other times are not opened. Damage is stepped over and told, as in
``run.reader``.
"""

from __future__ import annotations

import mmap
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ..errors import ConfigError
from ..trajectory.turn import Turn
from .folder import RunFolder
from .frame import Frame, decode
from .reader import Problem, SessionRecord, read_frames
from .segment import FRAME_HEAD_BYTES, HEADER, read_payloads, segments, writer_of

HEAD_BYTES = 512
"""Of a payload, in which its session id stands: kind and turn id come before it."""
ERROR_CHARS = 300
"""Of a failure's message that are kept in memory; ``record`` has all of it."""
SLACK_S = 5.0
"""Between the clocks of whoever wrote the rollout and whoever wrote the turns."""
_HEAD = struct.Struct("<II")


class RolloutHead(msgspec.Struct, gc=False):
    """What every list and sum needs of a line; unknown keys are passed over."""

    rollout_id: str = ""
    group_id: str = ""
    session_id: str = ""
    at: float = 0.0
    phase: str = ""
    step: int = 0
    task: int = 0
    sample: int = 0
    reward: float | None = None
    failure: str | None = None
    error: str | None = None
    attempts: int = 1
    rows: int = 0
    turns: int = 0
    tokens: int = 0
    timings: dict[str, float] = {}
    offset: int = 0
    """Of its line in the file; set by the index."""


class RolloutIndex:
    """``poll`` takes in what is new; never goes back."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.heads: list[RolloutHead] = []
        self.by_group: dict[str, list[int]] = {}
        self.problems: list[Problem] = []
        self.half = 0
        """Bytes after the last whole line, as of the last poll."""
        self._offset = 0
        self._by_id: dict[str, int] = {}
        self._decoder = msgspec.json.Decoder(RolloutHead)
        self._names: dict[str, str] = {}

    def poll(self) -> int:
        """How many rollouts are new."""
        before = len(self.heads)
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return 0
        with file:
            file.seek(self._offset)
            self.half = 0
            for line in file:
                if not line.endswith(b"\n"):
                    self.half = len(line)
                    break
                self._take(line)
                self._offset += len(line)
        return len(self.heads) - before

    def _take(self, line: bytes) -> None:
        if line == b"\n":
            return
        try:
            head = self._decoder.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            problem = Problem(self.path, self._offset, f"a line is no rollout: {error}")
            self.problems.append(problem)
            return
        head.offset = self._offset
        if head.error is not None and len(head.error) > ERROR_CHARS:
            head.error = head.error[:ERROR_CHARS] + "\u2026"
        # a name is met many times and kept once
        head.phase = self._names.setdefault(head.phase, head.phase)
        head.group_id = self._names.setdefault(head.group_id, head.group_id)
        place = len(self.heads)
        self.heads.append(head)
        self._by_id[head.rollout_id] = place
        self.by_group.setdefault(head.group_id, []).append(place)

    def find(self, name: str) -> int | None:
        """Place of a rollout by its id, the last one where a resumed run repeated it."""
        return self._by_id.get(name)

    def starting_with(self, beginning: str) -> list[str]:
        return [name for name in self._by_id if name.startswith(beginning)]

    def record(self, place: int) -> dict[str, Any]:
        """The whole line; empty when a part that the head does not hold is damaged."""
        with self.path.open("rb") as file:
            file.seek(self.heads[place].offset)
            line = file.readline()
        try:
            record = msgspec.json.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return {}
        assert isinstance(record, dict)
        return record


# --- one session of a journal -----------------------------------------------------------------


class _Segment(NamedTuple):
    path: Path
    begin: float
    """Commit time of its first frame."""
    end: float
    """Commit time of the first frame of the next one of the same writer."""


def find_session(
    folder: RunFolder,
    session_id: str,
    *,
    since: float | None = None,
    until: float | None = None,
    problems: list[Problem] | None = None,
) -> SessionRecord | None:
    """All frames of a session. ``since`` and ``until`` (unix seconds) say where to look first."""
    told = problems if problems is not None else []
    found = _segments(folder.turns, told)
    near = [s for s in found if _overlaps(s, since, until)]
    for chosen in (near, found):
        record = SessionRecord(session_id)
        for segment in chosen:
            for frame in _frames_of(segment.path, session_id, told):
                record.add(frame)
        if record.turns or (record.opened is not None and chosen is found):
            return record
    return None


def _overlaps(segment: _Segment, since: float | None, until: float | None) -> bool:
    early = since is not None and segment.end < since - SLACK_S
    late = until is not None and segment.begin > until + SLACK_S
    return not early and not late


def _segments(folder: Path, told: list[Problem]) -> list[_Segment]:
    if not folder.is_dir():
        return []
    begins: list[tuple[Path, float]] = []
    for path in segments(folder):
        try:
            begins.append((path, _begin(path)))
        except ConfigError as error:
            told.append(Problem(path, 0, str(error)))
    out = []
    for i, (path, begin) in enumerate(begins):
        later = begins[i + 1] if i + 1 < len(begins) else None
        same = later is not None and writer_of(later[0]) == writer_of(path)
        out.append(_Segment(path, begin, later[1] if later and same else float("inf")))
    return out


def _begin(path: Path) -> float:
    for payload in read_payloads(path):
        try:
            frame = decode(payload)
        except msgspec.MsgspecError:
            continue
        return frame.started + (frame.total_s or 0.0) if isinstance(frame, Turn) else frame.at
    return float("-inf")


def _frames_of(path: Path, session_id: str, told: list[Problem]) -> Iterator[Frame]:
    """By hops from head to head; from the first damage on, by the careful reader."""
    if path.stat().st_size <= len(HEADER):
        return
    needle = session_id.encode()
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if data.find(needle) < 0:
            return
        at, size = len(HEADER), len(data)
        payloads: list[bytes] = []
        while at < size:
            start = at + FRAME_HEAD_BYTES
            length, checksum = _HEAD.unpack_from(data, at) if start <= size else (0, 0)
            if not length and not data[at:].strip(b"\0"):
                at = size  # room that the writer took ahead
                break
            if not 0 < length <= size - start:
                break
            if data.find(needle, start, start + min(length, HEAD_BYTES)) >= 0:
                payloads.append(data[start : start + length])
                if zlib.crc32(payloads[-1]) != checksum:
                    break
            at = start + length
    if at != size:
        yield from (f for f in read_frames(path, told) if f.session_id == session_id)
        return
    for payload in payloads:
        try:
            frame = decode(payload)
        except msgspec.MsgspecError as error:
            told.append(Problem(path, 0, f"a frame is not understood: {error}"))
            continue
        if frame.session_id == session_id:
            yield frame
