"""verl's stock trainer with our agent loop: two GRPO steps of the math agent, on a CPU.

Rollouts come from a real vLLM, agents run in isolated sessions of a local runtime, weights are
pushed back after each step. verl compares what was captured with what it computes itself.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from agentcore_rl_toolkit.backends.verl.launch import overrides
from agentcore_rl_toolkit.run.reader import RunReader
from agentcore_rl_toolkit.trainer.config import Deployed, build

from .conftest import beside

pytestmark = [pytest.mark.backends, pytest.mark.timeout(1200)]

ROOT = Path(__file__).parents[2]
AGENT = ROOT / "examples" / "strands_math_agent"
SMALL = ROOT / "tests" / "trainer" / "lucky_agent"
"""Imports next to nothing, and asks the model once."""
TASKS, GROUP, STEPS = 2, 4, 2
THROTTLED = "new_sessions=2"
TOLERANCE = 1e-4
RUN_S = 900.0


environment, stand, untied, vllm_server = map(
    beside, ("environment", "place", "untied", "vllm_server")
)


class Place:
    """A folder with a model, data and a vLLM that serves the model."""

    def __init__(self, base: Path, url: str) -> None:
        self.base, self.url = base, url

    def train(self, name: str, agent: Path, /, **sections: Any) -> Run:
        folder = self.base / name
        folder.mkdir()
        text = yaml.safe_dump({**configuration(self, folder, agent), **sections})
        (folder / "train.yaml").write_text(text)
        return Run(folder)


class Run:
    """``art train`` under way, and what it left."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, folder / "log"
        command = [str(Path(sys.executable).with_name("art")), "train", "train.yaml"]
        with self.log.open("wb") as out:
            self.child = subprocess.Popen(command, cwd=folder, stdout=out, stderr=out)

    def wait(self) -> int:
        try:
            return self.child.wait(RUN_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(self.text()[-3000:]) from None
        finally:
            if self.child.poll() is None:
                self.child.send_signal(signal.SIGTERM)
                self.child.wait(60)

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def steps(self) -> list[dict[str, float]]:
        found: list[dict[str, float]] = stand.steps_in(self.text())
        return found

    def workers(self) -> list[Path]:
        """Folders of the agent-loop workers, whose names end in their process ids; oldest first."""
        found = (self.folder / "runs").glob("*/gateway/worker-*")
        return sorted(found, key=lambda path: path.stat().st_ctime)

    def rollouts(self) -> list[dict[str, Any]]:
        """The last that was told of each: a group whose worker died is told again by another."""
        lines = [line for path in self.workers() for line in RunReader(path).rollouts()]
        return list({line["rollout_id"]: line for line in lines}.values())

    def tokens(self) -> int:
        """Of all rows of the rollouts that count."""
        counted = {line["session_id"] for line in self.rollouts()}
        return sum(
            row.n_tokens
            for path in self.workers()
            for session_id, record in RunReader(path).sessions().items()
            if session_id in counted
            for row in record.graph().rows()
        )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    pythons = {name: environment.python_of(name) for name in ("vllm", "verl")}
    for name, python in pythons.items():
        if python is None:
            pytest.skip(f"no {name} here: python tests/backends/environment.py {name}")
    base = tmp_path_factory.mktemp("verl")
    untied.save(base / "model")
    problems = ROOT / "examples" / "demo_policy" / "problems.py"
    rows = subprocess.run(
        [sys.executable, str(problems), "--rows", "16"], check=True, capture_output=True
    )
    (base / "train.jsonl").write_bytes(rows.stdout)
    with vllm_server.serving(pythons["vllm"], base / "model", base / "vllm.log") as url:
        yield Place(base, url)


def configuration(place: Place, folder: Path, agent: Path) -> dict[str, Any]:
    """What a user writes, and in ``verl:`` what makes verl run without an accelerator."""
    fp32 = {"param_dtype": "fp32", "reduce_dtype": "fp32"}
    env = {
        "VERL_USE_EXTERNAL_MODULES": "verl_cpu",
        "VERL_PLATFORM": "cpu",
        "VERL_ENGINE_DEVICE": "cuda",
        "VERL_ENGINE_VENDOR": "nvidia",
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), str(ROOT / "src")]),
        "ART_VLLM_URL": place.url,
        "ART_WEIGHTS": str(folder / "weights"),
        "HF_HUB_OFFLINE": "1",
        "RAY_DEDUP_LOGS": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_memory_monitor_refresh_ms": "0",
        "RAY_worker_niceness": "0",
        "RAY_raylet_start_wait_time_s": "300",
        "TOKENIZERS_PARALLELISM": "false",
        "OMP_NUM_THREADS": "1",
    }
    actor = {
        "strategy": "fsdp2",
        "use_torch_compile": False,
        "use_dynamic_bsz": False,
        "ppo_micro_batch_size_per_gpu": 4,
        "fsdp_config": {
            "strategy": "fsdp2",
            "use_torch_compile": False,
            "model_dtype": "fp32",
            "dtype": "float32",
            "mixed_precision": fp32,
        },
    }
    rollout = {
        "name": "vllm_http",
        "tensor_model_parallel_size": 1,
        "log_prob_micro_batch_size_per_gpu": 4,
        "free_cache_engine": False,
        "agent": {"num_workers": 1},
    }
    model = {"use_remove_padding": False, "override_config": {"attn_implementation": "sdpa"}}
    ray = {"num_cpus": 32, "num_gpus": 1, "include_dashboard": False}
    return {
        "backend": "verl",
        "agent": {"path": str(agent)},
        "data": {"train": str(place.base / "train.jsonl"), "shuffle": False},
        "model": {"path": str(place.base / "model"), "max_tokens": 1024},
        "rollout": {
            "group_size": GROUP,
            "tasks_per_step": TASKS,
            "max_concurrent": 8,
            "sampling": {"temperature": 1.0, "max_tokens": 48},
        },
        "train": {"steps": STEPS, "lr": 1e-3, "save_every": 0, "eval_every": 0},
        "verl": {
            "python": str(environment.python_of("verl")),
            "env": env,
            "data": {
                "max_prompt_length": 512,
                "max_response_length": 512,
                "dataloader_num_workers": 0,
            },
            "actor_rollout_ref": {"model": model, "actor": actor, "rollout": rollout},
            "reward": {"num_workers": 1},
            "trainer": {"device": "cpu", "n_gpus_per_node": 1, "resume_mode": "disable"},
            "ray_kwargs": {"ray_init": ray},
            "transfer_queue": {"backend": {"SimpleStorage": {"num_data_storage_units": 1}}},
        },
    }


