"""Every example's evaluation script, as a user starts it: on a deployed agent, with a model."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from .conftest import EXAMPLES

CASES = [
    ("strands_math_agent", "rl_app.py", "evaluate.py"),
    ("strands_appworld_agent", "rl_app.py", "evaluate.py"),
    ("strands_officebench_agent", "rl_app.py", "evaluate.py"),
    ("customer_service_agent", "rl_app.py", "evaluate.py"),
    ("other_frameworks", "openai_rl_app.py", "evaluate.py"),
    ("strands_migration_agent", "rl_app.py", "evaluate.py"),
    ("strands_migration_agent", "rl_app.py", "evaluate_async.py"),
]


@pytest.mark.parametrize(("name", "entry", "script"), CASES)
def test_the_evaluation_script_prints_each_reward_and_the_success(
    runner: ModuleType, name: str, entry: str, script: str, tmp_path: Path
) -> None:
    if name == "strands_migration_agent" and shutil.which("javac") is None:
        pytest.skip("javac is not installed")
    (oracle,) = runner.load(EXAMPLES / name, "oracle")
    data = tmp_path / "tasks.jsonl"
    data.write_text(json.dumps(next(iter(oracle.tasks()))) + "\n")
    environment = oracle.environment() if hasattr(oracle, "environment") else {}
    with (
        runner.serve(oracle.reply) as model,
        runner.deployed(name, entry, environment) as (url, arn),
    ):
        asked = ["--agent", arn, "--base-url", model, "--model-id", "scripted"]
        done = subprocess.run(
            [sys.executable, EXAMPLES / name / script, data, *asked, "--concurrency", "1"],
            capture_output=True,
            text=True,
            env={**os.environ, "AWS_ENDPOINT_URL": url},
        )
    assert done.returncode == 0, done.stderr
    assert "success: 100.0 % of 1 rollouts" in done.stdout
    assert "1 submitted" in done.stdout
