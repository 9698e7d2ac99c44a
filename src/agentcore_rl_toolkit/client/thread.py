"""The client's own threads: two pools and one timer, all daemons, all started on demand.

asyncio's default pool has a handful of threads, so a hundred cold starts would queue behind each
other; these pools grow to what is asked of them, up to a limit, and shrink again when idle.
Daemon threads let Ctrl-C end the process; what must not be lost (stopping sessions) is flushed by
the client before it closes and at exit. Jobs handle their own errors: one that escapes is logged.
"""

from __future__ import annotations

import collections
import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable

logger = logging.getLogger(__name__)

Job = Callable[[], None]

IDLE_S = 5.0
"""An idle thread ends after this long."""


class Pool:
    def __init__(self, name: str, limit: int) -> None:
        self.name, self.limit = name, limit
        self._jobs: collections.deque[Job] = collections.deque()
        self._changed = threading.Condition()
        self._threads: set[threading.Thread] = set()
        self._idle = 0
        self._closed = False

    @property
    def size(self) -> int:
        return len(self._threads)

    def submit(self, job: Job) -> None:
        """Runs the job soon; after close() it is dropped."""
        with self._changed:
            if self._closed:
                return
            self._jobs.append(job)
            if self._idle >= len(self._jobs):
                self._changed.notify()
                return
            if len(self._threads) >= self.limit or self._grow():
                return
            # The interpreter is ending and starts no threads any more.
            self._jobs.pop()
        _run(job)

    def _grow(self) -> bool:
        thread = threading.Thread(target=self._work, name=f"art-{self.name}", daemon=True)
        self._threads.add(thread)
        try:
            thread.start()
        except RuntimeError:
            self._threads.discard(thread)
            return bool(self._threads)
        return True

    def _work(self) -> None:
        while True:
            with self._changed:
                self._idle += 1
                self._changed.wait_for(lambda: self._jobs or self._closed, IDLE_S)
                self._idle -= 1
                if not self._jobs:
                    self._threads.discard(threading.current_thread())
                    return
                job = self._jobs.popleft()
            _run(job)
            del job  # an idle thread must not keep the last rollout alive

    def close(self, wait_s: float = 1.0) -> None:
        with self._changed:
            self._closed = True
            self._jobs.clear()
            self._changed.notify_all()
            threads = list(self._threads)
        _join(threads, wait_s)


class Handle:
    """A timer's entry. Cancelling one that has run does nothing."""

    __slots__ = ("job",)

    def __init__(self, job: Job) -> None:
        self.job: Job | None = job

    def cancel(self) -> None:
        self.job = None

    def fire(self) -> None:
        job, self.job = self.job, None
        if job is not None:
            _run(job)


class Timer:
    """Runs short jobs later, in one thread; long ones belong in a pool."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Handle]] = []
        self._order = itertools.count()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def later(self, delay_s: float, job: Job) -> Handle:
        handle = Handle(job)
        with self._changed:
            if self._closed:
                return handle
            heapq.heappush(self._heap, (time.monotonic() + delay_s, next(self._order), handle))
            if self._thread is not None:
                if self._heap[0][2] is handle:
                    self._changed.notify()
                return handle
            self._thread = threading.Thread(target=self._work, name="art-timer", daemon=True)
            try:
                self._thread.start()
                return handle
            except RuntimeError:
                self._thread = None
        handle.fire()  # the interpreter is ending: now or never
        return handle

    def _work(self) -> None:
        idle_since = time.monotonic()
        while True:
            with self._changed:
                now = time.monotonic()
                if self._closed or (not self._heap and now - idle_since >= IDLE_S):
                    self._thread = None
                    return
                wait = self._heap[0][0] - now if self._heap else idle_since + IDLE_S - now
                if not self._heap or wait > 0:
                    self._changed.wait(wait)
                    continue
                handle = heapq.heappop(self._heap)[2]
            handle.fire()
            idle_since = time.monotonic()

    def close(self, wait_s: float = 1.0) -> None:
        with self._changed:
            self._closed = True
            self._heap.clear()
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            _join([thread], wait_s)


def _join(threads: list[threading.Thread], wait_s: float) -> None:
    deadline = time.monotonic() + wait_s
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join(max(0.0, deadline - time.monotonic()))


def _run(job: Job) -> None:
    try:
        job()
    except Exception:
        logger.exception("job=<%s> | failed unexpectedly", getattr(job, "__qualname__", job))
