"""rllm with its AgentCore runtime on a local runtime, run in rllm's own environment.

    python rllm_run.py FOLDER SOURCE

Runs rllm's live AgentCore tests with a stand-in engine behind our gateway; the exit code is theirs.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentcore_rl_toolkit.cli.deploy import control_client, register
from agentcore_rl_toolkit.gateway import Gateway, GatewaySettings, ModelSpec
from agentcore_rl_toolkit.local import DEFAULT_BUCKET
from agentcore_rl_toolkit.runtime.thread import RuntimeThread

HERE = Path(__file__).resolve().parent
AGENT = HERE.parent / "trainer" / "lucky_agent"
DEMO_MODEL = HERE.parents[1] / "examples" / "demo_policy" / "model"


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
        engine.delay_s = 0.5  # one of the tests wants a rollout to take longer than 10 ms
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


if __name__ == "__main__":
    home = Path(sys.argv[1])
    home.mkdir(parents=True, exist_ok=True)
    sys.exit(asyncio.run(live(home, Path(sys.argv[2]))))
