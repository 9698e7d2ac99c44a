"""Reads a run folder, live or crashed, as a stream; what cannot be read is reported, not fatal.

Lines and frames are handed out one at a time. Turns are kept by session: ``sessions`` groups them,
``session`` reads one, ``live_sessions`` is what a gateway that restarts goes on with.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from ..errors import ContractError
from ..trajectory.graph import SessionGraph
from ..trajectory.turn import Requests, Turn
from .folder import RunFolder
from .frame import Delivery, Frame, SessionClosed, SessionOpened, SessionSealed, decode
from .segment import (
    FRAME_HEAD_BYTES,
    Damage,
    number_of,
    place_of,
    read_payloads,
    segments,
    writer_of,
)


@dataclass(frozen=True)
class Problem:
    """Something in a file that could not be read."""

    path: Path
    at: int
    """Byte offset."""
    message: str


class LineReader:
    """New whole lines of a growing file at each ``poll``; a half-written last one waits."""

    def __init__(self, path: Path, problems: list[Problem] | None = None) -> None:
        self.path = path
        self.offset = 0
        self.problems: list[Problem] = problems if problems is not None else []
        self.half = 0
        """Bytes after the last whole line, as of the last poll."""

    def poll(self) -> Iterator[dict[str, Any]]:
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return
        with file:
            file.seek(self.offset)
            self.half = 0
            for line in file:
                if not line.endswith(b"\n"):
                    self.half = len(line)
                    return
                start, self.offset = self.offset, self.offset + len(line)
                record = self._decode(line, start)
                if record is not None:
                    yield record

    def _decode(self, line: bytes, start: int) -> dict[str, Any] | None:
        if not line.strip():
            return None
        try:
            record = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self.problems.append(Problem(self.path, start, f"a line is not JSON: {error}"))
            return None
        if isinstance(record, dict):
            return record
        self.problems.append(Problem(self.path, start, "a line is not an object"))
        return None


@dataclass
class SessionRecord:
    """All frames of one session."""

    session_id: str
    opened: SessionOpened | None = None
    turns: list[Turn] = field(default_factory=list)
    request_bytes: int = 0
    """Of all turns, also when the requests themselves were left out."""
    deliveries: list[Delivery] = field(default_factory=list)
    sealed: SessionSealed | None = None
    closed: SessionClosed | None = None
    places: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Turn to the writer of its journal and its place there, where a gateway goes on with it."""
    requests: Requests | None = field(default_factory=Requests)
    """Puts them together; None where they are left out."""

    def add(self, frame: Frame) -> None:
        if isinstance(frame, Turn):
            self.request_bytes += frame.request_shared + len(frame.request)
            if self.requests is None:
                frame = msgspec.structs.replace(frame, request=b"", request_shared=0)
            else:
                frame = self.requests.whole(frame)
            self.turns.append(frame)
        elif isinstance(frame, Delivery):
            self.deliveries.append(frame)
        elif isinstance(frame, SessionOpened):
            self.opened = frame
        elif isinstance(frame, SessionSealed):
            self.sealed = frame
        else:
            self.closed = frame

    def graph(self, problems: list[Problem] | None = None) -> SessionGraph:
        """The session as it was. A turn that contradicts itself, or whose parent was lost to
        damage, is left out and told."""
        graph = SessionGraph(
            self.session_id,
            rollout_id=self.opened.rollout_id if self.opened else None,
            group_id=self.opened.group_id if self.opened else None,
        )
        known: set[str] = set()
        for turn in sorted(self.turns, key=lambda turn: turn.seq):
            if turn.turn_id in known:
                continue
            if turn.parent is not None and turn.parent not in known:
                message = f"turn {turn.turn_id} lost its parent {turn.parent}"
                if problems is not None:
                    problems.append(Problem(Path(), 0, message))
                continue
            try:
                graph.commit(turn.check())
            except ContractError as error:
                if problems is not None:
                    problems.append(Problem(Path(), 0, f"turn {turn.turn_id}: {error}"))
                continue
            known.add(turn.turn_id)
        for delivery in self.deliveries:
            if delivery.turn_id in known:
                graph.mark_delivered(delivery.turn_id, delivery.delivered)
        return graph


