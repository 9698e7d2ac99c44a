"""How results are noticed: one watcher for all rollouts of a client.

In this order: the local runtime's events; one listing of the common prefix a tick; a HEAD request
for each key where a listing costs more than that. Events carry small results and deaths of
sessions; listing closes the gap after every (re)connection and is the safety net behind them.
Without events a tick is ``TICK_S`` while results arrive and at most ``TICK_MAX_S``.

The watcher has no thread of its own but the event stream's: the timer ticks, the chore pool asks
and reads. It only ever ends an attempt with what the store or the runtime said; trouble of the
store slows it down and never ends a rollout before ``FETCH_TRIES`` failed reads of one result.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from ..errors import ContractError, RolloutError, StoreError
from .attempt import Attempt
from .call import Caller, backoff
from .event import Event, Stream
from .store import Denied, Store, Transient, common_prefix, listing_pays, parse_result

logger = logging.getLogger(__name__)

TICK_S, TICK_MAX_S = 0.3, 1.0
ARRIVING_S = 3.0
"""Results count as arriving for this long after the last one."""
SAFETY_S = 30.0
"""Tick while events cover everything."""
LISTING_OFF_S = 30.0
"""Listing is tried again this long after it did not pay."""
LINGER_S = 10.0
"""The event stream is kept for this long after the last rollout."""
FETCH_TRIES = 10
FEW = 2
"""So few keys are asked for one by one at every tick."""


class Watcher:
    def __init__(
        self, caller: Caller, store: Store, endpoint: str | None, bucket: str, prefix: str
    ) -> None:
        self._caller, self._store = caller, store
        self._endpoint, self._bucket, self._prefix = endpoint, bucket, prefix
        self.credentials: Any = None
        """botocore's, for the runtime's own paths; None finds them as ``local`` does."""
        self._pending: dict[tuple[str, str], Attempt] = {}
        self._sessions: dict[str, Attempt] = {}
        self._stream: Stream | None = None
        self._lock = threading.Lock()
        self._polling = False
        self._due: float | None = None
        self._tick = TICK_S
        self._arrived = 0.0
        self._trouble = 0
        self._listed: set[str] = set()
        self._listing_off: dict[str, float] = {}
        self._closed = False

    @property
    def live(self) -> bool:
        """Events would have told of a death."""
        stream = self._stream
        return stream is not None and stream.live

    def add(self, attempt: Attempt) -> None:
        stream: Stream | None = None
        with self._lock:
            if self._closed:
                return
            self._pending[attempt.bucket, attempt.key] = attempt
            self._sessions[attempt.session_id] = attempt
            if self._endpoint and self._stream is None:
                stream = Stream(self._endpoint, self._bucket, self._prefix, self._on_event)
                stream.credentials = self.credentials
                self._stream = stream
            covered = self._stream is not None and self._stream.covers(attempt.bucket, attempt.key)
        if stream is not None:
            stream.start()
        self._poll_in(SAFETY_S if covered else TICK_S)

    def remove(self, attempt: Attempt) -> None:
        with self._lock:
            if self._pending.get((attempt.bucket, attempt.key)) is attempt:
                del self._pending[attempt.bucket, attempt.key]
            if self._sessions.get(attempt.session_id) is attempt:
                del self._sessions[attempt.session_id]
            self._arrived = time.monotonic()
            resting = not self._pending and self._stream is not None
        if resting:
            self._caller.timer.later(LINGER_S, lambda: self._caller.chores.submit(self._rest))

    def _rest(self) -> None:
        with self._lock:
            if self._pending or time.monotonic() - self._arrived < LINGER_S * 0.9:
                return
            stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    # --- events -------------------------------------------------------------------------------

    def _on_event(self, event: Event) -> None:
        if event.kind == "result":
            self._on_result(event.data)
        elif event.kind == "session":
            self._on_session(json.loads(event.data))
        elif event.kind == "hello":
            self._caller.chores.submit(self._reconcile)
        elif event.kind == "closed":
            self._poll_in(0.0)
        elif event.kind == "gone":
            for attempt in self._accepted():
                attempt.lost(
                    f"the local runtime at {self._endpoint} does not answer any more, and its "
                    "sessions ended with it. Start it again with 'art runtime serve'"
                )

    def _on_result(self, data: bytes) -> None:
        head, inline, body = data.partition(b"\n")
        where = json.loads(head)
        attempt = self._pending.get((where["bucket"], where["key"]))
        if attempt is None:
            return
        if not inline:
            self._fetch(attempt)
            return
        try:
            attempt.end(result=parse_result(body, attempt.key))
        except RolloutError as error:
            attempt.end(error=error)

    def _on_session(self, about: dict[str, Any]) -> None:
        attempt = self._sessions.get(about.get("session_id", ""))
        # A request that is under way fails by itself; before that, the session may be restarted.
        if about.get("state") not in ("lost", "stopped") or attempt is None:
            return
        if attempt.is_accepted:
            reason = str(about.get("reason") or about["state"])
            attempt.look(lambda: attempt.lost(reason))

    def _reconcile(self) -> None:
        """After every (re)connection: what was missed is in the store, or its session is dead.
        The sessions are read first, since a session ends only after its result is saved."""
        accepted, stream = self._accepted(), self._stream
        if not accepted or stream is None:
            return
        try:
            listed = stream.get("/_art/sessions")["sessions"]
            alive = {s["session_id"] for s in listed if s["state"] not in ("stopped", "lost")}
        except (OSError, ValueError, TypeError, KeyError) as error:
            logger.debug("sessions=<unknown> | %s", error)
            self._poll_in(0.0)
            return
        for attempt in accepted:
            if attempt.session_id not in alive:
                self._missing(attempt)
        self._ask([a for a in accepted if not a.over and a.session_id in alive], time.monotonic())

    def _missing(self, attempt: Attempt) -> None:
        attempt.look(lambda: attempt.lost("the runtime does not know it any more"))

    # --- ticks --------------------------------------------------------------------------------

    def _poll_in(self, delay_s: float) -> None:
        due = time.monotonic() + delay_s
        with self._lock:
            if self._closed or (self._due is not None and self._due <= due):
                return
            self._due = due
        self._caller.timer.later(delay_s, lambda: self._caller.chores.submit(self._poll))

    def _poll(self) -> None:
        with self._lock:
            now = time.monotonic()
            if self._closed or self._polling or self._due is None or self._due > now:
                return
            self._polling, self._due = True, None
        try:
            stream = self._stream
            covered = stream is not None and all(
                stream.covers(a.bucket, a.key) for a in self._snapshot()
            )
            pending = self._accepted()
            if stream is not None and not covered:
                pending = [a for a in pending if not stream.covers(a.bucket, a.key)]
            self._ask(pending, now)
        finally:
            with self._lock:
                self._polling = False
                # A tick that fell into this one found it busy, and nobody else will make it good.
                missed = self._due is not None and self._due <= time.monotonic()
                self._due = None if missed else self._due
                pending_left = bool(self._pending)
        if pending_left:
            self._poll_in(0.0 if missed else SAFETY_S if covered else self._next_tick())

    def _next_tick(self) -> float:
        if self._trouble:
            return backoff(self._trouble - 1)
        arriving = time.monotonic() - self._arrived < ARRIVING_S
        self._tick = TICK_S if arriving else min(TICK_MAX_S, self._tick * 1.25)
        return self._tick

    def _snapshot(self) -> list[Attempt]:
        with self._lock:
            return list(self._pending.values())

    def _accepted(self) -> list[Attempt]:
        return [a for a in self._snapshot() if a.is_accepted]

    # --- asking the store ---------------------------------------------------------------------

    def _ask(self, attempts: Iterable[Attempt], now: float) -> None:
        by_bucket: dict[str, dict[str, Attempt]] = {}
        for attempt in attempts:
            by_bucket.setdefault(attempt.bucket, {})[attempt.key] = attempt
        for bucket, pending in by_bucket.items():
            # The first listing of a bucket also tells whether it exists; HEAD does not.
            known = bucket in self._listed
            if known and (len(pending) <= FEW or now < self._listing_off.get(bucket, 0.0)):
                self._ask_each(pending.values(), now, every_tick=len(pending) <= FEW)
            else:
                self._ask_all(bucket, pending, now)

    def _ask_all(self, bucket: str, pending: dict[str, Attempt], now: float) -> None:
        first, last = min(pending), max(pending)
        pages = listed = 0
        try:
            for page in self._store.keys(bucket, common_prefix(pending), first[:-1]):
                pages, listed = pages + 1, listed + len(page)
                for key in page:
                    if key in pending:
                        self._fetch(pending[key])
                if page and page[-1] >= last:
                    break
                if not listing_pays(pages, listed, len(pending)):
                    self._listing_off[bucket] = now + LISTING_OFF_S
                    break
        except Transient as error:
            self._slow_down(bucket, error)
            return
        except Denied:
            self._listing_off[bucket] = float("inf")
        except ContractError as error:
            for attempt in pending.values():
                attempt.end(error=error)
        except Exception as error:  # noqa: BLE001 - an assigned client may raise anything
            logger.warning("bucket=<%s> | cannot be listed: %s", bucket, error)
            self._listing_off[bucket] = now + LISTING_OFF_S
        self._listed.add(bucket)
        self._trouble = 0

    def _ask_each(self, pending: Iterable[Attempt], now: float, *, every_tick: bool) -> None:
        for attempt in pending:
            if attempt.busy or (now < attempt.next_look and not every_tick):
                continue
            attempt.look_every = attempt.looks.after(attempt.look_every, now - attempt.since)
            attempt.next_look = now + attempt.look_every
            self._in_chore(attempt, self._head)

    def _head(self, attempt: Attempt) -> bool:
        try:
            found = self._store.exists(attempt.bucket, attempt.key)
            self._trouble = 0
        except Transient as error:
            self._slow_down(attempt.bucket, error)
            return True
        return self._read(attempt, 0) if found else True

    def _slow_down(self, bucket: str, error: Exception) -> None:
        self._trouble = min(self._trouble + 1, 4)
        logger.warning(
            "bucket=<%s> | the result store has trouble, asking again: %s", bucket, error
        )

    # --- reading a result ---------------------------------------------------------------------

    def _fetch(self, attempt: Attempt) -> None:
        if not attempt.busy:
            self._in_chore(attempt, lambda a: self._read(a, 0))

    def _read(self, attempt: Attempt, tries: int) -> bool:
        """False while it is still at it."""
        try:
            result = self._store.read(attempt.bucket, attempt.key)
        except Transient as error:
            if tries >= FETCH_TRIES:
                raise StoreError(f"the result at {attempt.key} cannot be read: {error}") from error
            self._caller.timer.later(
                backoff(tries),
                lambda: self._in_chore(attempt, lambda a: self._read(a, tries + 1)),
            )
            return False
        if result is not None:
            attempt.end(result=result)
        return True

    def _in_chore(self, attempt: Attempt, job: Callable[[Attempt], bool]) -> None:
        attempt.busy = True

        def run() -> None:
            if attempt.over:
                return
            try:
                attempt.busy = not job(attempt)
            except RolloutError as error:
                attempt.end(error=error)
            except Exception as error:  # noqa: BLE001 - an assigned client may raise anything
                attempt.end(error=StoreError(f"the result at {attempt.key}: {error!r}"))

        self._caller.chores.submit(run)
