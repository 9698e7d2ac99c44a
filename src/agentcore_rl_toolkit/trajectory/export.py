"""Rows for other programs: plain dicts, columns, JSON lines, Parquet.

Every form holds the same fields under the same names; ids and masks are integers, a weight version
span is [version, start, end]. Reading JSON lines gives back rows equal to those written. Routed
experts are raw bytes of the engine's own shape and stay out: take them from the row.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ..errors import ConfigError
from .row import Row, RowStatus, TurnSpan

FIELDS = (
    "rollout_id",
    "group_id",
    "session_id",
    "reward",
    "turn_rewards",
    "status",
    "token_ids",
    "loss_mask",
    "logprobs",
    "turn_index",
    "turns",
    "weight_versions",
    "metadata",
)


def to_dict(row: Row) -> dict[str, Any]:
    """Lists and numbers only, ready for JSON."""
    plain = {name: getattr(row, name) for name in FIELDS}
    for name in ("token_ids", "loss_mask", "logprobs", "turn_index"):
        plain[name] = plain[name].tolist()
    plain["status"] = row.status.value
    plain["turns"] = [span._asdict() for span in row.turns]
    plain["weight_versions"] = [list(span) for span in row.weight_versions]
    return plain


def from_dict(plain: dict[str, Any]) -> Row:
    return Row(
        token_ids=np.asarray(plain["token_ids"], np.int32),
        loss_mask=np.asarray(plain["loss_mask"], np.uint8),
        logprobs=np.asarray(plain["logprobs"], np.float32),
        turn_index=np.asarray(plain["turn_index"], np.int32),
        turns=[TurnSpan(**span) for span in plain["turns"]],
        rollout_id=plain["rollout_id"],
        session_id=plain["session_id"],
        group_id=plain["group_id"],
        reward=plain["reward"],
        turn_rewards=plain["turn_rewards"],
        weight_versions=[(str(v), int(a), int(b)) for v, a, b in plain["weight_versions"]],
        status=RowStatus(plain["status"]),
        metadata=dict(plain["metadata"]),
    ).check()


def to_columns(rows: Iterable[Row]) -> dict[str, list[Any]]:
    """One list a field, as long as there are rows."""
    plain = [to_dict(row) for row in rows]
    return {name: [one[name] for one in plain] for name in FIELDS}


def write_jsonl(rows: Iterable[Row], path: Path) -> int:
    """One row a line; returns how many."""
    n = 0
    with path.open("wb") as file:
        for row in rows:
            file.write(msgspec.json.encode(to_dict(row)) + b"\n")
            n += 1
    return n


def read_jsonl(path: Path) -> Iterator[Row]:
    with path.open("rb") as file:
        for line in file:
            yield from_dict(msgspec.json.decode(line))


def write_parquet(rows: Iterable[Row], path: Path) -> int:
    """Nested values that have no fixed shape (turns, metadata) are JSON text; returns how many."""
    try:
        import pyarrow  # type: ignore[import-not-found, import-untyped, unused-ignore]
        import pyarrow.parquet  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        raise ConfigError("writing Parquet needs pyarrow: pip install pyarrow") from None
    rows = list(rows)
    columns = to_columns(rows)
    for name in ("turns", "metadata", "weight_versions"):
        columns[name] = [json.dumps(value) for value in columns[name]]
    table = pyarrow.table(columns)
    pyarrow.parquet.write_table(table, str(path))
    return len(rows)
