"""Which tasks a step has: a pure function of the data, the seed and the step.

So nothing about the order has to be saved: a resumed run asks for the same step again, and what
was in flight when it stopped is collected anew.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..collect.record import Task
from ..errors import ConfigError

Rows = Sequence[Mapping[str, Any]]


def read_rows(path: str | Path, limit: int | None = None) -> list[dict[str, Any]]:
    """Each row is a payload. ConfigError names the line that is none."""
    if Path(path).suffix == ".parquet":
        return _read_parquet(path)[:limit]
    rows: list[dict[str, Any]] = []
    try:
        with Path(path).open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if len(rows) == limit:
                    break
                if line.strip():
                    rows.append(_row(line, f"{path}:{number}"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the data file cannot be read: {error}") from None
    if not rows:
        raise ConfigError(f"{path} has no rows")
    return rows


def _read_parquet(path: str | Path) -> list[dict[str, Any]]:
    """Values keep the types that the file gives them."""
    try:
        import pyarrow.parquet  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        raise ConfigError("reading Parquet needs pyarrow: pip install pyarrow") from None
    try:
        rows: list[dict[str, Any]] = pyarrow.parquet.read_table(str(path)).to_pylist()
    except (OSError, pyarrow.ArrowInvalid) as error:
        raise ConfigError(f"the data file cannot be read: {error}") from None
    if not rows:
        raise ConfigError(f"{path} has no rows")
    return rows


def _row(line: str, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise ConfigError(f"{where} is not JSON: {error}") from None
    if not isinstance(row, dict):
        raise ConfigError(f"{where} is not a JSON object: each row is the payload of a rollout")
    return row


def train_tasks(rows: Rows, step: int, per_step: int, *, seed: int, shuffle: bool) -> list[Task]:
    """Those of one step, counted from 0; every row comes once before any comes again."""
    found = []
    for number in range(step * per_step, (step + 1) * per_step):
        epoch, place = divmod(number, len(rows))
        index = place
        if shuffle:
            index = int(np.random.default_rng([seed, epoch]).permutation(len(rows))[place])
        name = f"train-{step:06d}-{number - step * per_step:04d}"
        found.append(Task(index, name, rows[index]))
    return found


def eval_tasks(rows: Rows, step: int) -> list[Task]:
    return [Task(i, f"eval-{step:06d}-{i:05d}", row) for i, row in enumerate(rows)]


def phase_of(group_id: str) -> tuple[str, int]:
    """``train`` or ``eval``, and the step."""
    phase, step, _ = group_id.split("-")
    return phase, int(step)
