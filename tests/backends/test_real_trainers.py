"""Trainers as they are, each in its own environment: Tinker's SDK, slime's rollouts, rllm.

rllm and slime are read from checkouts, named by ``RLLM_SOURCE`` and ``SLIME_SOURCE`` when their
environments are made (``python tests/backends/environment.py rllm``).
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.backends, pytest.mark.timeout(1200)]

HERE = Path(__file__).parent
START_S = 300.0
RUN_S = 900.0
TOLERANCE = 1e-5
QUIET = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "JAX_PLATFORMS": "cpu"}


def _beside(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


environment, tiny_model = _beside("environment"), _beside("tiny_model")


def python_of(name: str) -> Path:
    found: Path | None = environment.python_of(name)
    if found is None:
        pytest.skip(f"no environment for it: python tests/backends/environment.py {name}")
    return found


def run(python: Path, script: str, *words: object) -> None:
    """Its output is shown when it fails."""
    command = [str(python), str(HERE / script), *map(str, words)]
    env = {**os.environ, **QUIET, "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}
    done = subprocess.run(
        command, env=env, cwd=HERE, timeout=RUN_S, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert done.returncode == 0, done.stdout.decode(errors="replace")[-4000:]


@pytest.fixture(scope="module")
def tinker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """URL of a Tinker server on this machine, and its model."""
    python = python_of("skyrl")
    base = tmp_path_factory.mktemp("tinker")
    tiny_model.save(base / "model", 0)
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    command = [str(python), str(HERE / "tinker_server.py"), str(port)]
    command += [str(base / "model"), str(base / "state")]
    log = base / "log"
    with log.open("wb") as out:
        child = subprocess.Popen(
            command, env={**os.environ, **QUIET}, stdout=out, stderr=out, start_new_session=True
        )
    try:
        _wait(child, f"http://127.0.0.1:{port}", log)
        yield f"http://127.0.0.1:{port}", base / "model"
    finally:
        # its engine is a process of the same group
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(30)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _wait(child: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while True:
        assert child.poll() is None, log.read_text()[-2000:]
        assert time.monotonic() < deadline, log.read_text()[-2000:]
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/api/v1/healthz"):
            return
        time.sleep(0.2)


def test_two_steps_at_tinker_then_one_more_after_a_resume(
    tinker: tuple[str, Path], tmp_path: Path
) -> None:
    python, (url, model) = python_of("tinker"), tinker
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
    run(python_of("tinker"), "tinker_run.py", tmp_path, url, model, 1, loss)
    assert_agrees(json.loads((tmp_path / "seen.json").read_text())["steps"])


def assert_agrees(steps: list[dict[str, Any]]) -> None:
    """Sampler and trainer say the same, also of weights that the steps before made."""
    for line in steps:
        report = line["report"]
        assert report["agreement"]["tokens"] == report["tokens"]
        assert report["agreement"]["max"] < TOLERANCE
    assert any(line["report"]["tokens"] for line in steps)


def test_slimes_own_rollout_with_our_functions(tmp_path: Path) -> None:
    run(python_of("slime"), "slime_rollout.py", tmp_path)
    seen = json.loads((tmp_path / "seen.json").read_text())
    for sample in seen["first"]:
        assert sample["versions"] == ["1"]
        assert sum(sample["loss_mask"]) == 2 * len(seen["answer"])
        assert len(sample["loss_mask"]) == len(sample["logprobs"]) == sample["response_length"]
    assert [round(sample["advantage"], 3) for sample in seen["first"]] == [-1.0, 1.0, -1.0, 1.0]
    whole, lost = seen["second"][:2], seen["second"][2:]
    assert {tuple(sample["versions"]) for sample in whole} == {("2",)}
    assert all(sample["removed"] and not any(sample["loss_mask"]) for sample in lost)


def test_rllms_live_agentcore_tests_pass(tmp_path: Path) -> None:
    run(python_of("rllm"), "rllm_run.py", "live", tmp_path, rllm_source())


def test_rllms_trainer_makes_two_steps(tinker: tuple[str, Path], tmp_path: Path) -> None:
    rllm_source()
    run(python_of("rllm"), "rllm_run.py", "train", tmp_path, *tinker)
    steps = json.loads((tmp_path / "seen.json").read_text())
    measured = [step[KL] for step in steps if KL in step]
    assert len(measured) == 2
    assert all(abs(value) < TOLERANCE for value in measured)


KL = "train/kl_sample_train_v1"


def rllm_source() -> Path:
    given = os.environ.get("RLLM_SOURCE")
    if not given:
        pytest.skip("RLLM_SOURCE names no checkout of https://github.com/rllm-org/rllm")
    return Path(given)
