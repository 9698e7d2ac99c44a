"""The manager of verl's agent-loop workers, with stand-ins for Ray, verl and its queue."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

NAME = "agentcore_rl_toolkit.backends.verl.manager"


class ActorDied(Exception):
    pass


class Queue:
    """verl's transfer queue: tags of groups and of their rows."""

    def __init__(self) -> None:
        self.train: dict[str, dict[str, Any]] = {}

    def kv_list(self) -> dict[str, dict[str, Any]]:
        return {"train": dict(self.train)}

    def kv_clear(self, partition_id: str, keys: list[str]) -> None:
        for key in keys:
            del self.train[key]

    def group(self, uid: str, status: str, *rows: str) -> None:
        self.train[uid] = {"is_prompt": True, "status": status}
        self.train |= {f"{uid}_{row}": {"status": "success"} for row in rows}


class Chunk(list[str]):
    """A batch of groups, as tensordict gives it: by column, or by a list of places."""

    def __getitem__(self, key: Any) -> Any:
        if key == "uid":
            return list(self)
        return Chunk([list(self)[at] for at in key])

    def chunk(self, count: int) -> list[Chunk]:
        size = -(-len(self) // count)
        whole = list(self)
        return [Chunk(whole[at : at + size]) for at in range(0, len(self), size)]


class Worker:
    def __init__(self) -> None:
        self.given: list[list[str]] = []
        self.dead = False
        self.generate_sequences = SimpleNamespace(remote=self._begin)
        self.__ray_ready__ = SimpleNamespace(remote=lambda: self._answer)

    def _answer(self) -> None:
        if self.dead:
            raise ActorDied

    def _begin(self, chunk: Chunk) -> Callable[[], None]:
        def begin() -> None:
            self._answer()
            self.given.append(list(chunk))

        return begin


@pytest.fixture
def queue() -> Queue:
    return Queue()


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch, queue: Queue) -> Iterator[Any]:
    class Base:
        def __init__(self) -> None:
            self.config = self.llm_client = self.teacher_client = None
            self.reward_loop_worker_handles = None
            self.agent_loop_workers_class = SimpleNamespace(remote=lambda *_: Worker())

    stand_ins: dict[str, dict[str, Any]] = {
        "ray": {"get": lambda call: call()},
        "ray.exceptions": {"RayActorError": ActorDied},
        "transfer_queue": {"kv_list": queue.kv_list, "kv_clear": queue.kv_clear},
        "verl": {},
        "verl.trainer": {},
        "verl.trainer.ppo": {},
        "verl.trainer.ppo.v1": {"AgentLoopManagerTQ": Base},
    }
    for name, members in stand_ins.items():
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    module = importlib.import_module(NAME)
    # no thread: the tests look when they want to
    monkeypatch.setattr(module.threading, "Thread", lambda **_: SimpleNamespace(start=lambda: 0))
    made = module.AgentCoreManager()
    made.agent_loop_workers = [Worker(), Worker()]
    yield made
    del sys.modules[NAME]


def test_groups_are_shared_among_the_workers(manager: Any) -> None:
    manager.generate_sequences(Chunk(["a", "b", "c"]))
    assert [worker.given for worker in manager.agent_loop_workers] == [[["a", "b"]], [["c"]]]


def test_groups_of_a_dead_worker_begin_anew_without_their_rows(manager: Any, queue: Queue) -> None:
    manager.generate_sequences(Chunk(["a", "b", "c"]))
    dead, other = manager.agent_loop_workers
    queue.group("a", "running", "0_0", "1_0", "1_1")
    queue.group("b", "finished", "0_0")
    queue.group("c", "running", "0_0")
    dead.dead = True
    manager.look()
    new, same = manager.agent_loop_workers
    assert new is not dead
    assert same is other
    assert new.given == [["a"]], "what had ended stays as it is"
    assert sorted(queue.train) == ["a", "b", "b_0_0", "c", "c_0_0"]


def test_a_worker_that_is_found_dead_when_it_is_asked_is_replaced(
    manager: Any, queue: Queue
) -> None:
    manager.agent_loop_workers[1].dead = True
    queue.group("a", "pending")
    queue.group("b", "pending")
    manager.generate_sequences(Chunk(["a", "b"]))
    assert [worker.given for worker in manager.agent_loop_workers] == [[["a"]], [["b"]]]


def test_one_that_nothing_waits_for_is_left_alone(manager: Any, queue: Queue) -> None:
    manager.generate_sequences(Chunk(["a", "b"]))
    queue.group("b", "running")  # the group of the first was taken by the trainer
    manager.agent_loop_workers[0].dead = True
    before = list(manager.agent_loop_workers)
    manager.look()
    assert manager.agent_loop_workers == before
