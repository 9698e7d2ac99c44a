"""The math example's own tools: data from GSM8K's layout, and the evaluation script."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from .conftest import MATH, Stack

ROWS = [
    {"question": "Two and two?", "answer": "2 + 2 = <<2+2=4>>4\n#### 4"},
    {"question": "A thousand, twice?", "answer": "1,000 * 2\n#### 2,000"},
]


def make_data(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(MATH / "make_data.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_gsm8k_is_read_from_a_local_copy(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"gsm8k.{kind}"
    if kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    else:
        parquet.write_table(pa.Table.from_pylist(ROWS), path)
    done = make_data("--gsm8k", str(path))
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["answer"] for row in rows] == ["4", "2000"]
    assert rows[0]["prompt"] == "Two and two?"


def test_a_file_that_is_not_gsm8k_is_refused_with_a_reason(tmp_path: Path) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text(json.dumps({"question": "?", "answer": "no mark"}))
    done = make_data("--gsm8k", str(path))
    assert done.returncode == 1
    assert "not GSM8K" in done.stderr


def test_the_evaluation_script_reports_the_success(
    stack: Stack, model_url: str, tmp_path: Path
) -> None:
    data = tmp_path / "test.jsonl"
    data.write_text(make_data("--rows", "3", "--seed", "5").stdout)
    arn = stack.deploy(MATH, "rl_app.py")
    command = [sys.executable, str(MATH / "evaluate.py"), str(data), "--agent", arn]
    command += ["--base-url", model_url, "--model-id", "scripted", "--samples", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, env=stack.env)
    assert done.returncode == 0, done.stderr
    assert "6 submitted: 6 succeeded" in done.stdout
    assert "success: 100.0 % of 6 rollouts" in done.stdout
    assert "solved at least once in 2: 100.0 %" in done.stdout