COMPOSE = """
import json, sys
from hydra import compose, initialize_config_module
from verl.utils.config import omega_conf_to_dataclass
with initialize_config_module("verl.trainer.config", version_base=None):
    config = compose("ppo_trainer", overrides=json.load(sys.stdin))
rollout = omega_conf_to_dataclass(config.actor_rollout_ref.rollout)
algorithm = omega_conf_to_dataclass(config.algorithm)
seen = {"custom": rollout.custom["agentcore"]["arn"], "n": rollout.n}
seen["importance"] = algorithm.rollout_correction["rollout_is_threshold"]
seen["lr"] = omega_conf_to_dataclass(config.actor_rollout_ref.actor.optim).lr
print(json.dumps(seen))
"""


def test_verl_takes_every_setting_that_we_make(tmp_path: Path) -> None:
    python = environment.python_of("verl")
    if python is None:
        pytest.skip("no verl here: python tests/backends/environment.py verl")
    arn = "arn:aws:bedrock-agentcore:us-west-2:123456789012:runtime/math-AbCdEf1234"
    config = build(
        {
            "backend": "verl",
            "agent": {"arn": arn},
            "data": {"train": "train.jsonl"},
            "model": {"path": "model"},
            "train": {"lr": 1e-5, "schedule": "cosine", "lora": {"rank": 8}},
            "verl": {"actor_rollout_ref": {"rollout": {"name": "vllm"}}},
        }
    )
    given = overrides(config, tmp_path, Deployed(arn))
    done = subprocess.run(
        [str(python), "-c", COMPOSE],
        input=json.dumps(given).encode(),
        env={**os.environ, "VERL_PLATFORM": "cpu"},
        capture_output=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen == {"custom": arn, "n": 8, "importance": 2.0, "lr": 1e-5}


@pytest.mark.quick
def test_two_steps_outlive_a_session_a_gateway_and_a_throttled_runtime(place: Place) -> None:
    """A session dies in the first step, the gateway in the second; both steps train what was
    sampled, once."""
    with stand.runtime(place.base / "home", AGENT, THROTTLED) as where:
        run = place.train("math", AGENT, agent={"arn": where.arn, "endpoint_url": where.url})
        killer = stand.Killer(where)
        killer.start()
        stand.wait_until(lambda: run.steps() and under_way(run, where), run.child, run.log, RUN_S)
        os.kill(int(run.workers()[0].name.rpartition("-")[2]), signal.SIGKILL)
        code = run.wait()
        killed, refused = killer.stop(), where.refused()
    assert code == 0, run.text()[-5000:]
    assert killed is not None
    assert refused > 0
    assert len(run.workers()) == 2

    steps = run.steps()
    assert len(steps) == STEPS
    # the second step samples with weights that the first one pushed
    for step in steps:
        assert step["training/rollout_probs_diff_max"] < TOLERANCE
    assert max(step["actor/grad_norm"] for step in steps) > 0

    rollouts = run.rollouts()
    assert len(rollouts) == TASKS * GROUP * STEPS
    assert [r["failure"] for r in rollouts] == [None] * len(rollouts)
    assert {v for r in rollouts for v in r["versions"]} == {"0", "1"}
    # it may have been killed in the moment between its result and its end
    counted = {r["session_id"] for r in rollouts}
    assert sum(r["attempts"] - 1 for r in rollouts) >= (killed not in counted)
    # what verl was given is what the gateway captured for the rollouts that count, once
    assert run.tokens() == sum(step["global_seqlen/mean"] for step in steps)


def under_way(run: Run, where: Any) -> bool:
    """Whether a session is at work whose rollout nobody has told of."""
    at_work = {session["session_id"] for session in where.sessions()}
    return bool(at_work - {rollout["session_id"] for rollout in run.rollouts()})


def test_rollout_servers_of_their_own_train_too(place: Place) -> None:
    """verl's separate_async: the trainer never stops the servers, weights go there by a third."""
    verl = configuration(place, place.base / "apart", SMALL)["verl"]
    verl["trainer"]["v1"] = {"trainer_mode": "separate_async"}
    verl["actor_rollout_ref"]["hybrid_engine"] = False
    verl["actor_rollout_ref"]["rollout"] |= {
        "nnodes": 1,
        "n_gpus_per_node": 1,
        "checkpoint_engine": {"backend": "disk", "custom_backend_module": "verl_cpu"},
    }
    verl["ray_kwargs"]["ray_init"]["num_gpus"] = 2
    train = {"steps": 2, "lr": 1e-3, "save_every": 0, "eval_every": 0, "max_staleness": 2}
    run = place.train("apart", SMALL, verl=verl, train=train)
    assert run.wait() == 0, run.text()[-5000:]
    assert len(run.steps()) == 2
    rollouts = run.rollouts()
    assert {r["failure"] for r in rollouts} == {None}
    assert len(rollouts) >= 2 * TASKS * GROUP


def test_collecting_ahead_trains_rollouts_of_earlier_weights(place: Place) -> None:
    config = {"steps": 3, "lr": 1e-3, "save_every": 0, "eval_every": 0, "max_staleness": 1}
    run = place.train("ahead", SMALL, train=config)
    assert run.wait() == 0, run.text()[-5000:]
    assert len(run.steps()) == 3
    rollouts = run.rollouts()
    assert {r["failure"] for r in rollouts} == {None}
    assert len({r["rollout_id"] for r in rollouts}) == len(rollouts) >= 3 * TASKS * GROUP


def test_a_broken_contract_ends_the_run_and_says_why(place: Place) -> None:
    agent = place.base / "forgetful"
    agent.mkdir()
    (agent / "rl_app.py").write_text(
        "from agentcore_rl_toolkit import AgentCoreRLApp\n"
        "app = AgentCoreRLApp()\n"
        "@app.rollout_entrypoint\n"
        "def invoke(payload):\n"
        "    return {'answer': 42}\n"
        "app.run()\n"
    )
    run = place.train("broken", agent)
    assert run.wait() != 0
    assert "broken contract" in run.text()
    assert "has no 'rewards'" in run.text()
    assert run.steps() == []
