"""Real trainers with everything that can die killed in mid-step, on a runtime that throttles.

Steps complete, nothing is trained twice, and every rollout is accounted for.
"""

from __future__ import annotations

import collections
import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from agentcore_rl_toolkit.run.reader import RunReader

from .conftest import beside

pytestmark = [pytest.mark.backends, pytest.mark.timeout(1500)]

HERE = Path(__file__).parent
AGENT = HERE.parent / "trainer" / "lucky_agent"
TASKS, GROUP, STEPS = 2, 4, 3
THROTTLED = "new_sessions=2"
RUN_S = 900.0
TOLERANCE = 1e-5


environment, place, tiny_model = map(beside, ("environment", "place", "tiny_model"))


@pytest.fixture(scope="module")
def tinker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    base = tmp_path_factory.mktemp("tinker")
    tiny_model.save(base / "model", 0)
    with place.tinker_server(base, base / "model") as url:
        yield url, base / "model"


def write_config(folder: Path, where: Any, model: Path, **sections: Any) -> list[str]:
    """The words after ``art`` that train with it."""
    rows = [{"prompt": f"say {i}", "answer": str(i)} for i in range(4)]
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = {
        "agent": {"arn": where.arn, "endpoint_url": where.url},
        "data": {"train": "data.jsonl"},
        "model": {"path": str(model), "max_tokens": 256},
        "rollout": {"group_size": GROUP, "tasks_per_step": TASKS, "sampling": {"max_tokens": 8}},
        "train": {"steps": STEPS, "lr": 1e-3, "save_every": 1},
        **sections,
    }
    (folder / "train.yaml").write_text(yaml.safe_dump(config))
    return ["-m", "agentcore_rl_toolkit.cli.main", "train", "train.yaml"]


def metrics(run: Path) -> list[dict[str, Any]]:
    found = RunReader(run).metrics() if run.exists() else ()
    return [line for line in found if line["kind"] == "step"]


@pytest.mark.quick
def test_tinker_outlives_its_sessions_its_gateway_and_a_throttled_runtime(
    tinker: tuple[str, Path], tmp_path: Path
) -> None:
    """The gateway lives in the training process: killing it is killing that, then resuming."""
    url, model = tinker
    run, log = tmp_path / "run", tmp_path / "log"
    service = {"base_url": url, "rank": 8, "max_difference": TOLERANCE}
    with place.runtime(tmp_path / "home", AGENT, THROTTLED) as where:
        words = write_config(tmp_path, where, model, backend="tinker", tinker=service)
        command = [str(place.python_of("tinker")), *words, "--resume", str(run)]
        killer = place.Killer(where)
        killer.start()
        with place.started(command, log, cwd=tmp_path) as child:
            place.wait_until(lambda: metrics(run) and where.sessions(), child, log, RUN_S)
            os.kill(child.pid, signal.SIGKILL)
            child.wait()
        done = [line["step"] for line in metrics(run)]
        killed = killer.stop()
        with place.started(command, log, cwd=tmp_path) as child:
            assert child.wait(RUN_S) == 0, log.read_text()[-4000:]
        refused = where.refused()
    assert killed is not None
    assert refused > 0
    assert 0 < len(done) < STEPS, "it was killed in the middle"
    check_steps(run)
    told = re.findall(r"(\d+) rollouts: (\d+) succeeded, (\d+) failed", log.read_text())[-1]
    submitted, succeeded, failed = map(int, told)
    assert submitted == succeeded + failed == (STEPS - len(done)) * TASKS * GROUP


KL = "train/kl_sample_train_v1"


@pytest.mark.parametrize("capture", ["agentcore", "rllm"])
def test_rllm_makes_its_steps_with_either_gateway_and_loses_nothing(
    tinker: tuple[str, Path], tmp_path: Path, capture: str
) -> None:
    url, model = tinker
    run, log, steps = tmp_path / "run", tmp_path / "log", 2
    theirs = {
        "python": str(place.python_of("rllm")),
        "capture": capture,
        "tinker_base_url": url,
        "model": {"lora_rank": 8},
        "rollout_engine": {"renderer_name": "qwen3_instruct"},
        "rllm": {"gateway": {"port": place.free_port()}},
    }
    with place.runtime(tmp_path / "home", AGENT, THROTTLED) as where:
        train = {"steps": steps, "lr": 1e-3, "save_every": 0}
        words = write_config(tmp_path, where, model, backend="rllm", rllm=theirs, train=train)
        killer = place.Killer(where)
        killer.start()
        command = [sys.executable, *words, "--resume", str(run)]
        with place.started(command, log, cwd=tmp_path) as child:
            assert child.wait(RUN_S) == 0, log.read_text()[-4000:]
        killed, refused = killer.stop(), where.refused()
    assert killed is not None
    assert refused > 0
    seen = [step for step in place.steps_in(log.read_text()) if KL in step]
    assert len(seen) == steps
    assert all(abs(step[KL]) < TOLERANCE for step in seen)
    rollouts = list(RunReader(run).rollouts())
    assert len({line["rollout_id"] for line in rollouts}) == len(rollouts) == steps * TASKS * GROUP
    assert {line["failure"] for line in rollouts} == {None}
    counted = {line["session_id"] for line in rollouts}
    # it may have been killed in the moment between its result and its end
    assert sum(line["attempts"] - 1 for line in rollouts) >= (killed not in counted)
    if capture == "agentcore":
        sessions = RunReader(run).sessions()
        for line in rollouts:
            rows = sessions[line["session_id"]].graph().rows()
            assert sum(row.n_trained for row in rows) == line["tokens"]


def check_steps(run: Path) -> None:
    """Every step once, of each rollout's last telling, with the tokens that were sampled."""
    steps = metrics(run)
    assert [line["step"] for line in steps] == list(range(1, STEPS + 1))
    # what was under way when the process died is told again by the one that resumed
    rollouts = {line["rollout_id"]: line for line in RunReader(run).rollouts()}
    assert len(rollouts) == STEPS * TASKS * GROUP
    sessions = RunReader(run).sessions()
    for line in steps:
        groups = collections.defaultdict(list)
        for rollout in rollouts.values():
            if rollout["step"] == line["step"] - 1 and rollout["reward"] is not None:
                groups[rollout["group_id"]].append(rollout)
        counted = [g for g in groups.values() if len({one["reward"] for one in g}) > 1]
        rows = [
            row
            for group in counted
            for one in group
            for row in sessions[one["session_id"]].graph().rows()
        ]
        assert line["report"]["tokens"] == sum(row.n_trained for row in rows)
        assert line["report"]["agreement"]["max"] < TOLERANCE
