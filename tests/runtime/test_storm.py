"""Session storms: many ids created, invoked, commanded, stopped and revived in random order.

Afterwards the runtime's table, the processes of the machine and what the callers were told agree.
"""

from __future__ import annotations

import os
import random
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from agentcore_rl_toolkit.runtime.isolation.inside import tree
from agentcore_rl_toolkit.runtime.quota import Quota
from agentcore_rl_toolkit.runtime.thread import RuntimeThread

from .conftest import Aws, alive, until

SESSIONS = 500
LIVE = 40
"""At a time, roughly: each worker keeps a few and stops the rest."""
WORKERS = 8


class Worker:
    """One caller with ids of its own, so that it knows what each must answer."""

    def __init__(self, aws: Aws, arn: str, ids: list[str], seed: int) -> None:
        self.aws, self.arn = aws, arn
        self.fresh, self.random = ids, random.Random(seed)
        self.calls: dict[str, int] = {}
        """Of the live ones."""
        self.stopped: list[str] = []
        self.seen: set[str] = set()
        self.revived = 0

    def run(self) -> None:
        while self.fresh:
            if len(self.calls) >= LIVE // WORKERS:
                self.stop()
            self.random.choice(STEPS)(self)

    def create(self) -> None:
        if self.fresh:
            self.ask(self.fresh.pop())

    def invoke(self) -> None:
        if self.calls:
            self.ask(self.random.choice(list(self.calls)))

    def stop(self) -> None:
        if self.calls:
            sid = self.random.choice(list(self.calls))
            self.aws.stop(self.arn, sid)
            del self.calls[sid]
            self.stopped.append(sid)

    def revive(self) -> None:
        if self.stopped:
            sid = self.stopped.pop(self.random.randrange(len(self.stopped)))
            with pytest.raises(ClientError, match="No active session"):
                self.aws.stop(self.arn, sid)
            self.revived += 1
            self.ask(sid)

    def ask(self, sid: str) -> None:
        seen = self.aws.ask(self.arn, {}, sid)
        self.calls[sid] = self.calls.get(sid, 0) + 1
        assert seen["calls"] == self.calls[sid], "a session that is revived starts anew"
        assert seen["headers"]["x-amzn-bedrock-agentcore-runtime-session-id"] == sid
        self.seen.add(sid)


STEPS = [*[Worker.create] * 6, Worker.invoke, Worker.stop, Worker.revive]


def ready(runtime: RuntimeThread) -> set[int]:
    """First processes of sessions that wait to be taken."""

    def look() -> set[int]:
        entries = runtime.server.templates._entries.values()
        pools = [entry.task.result()._pool for entry in entries]  # type: ignore[attr-defined]
        return {member.compute.pid for pool in pools for member in pool._ready}

    return set(runtime.call(look))


def below(table: dict[int, int], pids: set[int]) -> set[int]:
    return {pid for one in pids for pid in (one, *tree.descendants(one, table))}


def started_since(before: set[int]) -> set[int]:
    """By this process: what runs already, such as a runtime of other tests, may start more."""
    table, mine = tree.parents(), {os.getpid()}
    return below(table, mine) - below(table, before - mine) - mine


@pytest.mark.slow
def test_after_a_storm_of_500_sessions_processes_and_state_agree(tmp_path: Path) -> None:
    quota = Quota(max_sessions=LIVE * 2)
    with RuntimeThread(home=tmp_path, isolation="process", quota=quota) as runtime:
        aws = Aws(runtime.url, retries={"mode": "standard", "total_max_attempts": 5})
        outside = below(tree.parents(), {os.getpid()})
        arn = aws.deploy()
        prepared = started_since(outside)
        ids = [str(uuid.UUID(int=random.Random(n).getrandbits(128))) for n in range(SESSIONS)]
        workers = [Worker(aws, arn, ids[n::WORKERS], seed=n) for n in range(WORKERS)]
        with ThreadPoolExecutor(WORKERS) as pool:
            list(pool.map(Worker.run, workers))
        assert set().union(*(worker.seen for worker in workers)) == set(ids)
        assert sum(worker.revived for worker in workers) > 20
        check_agreement(
            aws, workers, lambda: started_since(outside) - prepared, lambda: ready(runtime)
        )
        aws.close()
    assert not started_since(outside)


def check_agreement(
    aws: Aws, workers: list[Worker], running: Callable[[], set[int]], ready: Callable[[], set[int]]
) -> None:
    expected = {sid for worker in workers for sid in worker.calls}
    found: dict[str, Any] = aws.sessions()
    assert found.keys() == expected
    assert {one["state"] for one in found.values()} <= {"idle", "active", "frozen"}
    firsts = {int(one["pid"]) for one in found.values()}
    assert len(firsts) == len(expected)
    assert all(alive(pid) for pid in firsts)

    def strays() -> set[int]:
        known = below(tree.parents(), firsts | ready())
        return {pid for pid in running() - known if alive(pid)}

    until(lambda: not strays(), "nothing runs that belongs to no session")
    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(lambda one: [one.stop() for _ in list(one.calls)], workers))
    assert aws.sessions() == {}
    until(lambda: not any(alive(pid) for pid in firsts), "the processes are gone")
