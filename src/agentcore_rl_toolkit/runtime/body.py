"""The body of an invocation on its way to the agent: never more of it in memory than a piece.

A small body is read and sent in one piece. A large one is passed on as it arrives; only when the
runtime has to know its ``_rollout`` block first (that names what the session may reach) it is laid
down in a nameless file before.
"""

from __future__ import annotations

import asyncio
import mmap
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO

import aiohttp
from aiohttp import web

from . import wire

MAX_BODY_BYTES = 100_000_000
WHOLE_BYTES = 256 * 1024
"""Up to here a body is sent in one piece; above, as it arrives."""
PIECE_BYTES = 1024 * 1024

Body = bytes | AsyncIterator[bytes]


async def read(request: web.Request, most: int) -> Body:
    held = request.get(wire.BODY)
    if held is not None:  # the whole body was signed, so that it had to be read before
        return held if len(held) <= WHOLE_BYTES else in_pieces(held)
    length = request.content_length
    if length is None or length > WHOLE_BYTES:
        return bounded(request.content, most)
    return await request.read()


async def in_pieces(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), WHOLE_BYTES):
        yield body[start : start + WHOLE_BYTES]


async def bounded(content: aiohttp.StreamReader, most: int) -> AsyncIterator[bytes]:
    size = 0
    async for chunk in content.iter_any():
        size += len(chunk)
        if size > most:
            raise too_large(most)
        yield chunk


def too_large(most: int) -> wire.WireError:
    return wire.invalid(f"payload is larger than {most} bytes", "payload")


class Spool:
    """A large body on disk: looked at once, then sent. Closed by whoever made it."""

    def __init__(self, folder: Path, wanted: bytes) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - see close
        self._wanted, self._found, self._end = wanted, False, b""

    async def fill(self, body: AsyncIterator[bytes]) -> None:
        waiting: list[bytes] = []
        size = 0
        async for chunk in body:
            waiting.append(chunk)
            size += len(chunk)
            if size >= PIECE_BYTES:
                await asyncio.to_thread(self._write, b"".join(waiting))
                waiting, size = [], 0
        await asyncio.to_thread(self._write, b"".join(waiting))
        await asyncio.to_thread(self._file.flush)

    def _write(self, piece: bytes) -> None:
        self._file.write(piece)
        if not self._found:  # it may lie across two pieces
            seen = self._end + piece
            self._found, self._end = self._wanted in seen, seen[-len(self._wanted) :]

    def view(self) -> mmap.mmap | None:
        """Its bytes as the kernel pages them in; None when what is wanted is not among them."""
        if not self._found:
            return None
        return mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)

    async def pieces(self) -> AsyncIterator[bytes]:
        self._file.seek(0)
        while piece := await asyncio.to_thread(self._file.read, WHOLE_BYTES):
            yield piece

    def close(self) -> None:
        self._file.close()
