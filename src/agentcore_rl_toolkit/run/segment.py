"""One file of a journal: its bytes, and how they are read when they are not whole.

    file   = header frame*
    header = "ARTJRNL" version(u8)
    frame  = length(u32) crc32(u32) payload      little-endian; payload is msgpack, never empty

A frame counts only when its checksum does. Reading never fails on damage: a torn tail ends the file
and is reported, a damaged frame in the middle is stepped over, by its length when that leads to a
sound frame and else by looking for the next one. A file that is still being written reads the same
way, up to its last whole frame: what its writer took ahead, or did not give back, is zeros.
"""

from __future__ import annotations

import os
import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NamedTuple

from ..errors import ConfigError

MAGIC = b"ARTJRNL"
VERSION = 1
HEADER = MAGIC + bytes([VERSION])
MAX_FRAME_BYTES = 1 << 30
SUFFIX = ".journal"

_FRAME = struct.Struct("<II")
FRAME_HEAD_BYTES = _FRAME.size
_OFFSET_BITS = 40
_BLOCK_BYTES = 64 << 10
_PAYLOAD = re.compile(rb"(?:[\x81-\x8f]|\xde[\x00-\xff]{2})\xa4kind[\xa1-\xbf]")
"""How every payload begins: a map whose first key is the kind of frame."""


class Gap(NamedTuple):
    """Bytes that are no frame."""

    start: int
    end: int
    reason: str


@dataclass
class Damage:
    """What a reader could not read. ``end`` is where the last sound frame ends."""

    path: Path
    gaps: list[Gap] = field(default_factory=list)
    torn: Gap | None = None
    end: int = 0


def seal_frame(payload: bytes) -> bytes:
    """Length and checksum, to be written before the payload."""
    return _FRAME.pack(len(payload), zlib.crc32(payload))


def place_of(number: int, offset: int) -> int:
    """Where a frame is in one writer's journal, as one number: segment and offset in it."""
    return number << _OFFSET_BITS | offset


def read_frame(folder: Path, name: str, place: int) -> bytes:
    """Payload of the frame at a place that ``Journal.write`` gave; OSError when it is not there."""
    number, offset = place >> _OFFSET_BITS, place & ((1 << _OFFSET_BITS) - 1)
    path = segment_path(folder, name, number)
    with path.open("rb", buffering=0) as file:
        head = os.pread(file.fileno(), _FRAME.size, offset)
        length, checksum = _FRAME.unpack(head) if len(head) == _FRAME.size else (0, 0)
        payload = os.pread(file.fileno(), length, offset + _FRAME.size)
    if not payload or len(payload) != length or zlib.crc32(payload) != checksum:
        raise OSError(f"{path} has no sound frame at byte {offset}")
    return payload


def check_header(head: bytes, path: Path) -> None:
    """ConfigError when it is another kind of file or of a later version."""
    if head[: len(MAGIC)] != MAGIC:
        raise ConfigError(f"{path} is not a journal of this toolkit")
    if head[len(MAGIC)] != VERSION:
        raise ConfigError(
            f"{path} has journal version {head[len(MAGIC)]}, this toolkit reads {VERSION}: "
            "read it with the version that wrote it"
        )


def read_payloads(path: Path, damage: Damage | None = None, start: int = 0) -> Iterator[bytes]:
    """Payloads of the sound frames after ``start``; fills ``damage`` on the way."""
    damage = damage if damage is not None else Damage(path)
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        damage.end = max(start, min(len(HEADER), size))
        if size < len(HEADER):
            damage.torn = Gap(0, size, "the header is not whole") if size else None
            damage.end = 0
            return
        check_header(file.read(len(HEADER)), path)
        at = damage.end
        while at < size:
            payload = _frame_at(file, at, size)
            if payload is None:
                if _is_blank(file, at):
                    return
                at = _step_over(file, at, size, damage)
                continue
            at += _FRAME.size + len(payload)
            damage.end = at
            yield payload


def survey(path: Path) -> Damage:
    """Reads a whole segment for what is wrong with it."""
    damage = Damage(path)
    for _ in read_payloads(path, damage):
        pass
    return damage


def truncate_torn(path: Path) -> Damage:
    """Cuts a torn tail off, so that frames can follow; other damage is left as it is."""
    damage = survey(path)
    if damage.torn is not None:
        with path.open("r+b") as file:
            file.truncate(damage.end)
            if damage.end == 0:
                file.write(HEADER)
            file.flush()
            os.fsync(file.fileno())
    return damage


def _frame_at(file: BinaryIO, at: int, size: int) -> bytes | None:
    file.seek(at)
    head = file.read(_FRAME.size)
    if len(head) < _FRAME.size:
        return None
    length, checksum = _FRAME.unpack(head)
    # A block of zeros, as a crashed machine may leave, would pass as an empty frame.
    if not 0 < length <= min(MAX_FRAME_BYTES, size - at - _FRAME.size):
        return None
    payload = file.read(length)
    return payload if len(payload) == length and zlib.crc32(payload) == checksum else None


def _is_blank(file: BinaryIO, at: int) -> bool:
    """Whether nothing but zeros follows."""
    file.seek(at)
    while block := file.read(_BLOCK_BYTES):
        if block.strip(b"\0"):
            return False
    return True


def _step_over(file: BinaryIO, at: int, size: int, damage: Damage) -> int:
    """Where reading goes on after damage at ``at``; notes it as a gap or as the torn tail."""
    found = _next_by_length(file, at, size) or _next_by_search(file, at, size)
    if found is None:
        damage.torn = Gap(at, size, "the last frame is not whole")
        return size
    damage.gaps.append(Gap(at, found, "a frame is damaged"))
    return found


def _next_by_length(file: BinaryIO, at: int, size: int) -> int | None:
    file.seek(at)
    head = file.read(_FRAME.size)
    if len(head) < _FRAME.size:
        return None
    after: int = at + _FRAME.size + int(_FRAME.unpack(head)[0])
    return after if after < size and _frame_at(file, after, size) is not None else None


def _next_by_search(file: BinaryIO, at: int, size: int) -> int | None:
    file.seek(at)
    rest = file.read(size - at)
    for match in _PAYLOAD.finditer(rest, _FRAME.size + 1):
        candidate = at + match.start() - _FRAME.size
        if _frame_at(file, candidate, size) is not None:
            return candidate
    return None


def segments(folder: Path, name: str | None = None) -> list[Path]:
    """Segments in the order in which they were written, of one writer or of all."""
    found = [path for path in folder.glob(f"*{SUFFIX}") if name in (None, writer_of(path))]
    return sorted(found, key=lambda path: (writer_of(path), path.name))


def writer_of(path: Path) -> str:
    return path.name.removesuffix(SUFFIX).rpartition("-")[0]


def number_of(path: Path) -> int:
    digits = path.name.removesuffix(SUFFIX).rpartition("-")[2]
    return int(digits) if digits.isdigit() else 0


def segment_path(folder: Path, name: str, number: int) -> Path:
    return folder / f"{name}-{number:06d}{SUFFIX}"
