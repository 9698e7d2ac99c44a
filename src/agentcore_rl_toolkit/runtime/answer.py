"""The answer to one invocation, kept so that a repeated request gets it instead of a second run.

boto3 re-sends a call that was silent for its read timeout (60 s by default), with the same
``amz-sdk-invocation-id``. A rollout must not run twice because of that. So the first request with
an id makes the answer; every later one with the same id reads it from here, while it is made or a
while after. Refusals made before the agent was reached are not kept: repeating those is the point
of a retry. Memory is bounded per answer and in total.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Hashable
from dataclasses import dataclass, field

from . import wire

KEEP_S = 180.0
KEEP_BYTES = 1024 * 1024
"""Of one answer, while nobody else waits for it."""
KEEP_TOTAL_BYTES = 64 * 1024 * 1024
MAX_ANSWER_BYTES = 100_000_000


@dataclass(eq=False)
class Answer:
    reached: bool = False
    """The agent was called and answered: running it again would be a second call."""
    status: int = 0
    """Of the head, once there is one."""
    headers: dict[str, str] = field(default_factory=dict)
    chunks: list[bytes] = field(default_factory=list)
    size: int = 0
    done: bool = False
    error: wire.WireError | None = None
    too_large: bool = False
    readers: int = 0
    finished: float = 0.0
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def held(self) -> int:
        return 0 if self.too_large else self.size

    def head(self, status: int, headers: dict[str, str]) -> None:
        self.reached, self.status, self.headers = True, status, headers
        self._wake()

    def feed(self, chunk: bytes) -> None:
        if self.too_large:
            return
        self.size += len(chunk)
        if self.size > (MAX_ANSWER_BYTES if self.readers else KEEP_BYTES):
            self.too_large = True
            self.chunks.clear()
        else:
            self.chunks.append(chunk)
        if self.readers:
            self._wake()

    def finish(self, error: wire.WireError | None = None) -> None:
        self.done, self.error, self.finished = True, error, time.monotonic()
        self._wake()

    async def until_head(self) -> None:
        """Raises what the first request was refused with."""
        while not self.status and not self.done:
            await self._changed.wait()
        if self.error is not None:
            raise self.error
        if self.too_large:
            raise wire.conflict(
                "This invocation was answered already, and the answer is too large to repeat"
            )

    async def body(self) -> AsyncIterator[bytes]:
        """ConnectionError when it cannot be had whole."""
        sent = 0
        while True:
            while sent < len(self.chunks):
                sent += 1
                yield self.chunks[sent - 1]
            if self.error is not None or self.too_large:
                raise ConnectionError("the answer broke off")
            if self.done:
                return
            await self._changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class Answers:
    """By session and invocation id."""

    def __init__(self) -> None:
        self._open: dict[Hashable, Answer] = {}
        self._kept: OrderedDict[Hashable, Answer] = OrderedDict()
        self._bytes = 0

    def find(self, key: Hashable) -> Answer | None:
        return self._open.get(key) or self._kept.get(key)

    def open(self, key: Hashable) -> Answer:
        answer = self._open[key] = Answer()
        return answer

    def drop(self, key: Hashable) -> None:
        self._open.pop(key, None)

    def keep(self, key: Hashable) -> None:
        """It is complete: from now on it ages, and goes by age or when room is short."""
        answer = self._kept[key] = self._open.pop(key)
        self._bytes += answer.held
        limit = time.monotonic() - KEEP_S
        while self._kept:
            old = next(iter(self._kept.values()))
            if old.finished > limit and self._bytes <= KEEP_TOTAL_BYTES:
                break
            self._kept.popitem(last=False)
            self._bytes -= old.held
