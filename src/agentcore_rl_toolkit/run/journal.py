"""The journal's writer: one thread, group commit, nothing acknowledged before it is durable.

``await write(frame)`` returns once the frame is in the file and synced. Frames that wait at the
same time share one write, one sync and one wake-up of their loop; the caller pays for an append to
a list. What is pending is bounded in bytes: above it, writers wait.

Room is taken ahead in steps, so that a sync writes frames and not the file's length as well: on a
busy disk that is the difference between one and ten milliseconds. What is taken and not written
reads as zeros, and is given back when a segment is done with.

When the disk is full or fails, every frame of that write fails with GatewayError, the file is cut
back to its last durable frame, and the next write tries again: a later one succeeds once there is
room. Segments rotate by size; one writer a name, held by a lock file.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import logging
import os
import threading
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from ..errors import ConfigError, GatewayError
from .segment import (
    FRAME_HEAD_BYTES,
    HEADER,
    Damage,
    number_of,
    place_of,
    read_frame,
    seal_frame,
    segment_path,
    segments,
    truncate_torn,
)

logger = logging.getLogger(__name__)

SEGMENT_BYTES = 64 << 20
MAX_PENDING_BYTES = 64 << 20
BATCH_BYTES = 8 << 20
"""One write at most, so that a burst does not wait as a whole for its last frame."""
AHEAD_BYTES = 4 << 20
"""Room that is taken at a time."""

_MAX_PARTS = 1024
"""What POSIX systems take in one gathered write."""
_sync = getattr(os, "fdatasync", os.fsync)
_allocate = getattr(os, "posix_fallocate", None)


class _Waiter(NamedTuple):
    """Somebody who waits: a future of a loop, or of a thread when there is no loop."""

    future: Future[list[int]] | asyncio.Future[list[int]]
    loop: asyncio.AbstractEventLoop | None


class _Entry(NamedTuple):
    frames: tuple[bytes, ...]
    """Empty for a flush; several are written together or not at all."""
    size: int
    waiter: _Waiter


_Told: TypeAlias = tuple[_Waiter, list[int]]


class Journal:
    def __init__(
        self,
        folder: Path,
        name: str = "gateway",
        *,
        fsync: bool = True,
        segment_bytes: int = SEGMENT_BYTES,
        max_pending_bytes: int = MAX_PENDING_BYTES,
    ) -> None:
        """Goes on in the last segment of ``name``, after cutting a torn tail off.

        ``fsync=False`` acknowledges once the kernel has the bytes: they survive the end of the
        process and not that of the machine.
        """
        self.folder, self.name, self.fsync = folder, name, fsync
        self.segment_bytes, self.max_pending_bytes = segment_bytes, max_pending_bytes
        self.damage: Damage | None = None
        """What was wrong with the last segment when it was opened."""
        self.last_error: str | None = None
        self.frames = self.syncs = self.failed_frames = 0
        self._fd = -1
        self._number = self._size = self._taken = 0
        self._renew = False
        self._cond = threading.Condition()
        self._pending: deque[_Entry] = deque()
        self._pending_bytes = 0
        self._room: list[_Waiter] = []
        self._closing = False
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock_fd = _lock(folder / f"{name}.lock")
        try:
            self._open_last()
        except BaseException:
            os.close(self._lock_fd)
            raise
        self._thread = threading.Thread(target=self._run, name=f"journal-{name}", daemon=True)
        self._thread.start()

    @property
    def pending_bytes(self) -> int:
        return self._pending_bytes

    # --- callers ------------------------------------------------------------------------------

    async def write(self, *frames: bytes) -> list[int]:
        """Returns their places when all are durable; waits while too much is pending.

        GatewayError when they are not written; then none of them is.
        """
        loop = asyncio.get_running_loop()
        size = sum(map(len, frames))
        while (room := self._full(loop, size)) is not None:
            await room
        done: asyncio.Future[list[int]] = loop.create_future()
        self._put(_Entry(frames, size, _Waiter(done, loop)))
        return await done

    def read(self, place: int) -> bytes:
        """The frame that was written to ``place``."""
        return read_frame(self.folder, self.name, place)

    def append(self, frame: bytes) -> Future[list[int]]:
        """For threads: resolves when durable; blocks while too much is pending."""
        done: Future[list[int]] = Future()
        with self._cond:
            while self._over(len(frame)) and not self._closing:
                self._cond.wait()
        self._put(_Entry((frame,), len(frame), _Waiter(done, None)))
        return done

    async def flush(self) -> None:
        """Returns once everything written so far is durable."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[list[int]] = loop.create_future()
        self._put(_Entry((), 0, _Waiter(done, loop)))
        await done

    async def aclose(self) -> None:
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Writes what is pending, then ends the thread. May be called twice."""
        with self._cond:
            self._closing = True
            self._cond.notify_all()
        self._thread.join()
        self._give_back()
        for fd in (self._fd, self._lock_fd):
            if fd >= 0:
                os.close(fd)
        self._fd = self._lock_fd = -1

    def _over(self, more: int) -> bool:
        # A frame larger than the bound still passes, alone.
        return self._pending_bytes > 0 and self._pending_bytes + more > self.max_pending_bytes

    def _full(self, loop: asyncio.AbstractEventLoop, more: int) -> asyncio.Future[list[int]] | None:
        with self._cond:
            if self._closing or not self._over(more):
                return None
            room: asyncio.Future[list[int]] = loop.create_future()
            self._room.append(_Waiter(room, loop))
            return room

    def _put(self, entry: _Entry) -> None:
        with self._cond:
            if self._closing:
                raise GatewayError(f"journal {self.name} is closed: the frame was not written")
            self._pending.append(entry)
            self._pending_bytes += entry.size
            self._cond.notify_all()

    # --- the writer thread --------------------------------------------------------------------

    def _run(self) -> None:
        while batch := self._next_batch():
            error = self._try_write([frame for entry in batch for frame in entry.frames])
            with self._cond:
                self._pending_bytes -= sum(entry.size for entry in batch)
                room, self._room = self._room, []
                self._cond.notify_all()
            _settle(self._told(batch), error)
            _settle([(waiter, []) for waiter in room], None)

    def _next_batch(self) -> list[_Entry]:
        """Empty when the journal is closed and all is written."""
        with self._cond:
            while not self._pending and not self._closing:
                self._cond.wait()
            batch: list[_Entry] = []
            size = 0
            while self._pending and size < BATCH_BYTES:
                batch.append(self._pending.popleft())
                size += batch[-1].size
            return batch

    def _told(self, batch: list[_Entry]) -> list[_Told]:
        """Everybody of a batch that was just written, with the places of their frames."""
        told: list[_Told] = []
        written = sum(FRAME_HEAD_BYTES + len(f) for entry in batch for f in entry.frames)
        at = place_of(self._number, self._size - written)
        for entry in batch:
            places = []
            for frame in entry.frames:
                places.append(at)
                at += FRAME_HEAD_BYTES + len(frame)
            told.append((entry.waiter, places))
        return told

    def _try_write(self, frames: list[bytes]) -> str | None:
        """None, or why none of the frames is in the journal."""
        if not frames:
            return None
        try:
            self._write(frames)
        except Exception as error:  # noqa: BLE001 - those who wait must hear of it
            self.failed_frames += len(frames)
            self.last_error = _explain(error, self.folder)
            logger.error(
                "journal=<%s> frames=<%d> | not written: %s", self.name, len(frames), error
            )
            self._cut_back()
            return self.last_error
        self.last_error = None
        self.frames += len(frames)
        self.syncs += 1
        return None

    def _write(self, frames: list[bytes]) -> None:
        if self._fd < 0 or self._renew or self._size >= self.segment_bytes:
            self._open_next()
        parts = [part for frame in frames for part in (seal_frame(frame), frame)]
        size = sum(map(len, parts))
        if self.fsync:
            self._take_room(self._size + size)
        _write_parts(self._fd, parts, self._size)
        if self.fsync:
            try:
                _sync(self._fd)
            except Exception:
                self._renew = True  # what the kernel did with these pages is not known
                raise
        self._size += size

    def _take_room(self, end: int) -> None:
        if end <= self._taken or _allocate is None:
            return
        try:
            _allocate(self._fd, self._size, end - self._size + AHEAD_BYTES)
        except OSError:
            self._taken = end  # not here, or no room: the write itself will tell
        else:
            self._taken = end + AHEAD_BYTES

    def _give_back(self) -> None:
        """Ends the file with its last frame."""
        if self._fd >= 0 and self._taken > self._size:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self._size)

    def _cut_back(self) -> None:
        """Takes a half-written batch away, so that no reader sees what was never acknowledged."""
        if self._fd < 0:
            return
        try:
            os.ftruncate(self._fd, self._size)
        except OSError as error:
            logger.error("journal=<%s> | could not cut back: %s", self.name, error)
            self._renew = True
        self._taken = self._size

    def _open_last(self) -> None:
        mine = segments(self.folder, self.name)
        if not mine:
            self._open_next()
            return
        try:
            self.damage = truncate_torn(mine[-1])
        except ConfigError as error:
            logger.warning("journal=<%s> | starts a new segment: %s", self.name, error)
            self._open_next()
            return
        if self.damage.torn is not None:
            torn = self.damage.torn
            logger.warning(
                "journal=<%s> bytes=<%d> | torn tail cut off", mine[-1].name, torn.end - torn.start
            )
        self._number = number_of(mine[-1])
        self._fd = os.open(mine[-1], os.O_WRONLY | os.O_CLOEXEC)
        self._taken = os.fstat(self._fd).st_size
        self._size = self.damage.end or self._taken
        if self._size == 0:
            _write_all(self._fd, HEADER, 0)
            self._size = len(HEADER)

    def _open_next(self) -> None:
        mine = segments(self.folder, self.name)
        number = number_of(mine[-1]) + 1 if mine else 1
        path = segment_path(self.folder, self.name, number)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        fd = os.open(path, flags, 0o600)
        try:
            _write_all(fd, HEADER, 0)
            if self.fsync:
                os.fsync(fd)
                _sync_folder(self.folder)
        except OSError:
            os.close(fd)
            path.unlink(missing_ok=True)
            raise
        if self._fd >= 0:
            self._give_back()
            os.close(self._fd)
        self._fd, self._size, self._renew = fd, len(HEADER), False
        self._number, self._taken = number, self._size


def _settle(told: Iterable[_Told], error: str | None) -> None:
    """Tells everybody, with one call into each loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Any]] = {}
    for (future, loop), places in told:
        if loop is not None:
            by_loop.setdefault(loop, []).append((future, places))
        else:
            _resolve([(future, places)], error)
    for loop, futures in by_loop.items():
        try:
            loop.call_soon_threadsafe(_resolve, futures, error)
        except RuntimeError:  # the loop is closed: nobody waits any more
            logger.debug("waiters=<%d> | loop closed before the journal answered", len(futures))


