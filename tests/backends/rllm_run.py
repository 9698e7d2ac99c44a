"""rllm with its AgentCore runtime on a local runtime, run in rllm's own environment.

    python rllm_run.py live FOLDER SOURCE          its live AgentCore tests, with a stand-in engine
    python rllm_run.py train FOLDER URL MODEL      two steps of its trainer at a Tinker server

What was seen of a training goes to ``seen.json`` in the folder; the exit code is rllm's.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agentcore_rl_toolkit.cli.deploy import control_client, register
from agentcore_rl_toolkit.gateway import Gateway, GatewaySettings, ModelSpec
from agentcore_rl_toolkit.local import DEFAULT_BUCKET
from agentcore_rl_toolkit.runtime.thread import RuntimeThread

HERE = Path(__file__).resolve().parent
AGENT = HERE.parent / "trainer" / "lucky_agent"
DEMO_MODEL = HERE.parents[1] / "examples" / "demo_policy" / "model"
SETTINGS = (
    *("rllm/backend=tinker", "model.lora_rank=8", "rollout_engine.renderer_name=qwen3_instruct"),
    *("training.group_size=4", "validation.group_size=1", "training.learning_rate=1e-3"),
    *("training.max_length=256", "training.resume_mode=disable"),
    *("data.train_batch_size=2", "rllm.data.train_batch_size=2", "data.max_prompt_length=200"),
    *("data.max_response_length=8", "rllm.data.max_response_length=8"),
    *("rllm.algorithm.adv_estimator=grpo", "rllm.trainer.total_epochs=1"),
    *("rllm.trainer.total_batches=2", "rllm.trainer.val_before_train=false"),
    *("rllm.trainer.test_freq=-1", "rllm.trainer.save_freq=-1", "rllm.gateway.host=127.0.0.1"),
    *("rllm.remote_runtime.enabled=true", "rllm.remote_runtime.backend=agentcore"),
    *("rllm.remote_runtime.agentcore.tps_limit=25", "rllm.remote_runtime.session_timeout=300"),
)


@contextmanager
def agent(folder: Path) -> Iterator[str]:
    """Its ARN, with the environment by which clients find the runtime."""
    with RuntimeThread(port=0, home=folder / "home") as runtime:
        os.environ["AWS_ENDPOINT_URL_BEDROCK_AGENTCORE"] = runtime.url
        os.environ["AWS_ENDPOINT_URL_S3"] = runtime.url
        control = control_client(runtime.url)
        made = register(control, "lucky", AGENT, "rl_app.py", {})
        yield str(made["agentRuntimeArn"])


async def live(folder: Path, source: Path) -> int:
    from fake_sglang import FakeSGLang  # beside this file
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(DEMO_MODEL)
    answer = [*tokenizer.encode("42", add_special_tokens=False), tokenizer.eos_token_id]
    settings = GatewaySettings(run_dir=folder / "run", open=True, fsync=False)
    async with FakeSGLang(answer) as engine:
        spec = ModelSpec(
            "policy", (f"sglang:http://127.0.0.1:{engine.port}",), tokenizer=str(DEMO_MODEL)
        )
        async with Gateway([spec], settings) as gateway:
            with agent(folder) as arn:
                os.environ["AGENTCORE_AGENT_ARN"] = arn
                os.environ["AGENTCORE_S3_BUCKET"] = DEFAULT_BUCKET
                os.environ["AGENTCORE_BASE_URL"] = f"{gateway.url}/sessions/live/v1"
                os.environ["AGENTCORE_MODEL_ID"] = "policy"
                words = ["-m", "pytest", "-q", "-p", "no:cacheprovider"]
                test = "tests/integration/test_agentcore_runtime.py"
                command = [sys.executable, *words, test]
                return (await asyncio.to_thread(subprocess.run, command, cwd=source)).returncode


def train(folder: Path, url: str, model: str) -> None:
    os.environ.setdefault("TINKER_API_KEY", "tml-local")
    os.environ.setdefault("TINKER_TELEMETRY", "0")
    os.chdir(folder)
    with agent(folder) as arn:
        own = [f"tinker_base_url={url}", f"model.name={model}", f"rllm.gateway.port={free_port()}"]
        own += [f"rllm.remote_runtime.agentcore.agent_runtime_arn={arn}"]
        own += [f"rllm.remote_runtime.agentcore.s3_bucket={DEFAULT_BUCKET}"]
        seen = fit([*SETTINGS, *own])
    (folder / "seen.json").write_text(json.dumps(seen, default=float))


def free_port() -> int:
    """rllm's gateway cannot choose one itself."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def fit(overrides: list[str]) -> list[dict[str, Any]]:
    """Metrics of every step, as rllm logs them."""
    import hydra  # type: ignore[import-not-found]
    from rllm.data.dataset import Dataset  # type: ignore[import-not-found]
    from rllm.trainer.tinker.tinker_backend import (  # type: ignore[import-not-found]
        TinkerBackend,
    )
    from rllm.trainer.unified_trainer import UnifiedTrainer  # type: ignore[import-not-found]
    from rllm.utils import tracking  # type: ignore[import-not-found]

    seen: list[dict[str, Any]] = []
    log = tracking.Tracking.log

    def watch(self: Any, data: dict[str, Any], *rest: Any, **named: Any) -> Any:
        seen.append({k: v for k, v in data.items() if isinstance(v, int | float)})
        return log(self, data, *rest, **named)

    tracking.Tracking.log = watch
    rows = [{"prompt": f"say {i}", "answer": str(i)} for i in range(4)]
    data = Dataset(data=rows, name="toy", split="train")
    with hydra.initialize_config_module("rllm.trainer.config", version_base=None):
        config = hydra.compose("unified", overrides=overrides)
    trainer = UnifiedTrainer(
        backend_cls=TinkerBackend, config=config, train_dataset=data, val_dataset=None
    )
    try:
        trainer.fit()
    finally:
        trainer.shutdown()
    return seen


def main() -> int:
    what, folder, *rest = sys.argv[1:]
    Path(folder).mkdir(parents=True, exist_ok=True)
    if what == "live":
        return asyncio.run(live(Path(folder), Path(rest[0])))
    train(Path(folder), *rest)
    return 0


if __name__ == "__main__":
    sys.exit(main())
