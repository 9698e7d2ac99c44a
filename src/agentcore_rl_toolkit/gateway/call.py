"""One model call in flight, and the shelf of calls that a retry may still ask for.

A call outlives its connection: when the client goes away the work goes on for a grace period, in
which the same request sent again joins it instead of being sampled a second time. After that the
engine's work is cancelled. Finished calls stay on the shelf for a while, bounded by age and bytes.

Invariant: ``out`` holds everything that the client was or would have been sent, in order.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import msgspec
import xxhash
from aiohttp import web

from ..run.frame import Delivery
from .dialects.base import Ask, Dialect, Outlet
from .fault import Refusal, engine_fault
from .memory.answers import answer_id

if TYPE_CHECKING:
    from ..trajectory.turn import Turn, TurnHead
    from .route import Pool, Slot
    from .session import Session

CLIENT_GONE = "the client disconnected"
KEEP_ALIVE_EVENT = b": keep-alive\n\n"
SSE_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",
}


class Identity(msgspec.Struct, frozen=True):
    """How a request says that it is the same as another."""

    digest: bytes
    idempotency_key: str | None
    retry_count: int

    @property
    def name(self) -> str:
        """Of all calls that are the same by it: asking twice makes two, told apart by a number."""
        return self.idempotency_key or self.digest.hex()

    @classmethod
    def of(cls, request: web.BaseRequest, body: bytes, salt: bytes = b"") -> Identity:
        """``salt``: equal bodies in dialects with equal requests are different calls."""
        headers = request.headers
        count = headers.get("x-stainless-retry-count", "0")
        return cls(
            body_digest(body, salt),
            headers.get("Idempotency-Key"),
            int(count) if count.isdigit() else 0,
        )


def body_digest(body: bytes, salt: bytes) -> bytes:
    """xxHash: a session that makes two of its own requests collide misleads itself alone."""
    told = xxhash.xxh3_128(salt)
    told.update(body)
    return told.digest()


class Call:
    __slots__ = (
        "_changed",
        "ask",
        "cancelled",
        "delivered",
        "dialect",
        "done",
        "first_token",
        "followers",
        "identity",
        "marks",
        "orphaned",
        "out",
        "outlet",
        "pool",
        "refusal",
        "request",
        "response",
        "retry_key",
        "session",
        "slot",
        "started",
        "started_unix",
        "task",
        "tokens",
        "turns",
        "wrote",
    )

    def __init__(
        self,
        session: Session,
        pool: Pool,
        ask: Ask,
        dialect: Dialect,
        identity: Identity,
        request: web.BaseRequest,
    ) -> None:
        self.session, self.pool, self.ask, self.dialect = session, pool, ask, dialect
        self.identity = identity
        self.retry_key = ""
        self.request: web.BaseRequest | None = request
        self.response: web.StreamResponse | None = None
        self.slot: Slot | None = None
        self.task = asyncio.current_task()
        self.out: list[bytes] = []
        self.outlet: Outlet | None = None
        self.turns: list[TurnHead] = []
        self.refusal: Refusal | None = None
        self.done = self.delivered = False
        self.cancelled: str | None = None
        """Why, when it was."""
        self.orphaned: float | None = None
        self.followers = 0
        self.tokens = 0
        self.marks: list[tuple[str | None, int]] = [(pool.version, 0)]
        """Weight version and how many tokens had come when it began to count."""
        self.started = self.wrote = time.monotonic()
        self.started_unix = time.time()
        self.first_token: float | None = None
        self._changed: asyncio.Event | None = None

    # --- towards the client ---------------------------------------------------------------

    def name(self, retry_key: str) -> None:
        """The call's name, and with it the answer's: a retry has the same."""
        self.retry_key = retry_key
        self.outlet = open_outlet(self.dialect, self.ask, self.session, retry_key)

    @property
    def over(self) -> bool:
        """Failed, or answered for good: a call that is made after it stands for it."""
        return self.refusal is not None or bool(self.cancelled) or (self.done and self.delivered)

    @property
    def gone(self) -> bool:
        transport = self.request.transport if self.request is not None else None
        return transport is None or transport.is_closing()

    async def begin(self) -> None:
        """Sends the head of the reply, once."""
        if self.response is not None or self.request is None or self.gone:
            return
        headers = SSE_HEADERS if self.ask.stream else {"content-type": "application/json"}
        self.response = web.StreamResponse(headers=headers)
        try:
            await self.response.prepare(self.request)
        except ConnectionError:
            pass

    async def send(self, data: bytes) -> bool:
        """Writes to the client if it is still there; followers are woken in any case."""
        self.out.append(data)
        if self._changed is not None:
            self._changed.set()
        return await self.write(data)

    async def write(self, data: bytes) -> bool:
        if self.response is None or self.gone:
            return False
        self.wrote = time.monotonic()
        try:
            await self.response.write(data)
        except ConnectionError:
            return False
        return True

    async def beat(self) -> None:
        """Bytes that mean nothing, so that nothing on the way cuts a silent connection."""
        transport = self.request.transport if self.request is not None else None
        if self.done or transport is None or transport.get_write_buffer_size() > 0:
            return
        await self.begin()
        await self.write(self.dialect.keep_alive if self.ask.stream else b" ")

    def shaped(self, data: bytes, *, whole: bool = False) -> bytes:
        """An engine's chat answer as the client's API has it."""
        if self.outlet is None or not data:
            return data
        try:
            return self.outlet.whole(data) if whole else self.outlet.events(data)
        except (msgspec.DecodeError, IndexError) as error:
            raise engine_fault(f"the engine's answer is not what it should be: {error}") from error

    def finish(self, refusal: Refusal | None = None) -> None:
        self.refusal, self.done = refusal, True
        if self._changed is not None:
            self._changed.set()

    async def changed(self, timeout: float) -> None:
        """Waits, as a follower, for more bytes or the end."""
        if self._changed is None or self._changed.is_set():
            self._changed = asyncio.Event()
        try:
            async with asyncio.timeout(timeout):
                await self._changed.wait()
        except TimeoutError:
            pass

    def release(self) -> None:
        """Lets go of all that a retry does not need."""
        self.request = self.response = self.task = self.outlet = None
        self.ask.fields, self.ask.body, self.ask.messages = {}, b"", None

    # --- towards the engine ---------------------------------------------------------------

    def cancel(self, reason: str = CLIENT_GONE) -> None:
        """Ends the engine's work: the driving task aborts its connection."""
        if not self.done and not self.cancelled and self.task is not None:
            self.cancelled = reason
            self.task.cancel()

    def tick(self, now: float, grace: float) -> None:
        if self.done:
            return
        if not self.gone or self.followers:
            self.orphaned = None
        elif self.orphaned is None:
            self.orphaned = now
        elif now - self.orphaned >= grace:
            self.cancel()

    @property
    def weight(self) -> int:
        return sum(map(len, self.out)) + 2048

    def delivery_frames(self, delivered: bool) -> list[Delivery]:
        """What the journal must learn when delivery is not as the turns say."""
        self.delivered = delivered
        return deliveries(self.session, self.turns, delivered)


