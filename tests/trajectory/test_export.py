"""Rows written for other programs and read back."""

from pathlib import Path

import pytest

from agentcore_rl_toolkit.errors import ConfigError
from agentcore_rl_toolkit.trajectory import Row, SessionGraph, assign_rewards
from agentcore_rl_toolkit.trajectory.export import (
    FIELDS,
    read_jsonl,
    to_columns,
    to_dict,
    write_jsonl,
    write_parquet,
)


def rows() -> list[Row]:
    graph = SessionGraph("s", rollout_id="r", group_id="g")
    for prompt, sampled in (([1, 2], [3]), ([1, 2, 3, 4], [5, 6]), ([9], [8])):
        placement = graph.place(prompt_ids=prompt)
        logprobs = [-0.1] * len(sampled)
        versions = [("7", 0, len(sampled))]
        turn = graph.make_turn(placement, sampled=sampled, logprobs=logprobs, versions=versions)
        graph.commit(turn)
    return list(assign_rewards(graph.rows({"task": "é"}), [1.0, 0.0, 0.5]))


def test_json_lines_give_back_the_rows_that_were_written(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    assert write_jsonl(rows(), path) == 2
    for read, written in zip(read_jsonl(path), rows(), strict=True):
        assert to_dict(read) == to_dict(written)
        assert read.logprobs.tobytes() == written.logprobs.tobytes()


def test_columns_are_as_long_as_the_rows() -> None:
    columns = to_columns(rows())
    assert tuple(columns) == FIELDS
    assert {len(column) for column in columns.values()} == {2}
    assert columns["token_ids"] == [[1, 2, 3, 4, 5, 6], [9, 8]]


def test_parquet_needs_pyarrow_and_says_so(tmp_path: Path) -> None:
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        with pytest.raises(ConfigError, match="pip install pyarrow"):
            write_parquet(rows(), tmp_path / "rows.parquet")
        return
    assert write_parquet(rows(), tmp_path / "rows.parquet") == 2
    assert parquet.read_table(tmp_path / "rows.parquet").num_rows == 2