def _resolve(futures: list[Any], error: str | None) -> None:
    for future, places in futures:
        if future.done():
            continue
        if error is None:
            future.set_result(places)
        else:
            future.set_exception(GatewayError(error))


def _explain(error: Exception, folder: Path) -> str:
    said = (error.strerror if isinstance(error, OSError) else None) or str(error)
    why = f"the journal in {folder} could not be written: {said}"
    full = isinstance(error, OSError) and error.errno == errno.ENOSPC
    return f"{why}; free some space there, writing goes on by itself" if full else why


def _write_all(fd: int, block: bytes, at: int) -> None:
    view = memoryview(block)
    while view:
        written = os.pwrite(fd, view, at)
        view, at = view[written:], at + written


def _write_parts(fd: int, parts: list[bytes], at: int) -> None:
    """All of them without a copy; what a short write leaves is written as one block."""
    for first in range(0, len(parts), _MAX_PARTS):
        some = parts[first : first + _MAX_PARTS]
        written, size = os.pwritev(fd, some, at), sum(map(len, some))
        if written < size:
            _write_all(fd, b"".join(some)[written:], at + written)
        at += size


def _lock(path: Path) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise ConfigError(
            f"another process writes the journal behind {path}: stop it, or give this one a run "
            "folder of its own (--run-dir)"
        ) from None
    return fd


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
