"""verl's manager of agent-loop workers, which outlives their gateways.

Imported by verl in its task runner. A gateway lives and dies with its worker, and verl waits for
ever for the groups of a worker that is gone. This one asks its workers once a second whether they
are there. In the place of a dead one comes a new one, and the groups that had not ended begin anew
there; what they had handed over is taken back first, so nothing of them is trained twice. Groups
that had ended stay.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterable
from typing import Any

import ray  # type: ignore[import-not-found]
import transfer_queue as tq  # type: ignore[import-not-found]
from ray.exceptions import RayActorError  # type: ignore[import-not-found]
from verl.trainer.ppo.v1 import AgentLoopManagerTQ  # type: ignore[import-not-found]

logger = logging.getLogger(__name__)

ASK_S = 1.0
UNFINISHED = ("pending", "running")


class AgentCoreManager(AgentLoopManagerTQ):  # type: ignore[misc]
    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._given: dict[int, list[Any]] = {}
        """What each worker was given, as long as some of it has not ended."""
        self._lock = threading.Lock()
        threading.Thread(target=self._watch, name="agent-loop-workers", daemon=True).start()

    def generate_sequences(self, prompts: Any) -> None:
        """Returns when the workers have begun; what they make goes into verl's queue."""
        chunks = prompts.chunk(len(self.agent_loop_workers))
        with self._lock:
            self._forget()
            for place, chunk in enumerate(chunks):
                self._given.setdefault(place, []).append(chunk)
            begun = [
                (place, self.agent_loop_workers[place].generate_sequences.remote(chunk))
                for place, chunk in enumerate(chunks)
            ]
            for place, call in begun:
                try:
                    ray.get(call)
                except RayActorError:
                    self._replace(place)

    def _watch(self) -> None:
        while True:
            time.sleep(ASK_S)
            self.look()

    def look(self) -> None:
        """Replaces the workers that died over something."""
        for place, worker in enumerate(getattr(self, "agent_loop_workers", ())):
            try:
                ray.get(worker.__ray_ready__.remote())
            except RayActorError:
                with self._lock:
                    self._forget()
                    # one that nothing waits for is replaced when it is given something
                    if self._given.get(place) and self.agent_loop_workers[place] is worker:
                        self._replace(place)

    def _replace(self, place: int) -> None:
        worker = self.agent_loop_workers_class.remote(
            self.config, self.llm_client, self.teacher_client, self.reward_loop_worker_handles
        )
        self.agent_loop_workers[place] = worker
        self._forget()
        for chunk in self._given.get(place, ()):
            left = unfinished(chunk, statuses())
            logger.warning("worker=<%d> groups=<%d> | a worker died, begun anew", place, len(left))
            take_back([uid_of(chunk, at) for at in left])
            with contextlib.suppress(RayActorError):  # dead already: seen at the next look
                ray.get(worker.generate_sequences.remote(chunk[left]))

    def _forget(self) -> None:
        known = statuses()
        for place, chunks in self._given.items():
            self._given[place] = [chunk for chunk in chunks if unfinished(chunk, known)]


def statuses() -> dict[str, str]:
    """Of every group that verl knows."""
    found = tq.kv_list() or {}
    return {
        key: tag["status"]
        for keys in found.values()
        for key, tag in keys.items()
        if tag.get("is_prompt")
    }


def unfinished(chunk: Any, known: dict[str, str]) -> list[int]:
    """Places of the groups that have not ended; one that verl has taken is no longer known."""
    return [at for at in range(len(chunk)) if known.get(uid_of(chunk, at)) in UNFINISHED]


def uid_of(chunk: Any, at: int) -> str:
    return str(chunk["uid"][at])


def take_back(uids: Iterable[str]) -> None:
    """Removes the rows of groups, not the groups; rows are named after them."""
    wanted = set(uids)
    for partition, keys in (tq.kv_list() or {}).items():
        rows = [key for key in keys if "_" in key and key.split("_")[0] in wanted]
        if rows:
            tq.kv_clear(partition_id=partition, keys=rows)
