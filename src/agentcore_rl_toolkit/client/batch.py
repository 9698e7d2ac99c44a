"""Many rollouts at once, in the order in which they end.

A batch owns its slots and its unfinished futures. Submitting never waits for collecting, nor the
other way round: a freed slot is filled by whoever notices, except that an iterator which is not a
sequence is only ever advanced by the consumer (its thread, or its event loop). A slot is free
once the session is stopped, so that ``max_concurrent_sessions`` counts sessions, not promises.

One rollout's failure is an item. What would recur on every rollout (ContractError) ends the
batch. However it is left, every session that it started is stopped, and the stops are waited for,
for a bounded time.
"""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import dataclasses
import functools
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError, ContractError
from ..rollout import Failure, FailureKind
from .future import RolloutFuture, wait_for
from .report import Progress, Tally
from .store import Looks

if TYPE_CHECKING:
    from .client import RolloutClient

logger = logging.getLogger(__name__)

ABORT_S = 10.0
"""How long leaving a batch early waits for its sessions to be stopped, beyond what the rate
limit makes necessary."""
SLOT_S = 2.0
"""A slot is not held for longer than this by a slow stop."""


@dataclasses.dataclass
class BatchItem:
    success: bool
    result: dict[str, Any] | None = None
    """Kept for a failed agent too: it holds the traceback."""
    error: str | None = None
    index: int | None = None
    """Position in the payloads."""
    elapsed: float | None = None
    """Seconds from submission to end."""
    failure: Failure | None = dataclasses.field(default=None, kw_only=True)


@dataclasses.dataclass(frozen=True)
class Terms:
    max_concurrent: int
    timeout_s: float | None
    looks: Looks
    log_every_s: float | None
    retry: int
    progress: Callable[[Progress], None] | None
    on_start: Callable[[int, RolloutFuture], None] | None = None

    def __post_init__(self) -> None:
        for name, value, least in (
            ("max_concurrent_sessions", self.max_concurrent, 1),
            ("retry", self.retry, 0),
        ):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ConfigError(f"{name} must be an integer of at least {least}, got {value!r}")
        if self.timeout_s is not None and not self.timeout_s > 0:
            raise ConfigError(
                f"timeout must be above 0 seconds, or None to wait for ever, got {self.timeout_s!r}"
            )


