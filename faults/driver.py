"""The trainer of the chaos run: ``python -m faults.driver …``, may be killed at any moment.

Keeps a number of rollouts under way and writes down what becomes of each (``ledger.py``). Started
again it ends what its predecessor left: sessions are stopped, rollouts that did not end are run
again, then come new ones. SIGTERM: no more new ones, and the end when the last is settled.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import signal
import time
from pathlib import Path
from typing import Any

import aiohttp
from botocore.exceptions import BotoCoreError, ClientError

from agentcore_rl_toolkit.client import RolloutClient
from agentcore_rl_toolkit.collect import Collector, CollectSetting, Rollout, Task
from agentcore_rl_toolkit.gateway.admin import Opened
from agentcore_rl_toolkit.gateway.fault import Refusal
from agentcore_rl_toolkit.gateway.session import OpenSession
from agentcore_rl_toolkit.local import DEFAULT_BUCKET

from . import ledger
from .remote import RemoteGateway

REPORT_S = 1.0
ON_PURPOSE = "on purpose"


class NotedGateway(RemoteGateway):
    """Writes down which sessions belong to which rollout, before they are there."""

    def __init__(self, book: ledger.Ledger, *given: Any) -> None:
        super().__init__(*given)
        self._book = book

    async def open_session(self, spec: OpenSession) -> Opened:
        self._book.write("open", rollout=spec.rollout_id, session=spec.session_id)
        return await super().open_session(spec)


def make_task(seed: int, index: int, think_s: float, turns: int | None) -> Task:
    """``turns``: of every task; None: by chance, as is that one in twenty fails on purpose."""
    draw = random.Random(f"{seed}/{index}")
    payload: dict[str, Any] = {
        "prompt": f"task {index}",
        "turns": turns or draw.randint(1, 5),
        "stream": draw.random() < 0.5,
        "idempotent": draw.random() < 0.5,
        "think_s": draw.uniform(0, 2 * think_s),
    }
    if turns is not None:
        payload["patience_s"] = 60.0
    elif draw.random() < 0.05:
        payload["fail"] = ON_PURPOSE
    return Task(index, f"g{index:06d}", payload)


class Past:
    """What earlier drivers did."""

    def __init__(self, path: Path) -> None:
        self.sessions: dict[str, str] = {}
        self.unfinished: dict[int, None] = {}
        self.next = 0
        ended: set[str] = set()
        for line in ledger.read(path):
            if line["kind"] == "submit":
                self.unfinished[line["task"]] = None
                self.next = max(self.next, line["task"] + 1)
            elif line["kind"] == "open":
                self.sessions[line["session"]] = line["rollout"]
            elif line["kind"] == "end":
                self.unfinished.pop(line["task"], None)
                ended.add(line["rollout"])
        self.orphans = [s for s, rollout in self.sessions.items() if rollout not in ended]


class Driver:
    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.past = Past(given.ledger)
        self.book = ledger.Ledger(given.ledger)
        self.stopping = asyncio.Event()

    async def run(self) -> None:
        given = self.given
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.stopping.set)
        connector = aiohttp.TCPConnector(limit=0)
        client = RolloutClient(
            given.arn,
            DEFAULT_BUCKET,
            given.exp,
            tps_limit=given.rate,
            max_pool_connections=given.concurrent,
            endpoint_url=given.runtime,
        )
        async with aiohttp.ClientSession(connector=connector) as http, client:
            gateway = NotedGateway(self.book, http, given.gateway, given.token)
            setting = CollectSetting(
                max_concurrent=given.concurrent, timeout_s=given.timeout, retries=2, drain_s=2.0
            )
            collector = Collector(client, gateway, setting, on_rollout=self._ended)
            await self._clear(client, gateway)
            await self._work(collector)
            self.book.write("stop", report=ledger.report_line(collector.report()))
        self.book.close()

    def _ended(self, rollout: Rollout) -> None:
        self.book.write("end", at=time.time(), **ledger.end_line(rollout))

    async def _clear(self, client: RolloutClient, gateway: RemoteGateway) -> None:
        """Sessions that a killed predecessor left running."""

        async def end(session: str) -> None:
            try:
                await asyncio.to_thread(
                    client.agentcore_client.stop_runtime_session,
                    agentRuntimeArn=self.given.arn,
                    runtimeSessionId=session,
                )
            except (BotoCoreError, ClientError):
                pass  # it was never started, or ends by itself when it is idle
            try:
                await gateway.finish_session(session, timeout_s=0.0)
            except Refusal:
                pass

        await asyncio.gather(*map(end, self.past.orphans))

    async def _work(self, collector: Collector) -> None:
        running: set[asyncio.Task[Any]] = set()
        queue = list(self.past.unfinished)
        index = self.past.next
        reported = 0.0
        while not (self.stopping.is_set() and not queue and not running):
            while len(running) < self.given.concurrent and (queue or not self.stopping.is_set()):
                number, index = (queue.pop(0), index) if queue else (index, index + 1)
                task = make_task(self.given.seed, number, self.given.think, self.given.turns)
                self.book.write(
                    "submit", at=time.monotonic(), task=number, rollout=f"{task.group_id}-0"
                )
                running.add(asyncio.create_task(collector.rollout(task)))
            done, running = await asyncio.wait(
                running, timeout=0.25, return_when=asyncio.FIRST_COMPLETED
            )
            for one in done:
                one.result()
            if time.monotonic() - reported > REPORT_S:
                reported = time.monotonic()
                self.book.write("report", **ledger.report_line(collector.report()))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m faults.driver")
    parser.add_argument("--ledger", type=Path, required=True)
    for name in ("runtime", "gateway", "token", "arn"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--exp", default="faults")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--concurrent", type=int, default=8)
    parser.add_argument("--rate", type=float, default=50.0, help="calls a second to the runtime")
    parser.add_argument("--timeout", type=float, default=90.0, help="seconds of an attempt")
    parser.add_argument("--think", type=float, default=0.05, help="seconds between turns")
    parser.add_argument("--turns", type=int, help="of every rollout; default: by chance")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("botocore").setLevel(logging.WARNING)
    asyncio.run(Driver(given).run())


if __name__ == "__main__":
    main()