def deliveries(
    session: Session, turns: Sequence[Turn | TurnHead], delivered: bool
) -> list[Delivery]:
    """Frames for turns that are now known to have been delivered, or not."""
    graph, now = session.graph, time.time()
    frames = []
    for turn in turns:
        if graph.is_delivered(turn.turn_id) != delivered and turn.error is None:
            graph.mark_delivered(turn.turn_id, delivered)
            frames.append(
                Delivery(
                    session_id=session.session_id,
                    turn_id=turn.turn_id,
                    at=now,
                    delivered=delivered,
                )
            )
    return frames


def open_outlet(
    dialect: Dialect, ask: Ask, session: Session, retry_key: str | None
) -> Outlet | None:
    ask.answer_id = answer_id(session.session_id, retry_key)
    ask.secret = session.key_digest.encode()
    return dialect.outlet(ask)


_Place: TypeAlias = tuple[str, bytes, str | None]


def _place(session: Session, identity: Identity) -> _Place:
    return session.session_id, identity.digest, identity.idempotency_key


class Shelf:
    """Calls by session and body: those in flight, and finished ones for a while."""

    def __init__(self, window_s: float, max_bytes: int) -> None:
        self._window, self._max_bytes = window_s, max_bytes
        self._calls: dict[_Place, list[Call]] = {}
        self._finished: deque[tuple[float, int, Call]] = deque()
        self._bytes = 0

    def twin(self, session: Session, identity: Identity) -> Call | None:
        """The call that a request repeats, if it does.

        An answer that never arrived is what an equal body asks for again. One that did arrive is
        given again only to a client that says it is retrying: asking twice is otherwise allowed.
        """
        calls = self._calls.get(_place(session, identity), [])
        calls = [call for call in calls if call.refusal is None and not call.cancelled]
        for call in reversed(calls):
            if (call.gone and not call.done) or (call.done and not call.delivered):
                return call
        told = identity.retry_count > 0 or identity.idempotency_key is not None
        return calls[-1] if calls and told else None

    def add(self, call: Call) -> None:
        """Puts a new call on the shelf and names it, so that a retry gets the same name."""
        calls = self._calls.setdefault(_place(call.session, call.identity), [])
        calls[:] = [c for c in calls if not c.over]
        taken = {c.retry_key for c in calls}
        free = call.session.graph.retries.free(call.identity.name)
        call.name(next(key for key in free if key not in taken))
        calls.append(call)

    def finished(self, call: Call) -> None:
        weight = call.weight
        self._finished.append((time.monotonic(), weight, call))
        self._bytes += weight
        self.tidy()

    def tidy(self) -> None:
        horizon = time.monotonic() - self._window
        while self._finished and (self._finished[0][0] < horizon or self._bytes > self._max_bytes):
            _, weight, call = self._finished.popleft()
            self._bytes -= weight
            self._forget(call)

    def _forget(self, call: Call) -> None:
        place = _place(call.session, call.identity)
        calls = self._calls.get(place)
        if calls is not None and call in calls:
            calls.remove(call)
            if not calls:
                del self._calls[place]

    def drop(self, session: Session) -> None:
        for place in [p for p in self._calls if p[0] == session.session_id]:
            del self._calls[place]
