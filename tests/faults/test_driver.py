"""A driver that was killed goes on where it was: nothing is left out, nothing is run twice."""

from __future__ import annotations

from pathlib import Path

from faults import ledger
from faults.driver import ON_PURPOSE, Past, make_task


def test_a_new_driver_knows_what_its_predecessor_left(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    book = ledger.Ledger(path)
    for task in range(3):
        book.write("submit", task=task, rollout=f"r{task}", at=0.0)
        book.write("open", rollout=f"r{task}", session=f"s{task}")
    book.write("open", rollout="r1", session="s1-again")
    book.write("end", task=0, rollout="r0", session="s0")
    book.close()
    with path.open("ab") as file:
        file.write(b'{"kind": "end", "task": 1, "roll')
    past = Past(path)
    assert list(past.unfinished) == [1, 2]
    assert past.next == 3
    assert past.orphans == ["s1", "s2", "s1-again"]


def test_a_first_driver_begins_with_nothing(tmp_path: Path) -> None:
    past = Past(tmp_path / "none.jsonl")
    assert (list(past.unfinished), past.next, past.orphans) == ([], 0, [])


def test_tasks_are_of_the_seed_and_some_fail_on_purpose() -> None:
    tasks = [make_task(1, index, 0.1, None) for index in range(200)]
    assert tasks == [make_task(1, index, 0.1, None) for index in range(200)]
    failing = [task for task in tasks if task.payload.get("fail") == ON_PURPOSE]
    assert 0 < len(failing) < 40
    assert {task.payload["stream"] for task in tasks} == {True, False}
    assert make_task(1, 0, 0.1, 7).payload["turns"] == 7
