"""Trainers as they are, each in its own environment: Tinker's SDK, slime's rollouts, rllm.

rllm and slime are read from checkouts, named by ``RLLM_SOURCE`` and ``SLIME_SOURCE`` when their
environments are made (``python tests/backends/environment.py rllm``) and when their own tests run.
"""

from __future__ import annotations

import collections
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentcore_rl_toolkit.backends.slime import launch
from agentcore_rl_toolkit.trainer.config import ANYWHERE, build

from .conftest import beside

pytestmark = [pytest.mark.backends, pytest.mark.timeout(1200)]

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[1] / "examples" / "agentcore_math"
RUN_S = 900.0
POST_PROCESS = "agentcore_rl_toolkit.backends.slime.reward.post_process"
TOLERANCE = 1e-5


environment, place, tiny_model = map(beside, ("environment", "place", "tiny_model"))


def run(python: Path, script: str, *words: object) -> None:
    """Its output is shown when it fails."""
    command = [str(python), str(HERE / script), *map(str, words)]
    env = {**os.environ, **place.QUIET}
    done = subprocess.run(
        command, env=env, cwd=HERE, timeout=RUN_S, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert done.returncode == 0, done.stdout.decode(errors="replace")[-4000:]


@pytest.fixture(scope="module")
def tinker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """URL of a Tinker server on this machine, and its model."""
    base = tmp_path_factory.mktemp("tinker")
    tiny_model.save(base / "model", 0)
    with place.tinker_server(base, base / "model") as url:
        yield url, base / "model"


def test_two_steps_at_tinker_then_one_more_after_a_resume(
    tinker: tuple[str, Path], tmp_path: Path
) -> None:
    python, (url, model) = place.python_of("tinker"), tinker
    run(python, "tinker_run.py", tmp_path, url, model, 3, "importance_sampling", 2)
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert [line["step"] for line in seen["steps"]] == [1, 2]
    assert_agrees(seen["steps"])
    run(python, "tinker_run.py", tmp_path, url, model, 3, "importance_sampling")
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert [line["step"] for line in seen["steps"]] == [3]
    assert seen["report"]["submitted"] == seen["report"]["succeeded"] == 8
    assert_agrees(seen["steps"])


@pytest.mark.parametrize("loss", ["ppo", "cispo"])
def test_other_losses_train(tinker: tuple[str, Path], tmp_path: Path, loss: str) -> None:
    url, model = tinker
    run(place.python_of("tinker"), "tinker_run.py", tmp_path, url, model, 1, loss)
    assert_agrees(json.loads((tmp_path / "seen.json").read_text())["steps"])


def assert_agrees(steps: list[dict[str, Any]]) -> None:
    """Sampler and trainer say the same, also of weights that the steps before made."""
    for line in steps:
        report = line["report"]
        assert report["agreement"]["tokens"] == report["tokens"]
        assert report["agreement"]["max"] < TOLERANCE
    assert any(line["report"]["tokens"] for line in steps)


def test_slimes_own_rollout_with_our_functions(tmp_path: Path) -> None:
    run(place.python_of("slime"), "slime_rollout.py", tmp_path)
    seen = json.loads((tmp_path / "seen.json").read_text())
    for sample in seen["first"]:
        assert sample["versions"] == ["1"]
        assert sum(sample["loss_mask"]) == 2 * len(seen["answer"])
        assert len(sample["loss_mask"]) == len(sample["logprobs"]) == sample["response_length"]
    assert [round(sample["advantage"], 3) for sample in seen["first"]] == [-1.0, 1.0, -1.0, 1.0]
    whole, lost = seen["second"][:2], seen["second"][2:]
    assert {tuple(sample["versions"]) for sample in whole} == {("2",)}
    assert all(sample["removed"] and not any(sample["loss_mask"]) for sample in lost)
    kinds = collections.Counter(line["failure"] for line in seen["rollouts"])
    assert kinds == {None: len(seen["first"]) + len(whole), "session_lost": len(lost)}


def test_slimes_plugin_contracts_hold_for_our_functions() -> None:
    paths = {
        "SLIME_CONTRACT_CUSTOM_GENERATE_FUNCTION_PATH": "slime_contract.generate",
        "SLIME_CONTRACT_CUSTOM_REWARD_POST_PROCESS_PATH": POST_PROCESS,
    }
    command = [str(place.python_of("slime")), "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    # as a plugin it is imported, and transformers with it, before these tests put a stub there
    command += ["-p", "slime_contract"]
    source = checkout("SLIME_SOURCE", "https://github.com/THUDM/slime")
    done = subprocess.run(
        [*command, "tests/plugin_contracts"],
        env={**os.environ, **place.QUIET, **paths},
        cwd=source,
        timeout=RUN_S,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert done.returncode == 0, done.stdout.decode(errors="replace")[-4000:]


MEGATRON = {
    *("--tensor-model-parallel-size", "--sequence-parallel", "--attention-dropout"),
    *("--hidden-dropout", "--optimizer", "--lr-decay-style", "--lr-warmup-iters", "--min-lr"),
    *("--adam-beta1", "--adam-beta2", "--weight-decay", "--clip-grad"),
    *("--recompute-granularity", "--recompute-method", "--recompute-num-layers", "--load"),
    *("--save", "--sglang-context-length"),
}
"""Flags of ours that slime hands on to Megatron and SGLang, whose parsers are not here."""


def test_slime_knows_every_flag_that_our_settings_become(tmp_path: Path) -> None:
    source = checkout("SLIME_SOURCE", "https://github.com/THUDM/slime")
    known = (source / "slime" / "utils" / "arguments.py").read_text()
    train = {"kl": 0.1, "schedule": "cosine", "gradient_checkpointing": True}
    config = build(
        {
            "agent": {"arn": "arn"},
            "data": {"train": "t", "eval": "e"},
            "model": {"path": "/models/tiny", "max_tokens": 99},
            "rollout": {"sampling": {"top_k": 5}},
            "train": {**train, "normalise": "token", "scale_by_std": False},
            "track": {"wandb": {"project": "p"}},
            "slime": {"model_type": "qwen3-4B", "slime_dir": str(source), "wandb_group": "g"},
        }
    )
    made = launch.make(config, tmp_path, ANYWHERE)
    words = made.command(1, tmp_path)
    own = words[len(words) - words[::-1].index("--colocate") - 1 :]
    flags = {word for word in own if word.startswith("--")}
    assert "--calculate-per-token-loss" in flags
    assert {flag for flag in flags - MEGATRON if f'"{flag}"' not in known} == set()


def test_rllms_live_agentcore_tests_pass(tmp_path: Path) -> None:
    source = checkout("RLLM_SOURCE", "https://github.com/rllm-org/rllm")
    run(place.python_of("rllm"), "rllm_run.py", tmp_path, source)


COMPOSE = """
import hydra, sys
with hydra.initialize_config_module("rllm.trainer.config", version_base=None):
    found = hydra.compose("unified", overrides=sys.stdin.read().splitlines())
print(found.rllm.backend, found.rllm.remote_runtime.backend)
"""


@pytest.mark.parametrize(("name", "backend"), [("rllm", "tinker"), ("rllm-verl", "verl")])
def test_rllm_takes_every_setting_of_the_examples_scripts(
    tmp_path: Path, name: str, backend: str
) -> None:
    """What they start is not started: one needs the service, the other eight GPUs."""
    python, words = place.python_of(name), tmp_path / "words"
    fake = tmp_path / "python"
    fake.write_text(f"#!/bin/sh\nshift 2\nprintf '%s\\n' \"$@\" > {words}\n")
    fake.chmod(0o755)
    script = EXAMPLE / f"train_agentcore_math_{backend}.sh"
    given = {"AGENTCORE_AGENT_ARN": "arn", "AGENTCORE_S3_BUCKET": "b", "TINKER_API_KEY": "tml-x"}
    path = f"{tmp_path}:{os.environ['PATH']}"
    subprocess.run([str(script)], check=True, env={**os.environ, **given, "PATH": path})
    done = subprocess.run(
        [str(python), "-c", COMPOSE],
        input=words.read_bytes(),
        env={**os.environ, **place.QUIET, "VERL_PLATFORM": "cpu"},
        timeout=RUN_S,
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-3000:]
    assert done.stdout.decode().splitlines()[-1] == f"{backend} agentcore"


def checkout(variable: str, url: str) -> Path:
    given = os.environ.get(variable)
    if not given:
        pytest.skip(f"{variable} names no checkout of {url}")
    return Path(given)
