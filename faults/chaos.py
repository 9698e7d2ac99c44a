"""Carries events out, and checks all along: the run itself.

Handlers of events run beside each other, as faults do; whoever does something to a part holds its
lock until it is up again, and the next waits. An event that finds nothing to hit is skipped and
counted as such. The first violation ends the run.
"""

from __future__ import annotations

import asyncio
import collections
import os
import random
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from agentcore_rl_toolkit.run.reader import RunReader

from . import invariant, leak, ledger
from .event import HURT_S, QUIET_S, Event
from .part import PartError, limit_files, parent, send, tree
from .proxy import Kind, Rule, error_reply
from .stack import Stack

LOOK_S = 2.0
JOURNAL_LOOK_S = 20.0
LAST_S = 240.0
"""For the rollouts that are under way at the end: an attempt's timeout, twice, and some."""
PATIENCE_S = 20.0
"""For a session, or a worker, that can be killed."""
AWS = {"500": "InternalServerException", "429": "ThrottlingException"}
AWS["402"] = "ServiceQuotaExceededException"


class ViolationError(Exception):
    """Sentences, one a line."""


class Chaos:
    def __init__(
        self, stack: Stack, events: list[Event], seconds: float, say: Callable[[str], None]
    ) -> None:
        self.stack, self.events, self.seconds, self._say = stack, events, seconds, say
        self.happened: list[str] = []
        self.injected: collections.Counter[str] = collections.Counter()
        self.skipped: collections.Counter[str] = collections.Counter()
        self.checked: collections.Counter[str] = collections.Counter()
        self.levels: dict[str, list[float]] = {}
        self.files: dict[str, list[int]] = {}
        self.fates: dict[str, int] = {}
        self.report: dict[str, Any] = {}
        self.calm_ends = 0
        self._running: set[asyncio.Task[None]] = set()
        self._began = 0.0

    @property
    def now(self) -> float:
        return time.monotonic() - self._began

    async def run(self) -> None:
        """ViolationError or PartError when something does not hold."""
        self._began = time.monotonic()
        watcher = asyncio.create_task(self._watch())
        try:
            await self._until(watcher, self._storm())
            calm_from = time.monotonic() + HURT_S
            await self._until(watcher, self._rest(calm_from))
            await self._until(watcher, self._finish())
        finally:
            watcher.cancel()
            await asyncio.gather(watcher, return_exceptions=True)
        lines = list(ledger.read(self.stack.ledger))
        self._hold("calm", invariant.calm(lines, calm_from))
        await asyncio.to_thread(self._look_deep, over=True)

    async def _until(self, watcher: asyncio.Task[None], work: Awaitable[None]) -> None:
        """The work, unless what watches finds something first."""
        task = asyncio.ensure_future(work)
        await asyncio.wait({watcher, task}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if watcher.done():
            watcher.result()
        await task

    async def _storm(self) -> None:
        for event in self.events:
            await asyncio.sleep(max(0.0, event.at - self.now))
            self.happened.append(str(event))
            task = asyncio.create_task(self._carry_out(event))
            self._running.add(task)
        await asyncio.sleep(max(0.0, self.seconds - QUIET_S - self.now))

    async def _rest(self, calm_from: float) -> None:
        """Until as many rollouts as run at a time were begun in calm and have ended."""
        await asyncio.sleep(QUIET_S)
        deadline = time.monotonic() + LAST_S
        while self.calm_ends < self.stack.concurrent:
            if time.monotonic() > deadline:
                raise ViolationError(f"calm: only {self.calm_ends} rollouts ended in {LAST_S} s")
            await asyncio.sleep(1.0)
            lines = await asyncio.to_thread(lambda: list(ledger.read(self.stack.ledger)))
            self.calm_ends = len(invariant.ended_since(lines, calm_from))
        self.checked["rollouts in calm"] = self.calm_ends

    async def _finish(self) -> None:
        """Settles what is under way; the trainer ends by itself."""
        await asyncio.gather(*self._running)
        driver = self.stack.parts["driver"]
        await driver.stop(LAST_S)
        if driver.process is None or driver.process.returncode != 0:
            raise PartError(f"the driver did not end well: {driver.said()}")

    # --- events -----------------------------------------------------------------------------------

    async def _carry_out(self, event: Event) -> None:
        head, _, tail = event.kind.partition("_")
        if "." in event.kind:
            done = self._fault(event)
        elif head == "kill" and tail in ("session", "zygote", "worker"):
            done = await self._kill_below(tail, event.detail["pick"])
        elif head == "kill":
            done = await self._kill_part(tail, event.detail)
        elif head == "pause":
            done = await self._pause(tail, event.detail["seconds"])
        elif head == "disk":
            done = await self._fill_disk(tail, event.detail)
        elif event.kind == "clock":
            self.stack.jump(event.detail["offset_s"])
            done = True
        else:
            self.stack.links[event.detail["link"]].cut_all()
            done = True
        (self.injected if done else self.skipped)[event.kind] += 1

    def _fault(self, event: Event) -> bool:
        link, _, name = event.kind.partition(".")
        kind, _, status = name.partition("_") if name.startswith("status") else (name, "", "")
        detail = event.detail
        rule = Rule(
            kind=_kind(kind),
            share=detail["share"],
            until=time.monotonic() + detail["seconds"],
            reply=reply_of(link, status) if status else b"",
            after=detail["after"],
            seconds=detail["late_s"],
            # S3 knows neither of the two
            path="/runtimes/" if link == "client" and status in ("402", "429") else "",
        )
        self.stack.links[link].rules.append(rule)
        return True

    async def _kill_below(self, what: str, pick: int) -> bool:
        """A process that belongs to a part, which has to get over it."""
        owner = self.stack.parts["gateway" if what == "worker" else "runtime"]
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            async with owner.lock:
                found = await self._below(what)
                if found:
                    return send(sorted(found)[pick % len(found)], signal.SIGKILL)
            await asyncio.sleep(0.2)
        return False

    async def _below(self, what: str) -> set[int]:
        if what == "worker":
            return set(self.stack.workers())
        pids = {one["pid"] for one in await self.stack.sessions() if one.get("pid")}
        if what == "session":
            return pids
        parents = {parent(pid) for pid in pids}
        return parents - {0, 1, self.stack.parts["runtime"].pid, os.getpid()}

    async def _kill_part(self, name: str, detail: dict[str, Any]) -> bool:
        part = self.stack.parts[name]
        async with part.lock:
            below = self.stack.workers() if name == "gateway" else []
            await part.kill()
            await asyncio.sleep(detail["down_s"])
            if name == "gateway":
                await _gone(below)
                if detail["torn"]:
                    self._tear(detail["torn"])
            await part.start()
        return True

    def _tear(self, how: str) -> None:
        """What a crashed machine leaves at the end of a file; nothing that was acknowledged."""
        draw = random.Random(f"{self.stack.seed}/{how}/{len(self.happened)}")
        for path in self.stack.journals():
            data = path.read_bytes()
            tail = {
                "garbage": draw.randbytes(draw.randrange(1, 300)),
                "zeros": bytes(draw.randrange(1, 5000)),
                "half a frame": data[8 : 8 + draw.randrange(1, 60)],
            }[how]
            with path.open("ab") as file:
                file.write(tail)

    async def _pause(self, name: str, seconds: float) -> bool:
        part = self.stack.parts[name]
        async with part.lock:
            await part.hold(seconds)
        return True

    async def _fill_disk(self, name: str, detail: dict[str, Any]) -> bool:
        part = self.stack.parts[name]
        async with part.lock:
            if name == "gateway":
                pids = self.stack.workers()
                room = max((path.stat().st_size for path in self.stack.journals()), default=0)
            else:
                pids, room = [part.pid], 0
            limit_files(pids, room + detail["room"])
            await asyncio.sleep(detail["seconds"])
            # what was started meanwhile has inherited it
            limit_files([*pids, *tree(part.pid)], None)
        return True

    # --- watching ---------------------------------------------------------------------------------

    async def _watch(self) -> None:
        deep = time.monotonic() + JOURNAL_LOOK_S
        while True:
            await asyncio.sleep(LOOK_S)
            for task in [one for one in self._running if one.done()]:
                self._running.discard(task)
                task.result()
            for part in self.stack.parts.values():
                if not part.lock.locked():
                    part.check()
            lines = await asyncio.to_thread(lambda: list(ledger.read(self.stack.ledger)))
            self._hold("exactly once", invariant.exactly_once(lines, over=False))
            self._levels()
            self._progress(lines)
            if time.monotonic() > deep:
                await asyncio.to_thread(self._look_deep, over=False)
                deep = time.monotonic() + JOURNAL_LOOK_S

    def _look_deep(self, *, over: bool) -> None:
        """Ledger and logs are read before the journal: it has at least what they speak of."""
        lines = list(ledger.read(self.stack.ledger))
        told = invariant.read_told(self.stack.home / "runtime" / "logs")
        for line in lines:
            if line["kind"] == "end" and line["told"] is not None:
                told[line["session"]] = line["told"]
        journal = RunReader(self.stack.run_dir).sessions()
        self._hold("exactly once", invariant.exactly_once(lines, over=over))
        self._hold("acknowledged", invariant.acknowledged(told, journal))
        self._hold("trained", invariant.trained(lines, told, journal))
        self.checked["acknowledged turns"] = sum(map(len, told.values()))
        self.fates = invariant.fates(lines, journal)
        self.report = summary(lines)

    def _hold(self, name: str, wrong: list[str]) -> None:
        self.checked[name] += 1
        if wrong:
            raise ViolationError("\n".join(f"{name}: {text}" for text in wrong[:20]))

    def _levels(self) -> None:
        for name in ("runtime", "gateway"):
            part = self.stack.parts[name]
            if part.up and not part.lock.locked():
                pids = [part.pid, *self.stack.workers()] if name == "gateway" else [part.pid]
                self.levels.setdefault(name, []).append(leak.memory_mb(pids))
                self.files.setdefault(name, []).append(leak.files(pids))

    def _progress(self, lines: list[dict[str, Any]]) -> None:
        ends = [line for line in lines if line["kind"] == "end"]
        failed = collections.Counter(line["failure"] for line in ends if line["failure"])
        memory = " ".join(f"{name} {values[-1]:.0f} MB" for name, values in self.levels.items())
        self._say(
            f"{self.now:5.0f} s  {self.injected.total()} faults, {len(ends)} rollouts ended, "
            f"{failed.total()} failed; {memory}"
        )


def _kind(name: str) -> Kind:
    kinds: dict[str, Kind] = {
        "status": "status",
        "cut_request": "cut_request",
        "cut_answer": "cut_answer",
        "lose_answer": "lose_answer",
        "late": "late",
        "slow": "slow",
        "duplicate": "duplicate",
    }
    return kinds[name]


def reply_of(link: str, status: str) -> bytes:
    """An error as the service behind the link would write it."""
    if link == "client":
        body = '{"message": "made up by the fault relay"}'
        return error_reply(int(status), body, {"x-amzn-ErrorType": AWS[status]})
    return error_reply(int(status), '{"error": {"message": "made up", "type": "fault"}}')


async def _gone(pids: list[int]) -> None:
    """Workers end by themselves when their parent is killed; until then the journal is theirs."""
    deadline = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        if time.monotonic() > deadline:
            raise PartError(f"workers {pids} outlived their gateway")
        await asyncio.sleep(0.05)


def summary(lines: list[dict[str, Any]]) -> dict[str, Any]:
    ends = [line for line in lines if line["kind"] == "end"]
    failed = collections.Counter(line["failure"] for line in ends if line["failure"])
    return {
        "submitted": len({line["rollout"] for line in lines if line["kind"] == "submit"}),
        "ended": len(ends),
        "succeeded": sum(line["failure"] is None for line in ends),
        "failed": dict(failed),
        "attempts": sum(line["attempts"] for line in ends),
        "trained tokens": sum(row["tokens"] for line in ends for row in line["rows"]),
    }
