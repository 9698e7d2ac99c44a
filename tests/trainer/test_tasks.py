"""Which tasks a step has."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentcore_rl_toolkit.errors import ConfigError
from agentcore_rl_toolkit.trainer.tasks import eval_tasks, phase_of, read_rows, train_tasks

ROWS = [{"n": i} for i in range(5)]


def indices(steps: int, **options: object) -> list[int]:
    chosen = {"seed": 1, "shuffle": True} | options
    return [t.index for s in range(steps) for t in train_tasks(ROWS, s, 2, **chosen)]  # type: ignore[arg-type]


def test_every_row_comes_once_before_any_comes_again() -> None:
    order = indices(10)
    assert [sorted(order[i : i + 5]) for i in range(0, 20, 5)] == [[0, 1, 2, 3, 4]] * 4
    assert order[:5] != order[5:10], "a new order every time"


def test_the_order_is_a_function_of_seed_and_step() -> None:
    assert indices(6) == indices(6)
    assert indices(6) != indices(6, seed=2)
    assert indices(3, shuffle=False) == [0, 1, 2, 3, 4, 0]


def test_group_ids_are_unique_and_tell_phase_and_step() -> None:
    tasks = [*train_tasks(ROWS, 12, 8, seed=0, shuffle=True), *eval_tasks(ROWS, 12)]
    assert len({task.group_id for task in tasks}) == len(tasks)
    assert phase_of(tasks[0].group_id) == ("train", 12)
    assert phase_of(tasks[-1].group_id) == ("eval", 12)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no rows"),
        ('{"a": 1}\n\nnot json\n', ":3 is not JSON"),
        ("[1]\n", ":1 is not a JSON object"),
    ],
    ids=["empty", "not JSON", "not an object"],
)
def test_a_bad_data_file_is_named_by_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_rows(path)


def test_a_limit_reads_no_further(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text('{"a": 1}\n{"a": 2}\nbroken')
    assert read_rows(path, 2) == [{"a": 1}, {"a": 2}]