class RunReader:
    def __init__(self, path: Path | str) -> None:
        self.folder = RunFolder(path)
        self.problems: list[Problem] = []
        """Everything met so far that could not be read."""

    def config(self) -> str | None:
        """The text of config.yaml; None when the run wrote none."""
        try:
            return self.folder.config.read_text()
        except FileNotFoundError:
            return None

    def rollouts(self) -> Iterator[dict[str, Any]]:
        return self._lines(self.folder.rollouts)

    def metrics(self) -> Iterator[dict[str, Any]]:
        return self._lines(self.folder.metrics)

    def events(self) -> Iterator[dict[str, Any]]:
        return self._lines(self.folder.events)

    def frames(self) -> Iterator[Frame]:
        for path in segments(self.folder.turns):
            yield from read_frames(path, self.problems)

    def sessions(self) -> dict[str, SessionRecord]:
        """Every session with its turns: the whole journal in memory."""
        return group(self.frames())

    def session(self, session_id: str) -> SessionRecord | None:
        mine = (frame for frame in self.frames() if frame.session_id == session_id)
        return group(mine).get(session_id)

    def _lines(self, path: Path) -> Iterator[dict[str, Any]]:
        reader = LineReader(path, self.problems)
        yield from reader.poll()
        if reader.half:
            message = f"the last line is half written ({reader.half} bytes)"
            self.problems.append(Problem(path, reader.offset, message))


def group(frames: Iterable[Frame]) -> dict[str, SessionRecord]:
    """By session id. One that was opened again after its end is another session, which has the
    name from then on; the one before it is found among the values."""
    out: dict[str, SessionRecord] = {}
    for frame in frames:
        record = out.get(frame.session_id)
        if isinstance(frame, SessionOpened) and record is not None and record.closed is not None:
            out[f"{frame.session_id} until {record.closed.at}"] = record
            record = None
        if record is None:
            record = out[frame.session_id] = SessionRecord(frame.session_id)
        record.add(frame)
    return out


def live_sessions(
    folder: Path,
    name: str | None = None,
    problems: list[Problem] | None = None,
    *,
    requests: bool = True,
) -> dict[str, SessionRecord]:
    """Sessions that a journal opened and did not close; closed ones are let go of on the way.

    ``requests=False`` leaves out the bodies of requests, each of which repeats its whole history:
    no graph needs them.
    """
    out: dict[str, SessionRecord] = {}
    for path in segments(folder, name):
        writer = writer_of(path)
        for place, frame in read_placed(path, problems):
            if isinstance(frame, SessionClosed):
                out.pop(frame.session_id, None)
            elif frame.session_id in out:
                record = out[frame.session_id]
                record.add(frame)
                if isinstance(frame, Turn):
                    record.places[frame.turn_id] = (writer, place)
            elif isinstance(frame, SessionOpened):
                record = SessionRecord(frame.session_id, opened=frame)
                record.requests = record.requests if requests else None
                out[frame.session_id] = record
    return out


def read_frames(path: Path, problems: list[Problem] | None = None) -> Iterator[Frame]:
    """Frames of one segment; damage and unknown kinds are reported when it is read to the end."""
    return (frame for _, frame in read_placed(path, problems))


def read_placed(path: Path, problems: list[Problem] | None = None) -> Iterator[tuple[int, Frame]]:
    """The same, each with its place in its writer's journal."""
    damage = Damage(path)
    told = problems if problems is not None else []
    number = number_of(path)
    for payload in read_payloads(path, damage):
        place = place_of(number, damage.end - len(payload) - FRAME_HEAD_BYTES)
        try:
            yield place, decode(payload)
        except (msgspec.ValidationError, msgspec.DecodeError) as error:
            told.append(Problem(path, damage.end, f"a frame is not understood: {error}"))
    for gap in [*damage.gaps, *([damage.torn] if damage.torn else [])]:
        told.append(Problem(path, gap.start, f"{gap.reason}, up to byte {gap.end}"))
