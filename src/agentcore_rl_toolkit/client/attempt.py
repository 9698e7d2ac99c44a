"""One attempt at a rollout: one session, from its place in the queue to the stop of its session.

    queued ── sent ── accepted ── ended ── cleared
               │  ▲
               └──┘ again, when nothing can have reached the agent

It ends exactly once, with a result or an error, whoever is first: the answer, the watcher, a
timeout, a cancel. From then on nothing is reported any more, and whatever session may exist is
stopped; ``cleared`` is called once none can be left behind. A stop waits for a request that is
under way, because stopping a session that is being started would be undone by it.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import ContractError, RolloutTimeoutError, SessionLostError
from .call import Caller, Verdict, backoff
from .pace import Ticket
from .store import Looks, Store, Transient
from .thread import Handle

if TYPE_CHECKING:
    from .watch import Watcher

logger = logging.getLogger(__name__)

End = Callable[["Attempt", dict[str, Any] | None, Exception | None], None]

QUIET_S, QUIET_MAX_S = 120.0, 960.0
"""Without events, a session that has been silent this long is asked whether it still lives; the
pause doubles after each answer. Most rollouts end before, and a probe costs one request."""
UNSURE_S = 1.0
"""Pause before asking whether a request that broke off has arrived."""
ROOM_S = 300.0
"""How long a rollout waits for the runtime to have room."""
LAST_LOOK_S = 0.3
"""A timeout waits this long for its last check of the store."""


class Attempt:
    room_s = ROOM_S
    quiet_s = QUIET_S

    def __init__(
        self,
        caller: Caller,
        store: Store,
        watcher: Watcher,
        *,
        body: bytes,
        session_id: str,
        bucket: str,
        key: str,
        max_tries: int,
        timeout_s: float | None,
        looks: Looks,
        accepted: Callable[[], None],
        ended: End,
        cleared: Callable[[], None],
    ) -> None:
        self._caller, self._store, self._watcher = caller, store, watcher
        self._body, self._max_tries, self._timeout_s = body, max_tries, timeout_s
        self._accepted, self._ended, self._cleared = accepted, ended, cleared
        self.session_id, self.bucket, self.key = session_id, bucket, key
        self.since = time.monotonic()
        """Of acceptance, once accepted."""
        self.is_accepted = False
        self.over = False
        self._alive = False
        self._in_flight = False
        self._tries = 0
        self._room_until: float | None = None
        self._quiet = self.quiet_s
        self._handles: list[Handle] = []
        self._ticket: Ticket | None = None
        self._lock = threading.Lock()
        # the watcher's own notes
        self.looks = looks
        self.next_look, self.look_every = 0.0, looks.initial_s
        self.busy = False

    # --- sending ------------------------------------------------------------------------------

    def start(self) -> None:
        self._enqueue()

    def resume(self) -> None:
        """Watches a rollout that was accepted before, by this client or another.

        Its session may have died unseen, so it is asked at once.
        """
        self._alive = True
        self._watcher.add(self)
        self._accept()
        self.look(lambda: self._probe(again=False))

    def _enqueue(self) -> None:
        if not self.over:
            self._ticket = self._caller.limiter.request(
                "invoke", lambda: self._caller.calls.submit(self._send)
            )

    def _send(self) -> None:
        with self._lock:
            if self.over:
                return
            self._in_flight = True
        self._watcher.add(self)  # before it is sent: the result may be quicker than the answer
        verdict: Verdict | None = None
        try:
            answer = self._caller.invoke(self._body, self.session_id)
        except Exception as error:  # noqa: BLE001 - judged
            verdict = self._caller.judge(error)
        with self._lock:
            self._in_flight = False
            self._alive = self._alive or verdict is None or verdict.alive
            over = self.over
        if over:
            self._clear()
        elif verdict is not None:
            self._follow(verdict)
        else:
            self._answered(answer)

    def _answered(self, answer: bytes) -> None:
        try:
            bucket, key = _location(answer)
        except ContractError as error:
            self.end(error=error)
            return
        if (bucket, key) != (self.bucket, self.key):
            self._watcher.remove(self)
            self.bucket, self.key = bucket, key
            self._watcher.add(self)
        self._caller.proven = True
        self._accept()

    def _follow(self, verdict: Verdict) -> None:
        if verdict.action == "watch":
            logger.warning("session=<%s> | no answer yet, watching for its result", self.session_id)
            self._accept()
            return
        tries = self._max_tries if verdict.tries is None else verdict.tries
        if verdict.action == "room":
            self._wait_for_room(verdict)
        elif verdict.action == "fail" or self._tries >= tries:
            self.end(error=verdict.error)
        else:
            delay = backoff(self._tries, verdict.delay_s)
            self._tries += 1
            logger.debug("session=<%s> | sending again in %.1f s: %s", self.session_id, delay,
                         verdict.error)  # fmt: skip
            if verdict.action == "unsure":
                self._later(UNSURE_S, lambda: self._probe(again=True))
            else:
                self._later(delay, self._enqueue)

    def _wait_for_room(self, verdict: Verdict) -> None:
        now = time.monotonic()
        if self._room_until is None:
            self._room_until = now + self.room_s
            self._tries = 0
        if now >= self._room_until:
            self.end(error=verdict.error)
            return
        delay = min(backoff(self._tries, verdict.delay_s), self._room_until - now)
        self._tries += 1
        self._keep(self._caller.when_room(delay, self._enqueue))

    # --- waiting ------------------------------------------------------------------------------

    def _accept(self) -> None:
        self.since = time.monotonic()
        self.is_accepted = True
        self._body = b""
        if self._timeout_s is not None:
            self._later(self._timeout_s, self.expire)
        self._later(self._quiet, self._ask)
        self._accepted()

    def _ask(self) -> None:
        """The quiet period is over: a status request, unless events would have told."""
        if self._watcher.live:
            self._later(self._quiet, self._ask)
        else:
            self._probe(again=False)

    def _probe(self, *, again: bool) -> None:
        if self.over:
            return
        self._caller.limiter.request(
            "invoke", lambda: self._caller.calls.submit(lambda: self._probed(again))
        )

    def _probed(self, again: bool) -> None:
        if self.over:
            return
        try:
            answer = self._caller.status(self.session_id, self.key)
        except Exception as error:  # noqa: BLE001 - says nothing about the rollout
            self._caller.judge(error)
            answer = {}
        status, result = answer.get("status"), answer.get("result")
        logger.debug("session=<%s> | says its rollout is <%s>", self.session_id, status)
        if status == "done" and isinstance(result, dict):
            self.end(result=result)
        elif status == "unknown":
            self.look(self._again if again else lambda: self.lost("its session was replaced"))
        elif again and not status:
            self._follow(Verdict("unsure", SessionLostError("the runtime broke off"), alive=True))
        else:
            if again:
                self._accept()
                return
            self._quiet = min(QUIET_MAX_S, self._quiet * 2)
            self._later(self._quiet, self._ask)

    def _again(self) -> None:
        """Nothing of this rollout has reached the session, so it may be sent again."""
        self._enqueue()

    def look(self, absent: Callable[[], None]) -> None:
        """One check of the store, in the background."""

        def check() -> None:
            if self.over:
                return
            try:
                found = self._store.exists(self.bucket, self.key)
                result = self._store.read(self.bucket, self.key) if found else None
            except Transient:
                result = None
            except Exception as error:  # noqa: BLE001 - the store types its errors
                self.end(error=error)
                return
            if result is not None:
                self.end(result=result)
            else:
                absent()

        self._caller.chores.submit(check)

    # --- ending -------------------------------------------------------------------------------

    def lost(self, reason: str) -> None:
        self.end(error=SessionLostError(f"session {self.session_id} is gone: {reason}"))

    def expire(self) -> None:
        """Times out, unless the result has come in the meantime."""

        def give_up() -> None:
            self.end(error=self.timeout_error())

        self.look(give_up)
        self._later(LAST_LOOK_S, give_up)

    def timeout_error(self) -> RolloutTimeoutError:
        waited = time.monotonic() - self.since
        hint = f". {self._store.hint}" if self._store.hint else ""
        return RolloutTimeoutError(
            f"no result of session {self.session_id} after {waited:.1f} s{hint}"
        )

    def end(self, *, result: dict[str, Any] | None = None, error: Exception | None = None) -> bool:
        """Both None means cancelled. False when it had ended before."""
        with self._lock:
            if self.over:
                return False
            self.over = True
            in_flight = self._in_flight
            if in_flight or self._alive:
                self._caller.owe_stop(self.session_id)  # before anyone hears that it has ended
            handles, self._handles = self._handles, []
        for handle in handles:
            self._caller.forget(handle)
        if self._ticket is not None:
            self._caller.limiter.cancel(self._ticket)  # or it would be granted before the stops
        self._watcher.remove(self)
        self._ended(self, result, error)
        if not in_flight:
            self._clear()
        return True

    def _clear(self) -> None:
        if self._alive:
            self._caller.stop(self.session_id, self._cleared)
        else:
            self._caller.stopped(self.session_id, self._cleared)

    def _later(self, delay_s: float, job: Callable[[], None]) -> None:
        self._keep(self._caller.timer.later(delay_s, job))

    def _keep(self, handle: Handle) -> None:
        with self._lock:
            if not self.over:
                self._handles = [h for h in self._handles if h.job is not None]
                self._handles.append(handle)
                return
        self._caller.forget(handle)


def _location(answer: bytes) -> tuple[str, str]:
    try:
        value = json.loads(answer)
        return str(value["s3_bucket"]), str(value["result_key"])
    except (ValueError, TypeError, KeyError, RecursionError):
        said = answer[:200].decode(errors="replace") or "a stream"
        raise ContractError(
            f"the agent answered without a result location ({said!r}): it runs as in production. "
            "Use AgentCoreRLApp and replace @app.entrypoint by @app.rollout_entrypoint"
        ) from None