class Batch:
    def __init__(
        self, client: RolloutClient, payloads: Iterable[Mapping[str, Any]], terms: Terms
    ) -> None:
        self._client, self._terms = client, terms
        self._payloads = iter(payloads)
        self._anywhere = isinstance(payloads, Sequence)
        self._count = 0
        self._slots = 0
        self._more = True
        self._open: dict[int, RolloutFuture] = {}
        self._ready: collections.deque[BatchItem | Exception] = collections.deque()
        self._lock = threading.Lock()
        self._pulling = threading.RLock()
        self._tally = Tally()
        self._logged = time.monotonic()
        self._wake: Callable[[], None] = lambda: None
        self._refill: Callable[[], None] = lambda: None

    # --- consuming ----------------------------------------------------------------------------

    def run(self) -> Iterator[BatchItem]:
        bell = threading.Event()
        self._wake = bell.set
        self._refill = self._fill if self._anywhere else bell.set
        try:
            while True:
                bell.clear()
                self._fill()
                entry = self._next()
                if entry is not None:
                    yield entry
                elif self._finished():
                    return
                else:
                    bell.wait(self._log())
        finally:
            if cleared := self._abort():
                concurrent.futures.wait(cleared, self._patience(len(cleared)))

    async def run_async(self) -> AsyncIterator[BatchItem]:
        loop, bell = asyncio.get_running_loop(), asyncio.Event()
        self._wake = lambda: _soon(loop, bell.set)
        self._refill = lambda: _soon(loop, self._fill)
        try:
            while True:
                bell.clear()
                self._fill()
                entry = self._next()
                if entry is not None:
                    yield entry
                elif self._finished():
                    return
                else:
                    await _ring(bell, self._log())
        finally:
            left = self._abort()
            until = time.monotonic() + self._patience(len(left))
            for cleared in left:
                await wait_for(cleared, max(0.0, until - time.monotonic()))

    def _next(self) -> BatchItem | None:
        if not self._ready:
            return None
        entry = self._ready.popleft()
        if isinstance(entry, Exception):
            raise entry
        if self._terms.progress is not None:
            self._terms.progress(self._tally.progress())
        return entry

    def _finished(self) -> bool:
        with self._lock:
            return not self._more and not self._open and not self._ready

    def _log(self) -> float | None:
        """Says where the batch stands when it is time; returns how long until the next time."""
        every = self._terms.log_every_s
        if not every or every <= 0:
            return None
        now = time.monotonic()
        if now - self._logged >= every:
            self._logged = now
            at = self._tally.progress()
            logger.info(
                "done=<%s> failed=<%s> running=<%s> elapsed=<%.0f s> | batch under way",
                at.done,
                at.failed,
                at.running,
                at.elapsed,
            )
            if self._terms.progress is not None:
                self._terms.progress(at)
        return self._logged + every - now

    # --- submitting ---------------------------------------------------------------------------

    def _fill(self) -> None:
        with self._pulling:
            while self._take_slot():
                try:
                    self._client._check_open()
                    payload = next(self._payloads)
                except StopIteration:
                    self._end_of_payloads()
                    return
                except Exception as error:  # noqa: BLE001 - the caller's iterator; raised to it
                    self._end_of_payloads(error)
                    return
                index, self._count = self._count, self._count + 1
                self._submit(index, payload)

    def _take_slot(self) -> bool:
        with self._lock:
            free = self._more and self._slots < self._terms.max_concurrent
            self._slots += free
            return free

    def _end_of_payloads(self, error: Exception | None = None) -> None:
        with self._lock:
            self._more = False
            self._slots -= 1
        if error is not None:
            self._ready.append(error)
        self._wake()

    def _submit(self, index: int, payload: Mapping[str, Any]) -> None:
        self._tally.submit()
        terms = self._terms
        tell = terms.on_start
        try:
            future = self._client._begin(
                payload,
                retry=terms.retry,
                timeout_s=terms.timeout_s,
                looks=terms.looks,
                on_start=None if tell is None else functools.partial(tell, index),
            )
        except ConfigError as error:
            failure = Failure(FailureKind.CONTRACT, str(error))
            self._client._refused(failure)
            self._tally.settle(failure)
            self._ready.append(
                BatchItem(False, error=str(error), index=index, elapsed=0.0, failure=failure)
            )
            with self._lock:
                self._slots -= 1
            return
        with self._lock:
            self._open[index] = future
        future._outcome.add_done_callback(lambda _: self._ended(index, future))

    def _ended(self, index: int, future: RolloutFuture) -> None:
        self._tally.settle(future.failure)
        error = None if future.cancelled else future._outcome.exception()
        result = None if future.cancelled or error else future._outcome.result()
        entry: BatchItem | Exception = BatchItem(
            success=future.failure is None,
            result=result,
            error=None if future.failure is None else str(future.failure),
            index=index,
            elapsed=future.elapsed(),
            failure=future.failure,
        )
        if isinstance(error, ContractError):
            entry = error
        self._ready.append(entry)
        with self._lock:
            self._more = self._more and entry is not error
            self._open.pop(index, None)
        self._wake()
        once = threading.Lock()

        def release(_: object = None) -> None:
            if once.acquire(blocking=False):
                self._release()

        future._cleared.add_done_callback(release)
        if not future._cleared.done():
            self._client._caller.timer.later(SLOT_S, release)

    def _release(self) -> None:
        with self._lock:
            self._slots -= 1
            more = self._more
        if more:
            self._refill()
        self._wake()

    # --- leaving ------------------------------------------------------------------------------

    def _abort(self) -> list[concurrent.futures.Future[None]]:
        """Cancels what is unfinished; nothing when the batch ran to its end."""
        with self._lock:
            self._more = False
        with self._pulling, self._lock:  # whoever is submitting has finished now
            left = list(self._open.values())
        for future in left:
            future.cancel()
        return [future._cleared for future in left]

    def _patience(self, stops: int) -> float:
        return self._client._caller.patience(stops, ABORT_S)


def _soon(loop: asyncio.AbstractEventLoop, job: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(job)
    except RuntimeError:
        pass  # the loop has been closed: nobody waits


async def _ring(bell: asyncio.Event, timeout: float | None) -> None:
    try:
        await asyncio.wait_for(bell.wait(), timeout)
    except TimeoutError:
        pass
