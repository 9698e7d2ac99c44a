"""Live sessions: their compute, their connections, and how they end.

The table holds exactly the sessions whose compute exists or is being made; a session leaves it only
after its compute is gone, so that a revived id never meets its predecessor. A session ends in one
place, ``Sessions.end``, whatever the cause. ``life.py`` decides when; this module does it.
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

from ..errors import IsolationError
from . import wire
from .admission import Admission
from .connector import URL, open_http
from .egress import Egress
from .event import Events
from .isolation.base import Agent, Compute, SessionSpec
from .life import Life, State, Timeouts
from .rest import Rest
from .sessionlog import cut, log_path, tail, too_large
from .template import Templates

logger = logging.getLogger(__name__)

TICK_S = 0.25
TRIM_S = 1.0
PING_TIMEOUT_S = 10.0
PINGS_AT_ONCE = 16
SETTLE_S = 0.05
"""For an agent to put away a connection that was closed after its answer. One that it keeps has a
timer, which would be taken for work."""
KILL_TIMEOUT_S = 15.0


class SessionKey(NamedTuple):
    runtime_id: str
    qualifier: str
    session_id: str


@dataclass(eq=False)
class Session:
    key: SessionKey
    agent: Agent
    life: Life
    log: Path
    log_start: int
    started: float = field(default_factory=time.time)
    level: str = ""
    compute: Compute | None = None
    http: aiohttp.ClientSession | None = None
    base_url: str = URL
    rest: Rest | None = None
    """When it may be frozen; None until it is connected."""
    egress: Egress | None = None
    """What it may reach; None when nobody provides it."""
    exited: asyncio.Future[str] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    """Why its compute is gone."""
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    asked: bool = False
    """A /ping is on its way. One at a time: its answer may freeze the session, and another that
    came meanwhile would wait for an answer until it counted as failed."""
    doomed: str = ""
    """Why it must not go live: it was ended while it was being started."""
    watcher: asyncio.Task[None] | None = None

    @property
    def session_id(self) -> str:
        return self.key.session_id

    def connect(self, compute: Compute, level: str) -> None:
        self.compute, self.level = compute, level
        self.http = open_http(compute)
        self.rest = Rest(self.agent.freeze_s, time.monotonic())

    def describe(self) -> dict[str, Any]:
        stats = self.compute.stats() if self.compute and not self.exited.done() else None
        return {
            "session_id": self.session_id,
            "runtime_id": self.key.runtime_id,
            "qualifier": self.key.qualifier,
            "version": self.agent.version,
            "state": self.life.state.value,
            "isolation": self.level,
            "pid": self.compute.pid if self.compute else None,
            "started": self.started,
            "age_s": round(time.time() - self.started, 3),
            "frozen": self.life.frozen,
            "in_flight": self.life.in_flight,
            "busy": self.life.busy,
            "memory_bytes": stats.memory_bytes if stats else 0,
            "processes": stats.processes if stats else 0,
            "cpu_s": stats.cpu_s if stats else 0.0,
        }


class Sessions:
    def __init__(
        self, templates: Templates, events: Events, admission: Admission, logs: Path
    ) -> None:
        self.templates, self.events, self.admission, self.logs = templates, events, admission, logs
        self.table: dict[SessionKey, Session] = {}
        self._named: dict[str, list[Session]] = {}
        """The same by id: every object that is put asks for one."""
        self.closing = False
        self.on_started: Callable[[str, float], None] | None = None
        """Hears of every start: by which way, in how many seconds."""
        self.egress_of: Callable[[str, Agent, Compute], Awaitable[Egress]] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._pings = asyncio.Semaphore(PINGS_AT_ONCE)
        self._reaper: asyncio.Task[None] | None = None
        self._trimmer: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._reaper = asyncio.create_task(self._reap(), name="reaper")
        self._trimmer = asyncio.create_task(self._trim_logs(), name="log trimmer")
        self.admission.learn(
            lambda: [
                (s.key.runtime_id, s.compute)
                for s in self.table.values()
                if s.compute is not None and not s.life.frozen
            ]
        )

    def named(self, session_id: str) -> Session | None:
        """The first, should several runtimes have sessions of one id."""
        return next(iter(self._named.get(session_id, ())), None)

    def of_runtime(self, runtime_id: str, version: str | None = None) -> Iterator[Session]:
        for key, session in list(self.table.items()):
            if key.runtime_id == runtime_id and version in (None, session.agent.version):
                yield session

    # --- start --------------------------------------------------------------------------------

    async def provision(
        self,
        key: SessionKey,
        agent: Agent,
        timeouts: Timeouts,
        left: Callable[[], bool] = lambda: False,
    ) -> Session:
        """A new session that answers ``/ping``. WireError otherwise, and then nothing is left.

        ``left``: whether the caller has gone, which ends the wait for room but not the start.
        """
        if self.closing:
            raise wire.unavailable("the runtime is shutting down")
        self.admission.check_count(len(self.table))
        log = log_path(self.logs, key.session_id)
        session = Session(
            key=key,
            agent=agent,
            life=Life(timeouts, time.monotonic()),
            log=log,
            log_start=log.stat().st_size if log.exists() else 0,
        )
        self.table[key] = session
        self._named.setdefault(key.session_id, []).append(session)
        try:
            template = await self.templates.use(agent)
        except BaseException:
            self._forget(session)
            raise
        try:
            wanted = functools.partial(self._check_waiting, session, left)
            async with self.admission.start(session, key.runtime_id, wanted):
                self._check_wanted(session)
                session.life.started = time.monotonic()
                spec = SessionSpec(key.session_id, {}, log)
                compute = await template.spawn(spec)
                session.connect(compute, template.level)
                session.watcher = asyncio.create_task(self._watch(session))
                await self._open_egress(session, compute)
                if session.exited.done() or not getattr(compute, "answered", False):
                    await self._until_ready(session)
                self._check_wanted(session)
        except BaseException as error:
            await self._dispose(session)
            self._forget(session)
            self.templates.release(agent)
            logger.info("session=<%s> error=<%s> | did not start", key.session_id, error)
            raise
        session.life.ready(time.monotonic())
        if self.on_started is not None:
            way = getattr(session.compute, "way", template.mode)
            self.on_started(way, time.monotonic() - session.life.started)
        self.events.session(key.session_id, key.runtime_id, "started")
        logger.info("session=<%s> runtime=<%s> | started", key.session_id, key.runtime_id)
        return session

    async def _open_egress(self, session: Session, compute: Compute) -> None:
        if self.egress_of is None:
            return
        try:
            session.egress = await self.egress_of(session.session_id, session.agent, compute)
            session.egress.traffic.wake = functools.partial(_wake, session)
        except IsolationError:
            # An agent that ended at once has no network any more; how it ended says more.
            await asyncio.wait({session.exited}, timeout=1.0)
            if not session.exited.done():
                raise

    async def _until_ready(self, session: Session) -> None:
        """Races /ping with the compute's end: a connection may queue at a listener that outlives
        the process which was to accept it."""
        limit_s = session.agent.init_timeout_s
        poll = asyncio.create_task(_answers(session))
        try:
            racers: set[asyncio.Future[Any]] = {poll, session.exited}
            await asyncio.wait(racers, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
            if poll.done():
                poll.result()
                return
        finally:
            poll.cancel()
        self._check_wanted(session)
        if session.exited.done():
            why = f"The agent ended before it answered /ping ({session.exited.result()})."
        else:
            why = (
                "Runtime initialization time exceeded. Please make sure that initialization "
                f"completes in {limit_s:g}s."
            )
        raise wire.runtime_error(why + log_excerpt(session))

    def _check_waiting(self, session: Session, left: Callable[[], bool]) -> None:
        self._check_wanted(session)
        if left():
            raise wire.unavailable("the caller left while the session waited to be started")

    def _check_wanted(self, session: Session) -> None:
        if self.closing:
            raise wire.unavailable("the runtime is shutting down")
        if session.doomed:
            raise wire.runtime_error(f"The session was ended: {session.doomed}")

    async def _watch(self, session: Session) -> None:
        assert session.compute is not None
        reason = await session.compute.wait()
        if not session.exited.done():
            session.exited.set_result(reason)
        if session.life.live:
            self._spawn(self.end(session, reason, lost=True))

    # --- end ----------------------------------------------------------------------------------

    async def end(self, session: Session, reason: str, lost: bool = False) -> bool:
        """Everything of the session is gone when it returns; False when another call does it."""
        if session.life.phase is State.PROVISIONING:
            session.doomed = reason
            if session.compute is not None:
                await session.compute.kill()
        if not session.life.live or not session.life.stop():
            await session.gone.wait()
            return False
        await self._dispose(session)
        self._forget(session)
        self.templates.release(session.agent)
        state = "lost" if lost else "stopped"
        self.events.session(session.session_id, session.key.runtime_id, state, reason)
        logger.info("session=<%s> reason=<%s> | %s", session.session_id, reason, state)
        return True

    async def _dispose(self, session: Session) -> None:
        if session.compute is not None:
            try:
                async with asyncio.timeout(KILL_TIMEOUT_S):
                    await session.compute.kill()
            except Exception as error:  # noqa: BLE001 - the id must not stay taken for ever
                logger.error(
                    "session=<%s> error=<%r> | compute did not die", session.session_id, error
                )
        for part in (session.egress, session.http):
            if part is not None:
                await part.close()
        if session.watcher is not None and session.watcher is not asyncio.current_task():
            session.watcher.cancel()
        if not session.exited.done():
            session.exited.set_result("stopped")

    def _forget(self, session: Session) -> None:
        session.life.stopped()
        if self.table.get(session.key) is session:
            del self.table[session.key]
            self._named[session.session_id].remove(session)
            if not self._named[session.session_id]:
                del self._named[session.session_id]
        self.admission.ended(session)
        session.gone.set()

    async def close(self) -> None:
        """Ends all of them at once. Those that wait for a template leave with it: ``drain``."""
        self.closing = True
        self.admission.close()
        for task in (self._reaper, self._trimmer):
            if task is not None:
                task.cancel()
        for session in list(self.table.values()):
            self._spawn(self.end(session, "the runtime stopped"))
        live = [s.gone.wait() for s in self.table.values() if s.compute is not None]
        await asyncio.gather(*live)

    async def drain(self) -> None:
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- health -------------------------------------------------------------------------------

    async def _reap(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            for session in list(self.table.values()):
                if session.life.frozen and now < session.life.ends_at:
                    continue
                if end := session.life.overdue(now):
                    self._spawn(self.end(session, end.reason, end.lost))
                elif session.asked:
                    continue
                elif session.life.ping_due(now) or self._rest_due(session, now):
                    session.life.last_ping, session.asked = now, True
                    self._spawn(self._ping(session))

    async def _trim_logs(self) -> None:
        while True:
            await asyncio.sleep(TRIM_S)
            for session in list(self.table.values()):
                if too_large(session.log):
                    session.log_start = 0
                    await asyncio.to_thread(cut, session.log)

    async def _ping(self, session: Session) -> None:
        try:
            await self._check_health(session)
        finally:
            session.asked = False

    async def _check_health(self, session: Session) -> None:
        async with self._pings:
            if not session.life.live:
                return
            status = await ping(session, Connection="close")
        now = time.monotonic()
        if status is None:
            session.life.ping_failed(now)
            return
        if status.busy:
            _wake(session)  # another look may have frozen it while this answer was on its way
        session.life.pinged(now, status.busy, status.unchanged_s)
        if self._rest_due(session, now):
            await asyncio.sleep(SETTLE_S)
            now = time.monotonic()
        if self._at_rest(session, now) and session.compute is not None and session.compute.freeze():
            session.life.freeze()  # whoever sends to it thaws it: see ``connector``

    def _rest_due(self, session: Session, now: float) -> bool:
        idle = session.life.state is State.IDLE and not session.life.failed_pings
        return idle and session.rest is not None and session.rest.due(now, session.life.idle_since)

    def _at_rest(self, session: Session, now: float) -> bool:
        """Asked after every ping: the next answer then knows what has been used since this one."""
        if session.rest is None or session.compute is None or session.life.in_flight:
            return False
        due = self._rest_due(session, now)
        traffic = session.egress.traffic if session.egress is not None else None
        if not session.rest.look(now, session.compute.cpu_s(), traffic) or not due:
            return False
        if session.compute.at_rest():
            return True
        session.rest.since = now
        return False

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _wake(session: Session) -> None:
    """Something comes for it through a door, so it may have work that it did not tell of."""
    if session.life.frozen and session.compute is not None:
        session.compute.thaw()
        session.life.thaw()


class Health(NamedTuple):
    busy: bool
    unchanged_s: float | None


async def ping(session: Session, **headers: str) -> Health | None:
    """None for anything but a 200."""
    assert session.http is not None
    timeout, url = aiohttp.ClientTimeout(total=PING_TIMEOUT_S), session.base_url + "/ping"
    try:
        async with session.http.get(url, timeout=timeout, headers=headers) as answer:
            raw = await answer.content.read(4096)
            if answer.status == 200:
                return parse_health(raw, time.time())
            reason = f"HTTP {answer.status}"
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        reason = repr(error)
    if session.life.live:
        logger.warning("session=<%s> | /ping failed: %s", session.session_id, reason)
    return None


def parse_health(raw: bytes, now: float) -> Health:
    try:
        body = json.loads(raw)
        busy = body.get("status") == "HealthyBusy"
        changed = body.get("time_of_last_update")
        return Health(busy, now - float(changed) if changed is not None else None)
    except (ValueError, TypeError, AttributeError):
        return Health(False, None)


async def _answers(session: Session) -> None:
    delay = 0.005
    while await ping(session) is None:
        await asyncio.sleep(delay)
        delay = min(delay * 1.5, 0.25)


def log_excerpt(session: Session) -> str:
    text = tail(session.log, session.log_start)
    return f" The end of its log:\n{text}" if text else " Its log is empty."
