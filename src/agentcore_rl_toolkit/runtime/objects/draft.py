"""Content on its way into the store, with the digests of it.

Held in memory while small, else in a temporary file of the store's own folder. A draft is not an
object: nobody sees it until the store renames it into place, and a draft that is not sealed is
discarded, also by the next start of the store. One caller at a time; ``write`` and ``seal`` may
run in a thread.

File layout of a sealed draft, and so of every object: the content, a JSON record of everything
else, and eight bytes that give the record's length. One file, so that content and metadata become
visible together.
"""

from __future__ import annotations

import base64
import hashlib
import os
import zlib
from collections.abc import Callable, Iterable
from typing import Protocol

SPILL_BYTES = 1 << 20
"""Content of at least this size goes to disk while it arrives."""
MAGIC = b"ART1"
_TAIL_BYTES = 1024
"""Enough for the record of nearly every object."""


class Hasher(Protocol):
    def update(self, data: bytes, /) -> None: ...
    def digest(self) -> bytes: ...


class Crc32:
    def __init__(self) -> None:
        self._value = 0

    def update(self, data: bytes, /) -> None:
        self._value = zlib.crc32(data, self._value)

    def digest(self) -> bytes:
        return self._value.to_bytes(4, "big")


ALGORITHMS: dict[str, tuple[Callable[[], Hasher], int]] = {
    "crc32": (Crc32, 4),
    "sha1": (hashlib.sha1, 20),
    "sha256": (hashlib.sha256, 32),
}
"""Checksums that the standard library computes, with the length of their digest."""
UNSUPPORTED_ALGORITHMS = ("crc32c", "crc64nvme")


class Draft:
    def __init__(self, path: str, algorithms: Iterable[str] = (), spill: int = SPILL_BYTES) -> None:
        self.size = 0
        self._spill = spill
        self._path = path
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._hashers = {name: ALGORITHMS[name][0]() for name in algorithms}
        self._chunks: list[bytes] = []
        self._file: int | None = None

    @property
    def md5(self) -> bytes:
        return self._md5.digest()

    @property
    def content(self) -> bytes | None:
        """All of it, unless it went to disk already."""
        return b"".join(self._chunks) if self._file is None else None

    def checksum(self, algorithm: str) -> bytes:
        return self._hashers[algorithm].digest()

    def checksum_text(self, algorithm: str) -> str:
        """As S3 writes it."""
        return base64.b64encode(self.checksum(algorithm)).decode()

    def write(self, data: bytes) -> None:
        self._md5.update(data)
        for hasher in self._hashers.values():
            hasher.update(data)
        self.size += len(data)
        if self._file is None and self.size < self._spill:
            self._chunks.append(data)
            return
        if self._file is None:
            self._open()
        self._write_all([data])

    def seal(self, record: bytes, sync: bool = False) -> str:
        """Completes the file; the caller renames it, or discards the draft."""
        held, self._chunks = self._chunks, []
        if self._file is None:
            self._open()
        assert self._file is not None
        self._write_all([*held, record, MAGIC + len(record).to_bytes(4, "big")])
        if sync:
            os.fsync(self._file)
        os.close(self._file)
        self._file = -1
        return self._path

    def discard(self) -> None:
        """Safe at any time, also after the file was renamed."""
        if self._file is None:
            return
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        try:
            os.unlink(self._path)
        except FileNotFoundError:
            pass

    def _open(self) -> None:
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        if self._chunks:
            self._write_all(self._chunks)
            self._chunks = []

    def _write_all(self, parts: list[bytes]) -> None:
        assert self._file is not None
        view = memoryview(b"".join(parts))
        while view:
            view = view[os.write(self._file, view) :]


def read_record(file: int) -> tuple[bytes, int]:
    """(the JSON record, the size of the content) of an object file; empty when it is not one."""
    size = os.fstat(file).st_size
    tail = os.pread(file, _TAIL_BYTES, max(0, size - _TAIL_BYTES))
    length = int.from_bytes(tail[-4:], "big")
    content_size = size - length - 8
    if tail[-8:-4] != MAGIC or content_size < 0:
        return b"", 0
    if length + 8 > len(tail):
        return os.pread(file, length, content_size), content_size
    return tail[-8 - length : -8], content_size
