"""One rollout, seen by whoever waits for it.

A future settles exactly once: with the saved result (also one that says status 500: the agent
ran, and its caller reads ``status_code``), with a RolloutError, or as cancelled. It settles
whether anyone waits or not, and its session is stopped then. Every waiter, in a thread or in a
task, is woken by the same outcome. Waiting with a timeout ends the rollout when the time is up:
``done()`` looks without ending it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import RolloutError
from ..rollout import Failure, FailureKind, failure_of
from .attempt import Attempt
from .order import Order
from .store import Looks

if TYPE_CHECKING:
    from .client import RolloutClient

T = TypeVar("T")

LAST_LOOK_S = 2.0
"""What ``result(timeout=0)`` allows for its one check of the store."""
DONE_EVERY_S = 0.5
"""``done()`` asks the store itself at most this often; in between the watcher's word counts."""
FINAL_S = 0.5


class RolloutFuture:
    def __init__(
        self,
        client: RolloutClient,
        order: Order,
        *,
        retry: int = 0,
        timeout_s: float | None = None,
        looks: Looks | None = None,
        on_start: Callable[[RolloutFuture], None] | None = None,
    ) -> None:
        self._client, self._order = client, order
        self._on_start = on_start
        self._retry, self._timeout_s, self._looks = retry, timeout_s, looks or Looks()
        self._started = time.monotonic()
        self._ended: float | None = None
        self._lock = threading.Lock()
        self._outcome: concurrent.futures.Future[dict[str, Any]] = concurrent.futures.Future()
        self._admitted: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._cleared: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._attempt: Attempt | None = None
        self._waiters = 0
        self._asked = 0.0
        self.failure: Failure | None = None
        """Why it failed; None while it runs and when it succeeded."""
        self.attempts = 0

    # --- what it is about ---------------------------------------------------------------------

    @property
    def session_id(self) -> str:
        return self._order.session_id

    @property
    def input_id(self) -> str:
        return self._order.input_id

    @property
    def result_key(self) -> str:
        return self._attempt.key if self._attempt is not None else self._order.key

    @property
    def s3_bucket(self) -> str:
        return self._attempt.bucket if self._attempt is not None else self._order.bucket

    def elapsed(self) -> float:
        """Seconds since it was submitted, until it ended."""
        return (self._ended or time.monotonic()) - self._started

    @property
    def cancelled(self) -> bool:
        return self._outcome.cancelled()

    def __repr__(self) -> str:
        state = "running"
        if self._outcome.done():
            state = str(self.failure) if self.failure else "succeeded"
        return f"<RolloutFuture session={self.session_id} {state}>"

    # --- waiting ------------------------------------------------------------------------------

    def result(self, timeout: float | None = None) -> dict[str, Any]:
        """The saved result. None waits for ever; a timeout ends the rollout when it is over."""
        with self._waiting():
            if _wait(self._outcome, timeout):
                return self._outcome.result()
        self._expire()
        if not _wait(self._outcome, FINAL_S if timeout else LAST_LOOK_S):
            self._give_up()
        return self._outcome.result()

    async def result_async(self, timeout: float | None = None) -> dict[str, Any]:
        with self._waiting():
            try:
                ended = await wait_for(self._outcome, timeout)
            except asyncio.CancelledError:
                # As with asyncio's own futures: cancelling who waits cancels what it waits for.
                if self._waiters == 1:
                    self.cancel()
                raise
        if not ended:
            self._expire()
            if not await wait_for(self._outcome, FINAL_S if timeout else LAST_LOOK_S):
                self._give_up()
        if self._outcome.cancelled():
            raise asyncio.CancelledError
        return self._outcome.result()

    @contextlib.contextmanager
    def _waiting(self) -> Generator[None, None, None]:
        with self._lock:
            self._waiters += 1
        try:
            yield
        finally:
            with self._lock:
                self._waiters -= 1

    def __await__(self) -> Generator[Any, None, dict[str, Any]]:
        return self.result_async().__await__()

    def done(self) -> bool:
        """Whether it has ended; asks the store when nothing else would tell."""
        if self._should_ask():
            _wait(self._checked(), LAST_LOOK_S)
        return self._outcome.done()

    async def done_async(self) -> bool:
        if self._should_ask():
            await wait_for(self._checked(), LAST_LOOK_S)
        return self._outcome.done()

    def _checked(self) -> concurrent.futures.Future[None]:
        """Done once the store has been asked, or the rollout has ended."""
        checked: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._outcome.add_done_callback(lambda _: _set(checked, None))
        if self._attempt is not None:
            self._attempt.look(lambda: _set(checked, None))
        return checked

    def _should_ask(self) -> bool:
        now = time.monotonic()
        if self._outcome.done() or self._client._watcher.live or now - self._asked < DONE_EVERY_S:
            return False
        self._asked = now
        return True

    # --- ending it ----------------------------------------------------------------------------

    def cancel(self) -> bool:
        """Stops the session and wakes every waiter. False when it had ended before."""
        self._retry = 0
        attempt = self._attempt
        if attempt is not None:
            attempt.end()
        return self._outcome.cancelled()

    async def cancel_async(self) -> bool:
        cancelled = self.cancel()
        await wait_for(self._cleared, LAST_LOOK_S)
        return cancelled

    def _expire(self) -> None:
        self._retry = 0
        if self._attempt is not None:
            self._attempt.expire()

    def _give_up(self) -> None:
        if self._attempt is not None:
            self._attempt.end(error=self._attempt.timeout_error())

    # --- its attempts -------------------------------------------------------------------------

    def _start(self, body: bytes | None = None) -> None:
        attempt = self._new_attempt(self._order.body() if body is None else body)
        if self._on_start is not None:
            self._on_start(self)
        attempt.start()

    def _resume(self) -> None:
        self._new_attempt(b"").resume()

    def _new_attempt(self, body: bytes) -> Attempt:
        client, order = self._client, self._order
        self.attempts += 1
        client._tally.attempt()
        self._attempt = Attempt(
            client._caller,
            client._store,
            client._watcher,
            body=body,
            session_id=order.session_id,
            bucket=order.bucket,
            key=order.key,
            max_tries=client.max_retry_attempts,
            timeout_s=self._timeout_s,
            looks=self._looks,
            accepted=lambda: _set(self._admitted, None),
            ended=self._on_end,
            cleared=self._on_cleared,
        )
        return self._attempt

    def _on_end(
        self, attempt: Attempt, result: dict[str, Any] | None, error: Exception | None
    ) -> None:
        failure = _failure(result, error)
        if failure is not None and failure.kind.infrastructure and self._retry > 0:
            self._retry -= 1
            self._order = self._order.renewed()
            self._start()
            return
        self._ended = time.monotonic()
        self.failure = failure
        self._client._settled(self, failure)
        if error is not None:
            self._outcome.set_exception(error)
        elif result is not None:
            self._outcome.set_result(result)
        else:
            self._outcome.cancel()
            self._outcome.set_running_or_notify_cancel()  # wakes those in futures.wait()
        _set(self._admitted, None)

    def _on_cleared(self) -> None:
        attempt = self._attempt
        if self._outcome.done() and attempt is not None:
            _set(self._cleared, None)


def _failure(result: dict[str, Any] | None, error: Exception | None) -> Failure | None:
    if result is not None:
        return failure_of(result)
    if error is None:
        return Failure(FailureKind.CANCELLED, "cancelled")
    kind = FailureKind(error.kind) if isinstance(error, RolloutError) else FailureKind.CONTRACT
    return Failure(kind, str(error) or type(error).__name__)


def _set(future: concurrent.futures.Future[T], value: T) -> None:
    try:
        future.set_result(value)
    except concurrent.futures.InvalidStateError:
        pass  # somebody was first


def _wait(future: concurrent.futures.Future[Any], timeout: float | None) -> bool:
    return bool(concurrent.futures.wait([future], timeout).done)


async def wait_for(future: concurrent.futures.Future[Any], timeout: float | None) -> bool:
    """Waits in a task; never cancels the future, unlike asyncio.wrap_future."""
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()

    def wake(_: object) -> None:
        try:
            loop.call_soon_threadsafe(_release, waiter)
        except RuntimeError:
            pass  # the loop has been closed

    future.add_done_callback(wake)
    timer = None if timeout is None else loop.call_later(timeout, _release, waiter)
    try:
        await waiter
    finally:
        if timer is not None:
            timer.cancel()
    return future.done()


def _release(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
