"""Our generate function as slime's own contract test calls it, with what it needs around it.

That test knows no settings and wants one sample: the runtime, the stand-in for SGLang and the
settings are made here, and the one sample is taken out of the list.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from fake_sglang import FakeSGLang  # beside this file
from transformers import AutoTokenizer

from agentcore_rl_toolkit.backends.slime.generate import Door
from agentcore_rl_toolkit.backends.slime.generate import generate as ours
from agentcore_rl_toolkit.cli.deploy import control_client, register
from agentcore_rl_toolkit.runtime.thread import RuntimeThread

HERE = Path(__file__).resolve().parent
MODEL = HERE.parents[1] / "examples" / "demo_policy" / "model"


async def generate(args: Any, sample: Any, sampling_params: dict[str, Any]) -> Any:
    answer = AutoTokenizer.from_pretrained(MODEL).encode("42", add_special_tokens=False)
    with tempfile.TemporaryDirectory() as folder, RuntimeThread(home=Path(folder)) as runtime:
        control = control_client(runtime.url)
        made = register(control, "two_turns", HERE / "two_turns", "rl_app.py", {})
        async with FakeSGLang(answer) as engine:
            args.hf_checkpoint = str(MODEL)
            args.sglang_router_ip, args.sglang_router_port = "127.0.0.1", engine.port
            args.agentcore = {"arn": made["agentRuntimeArn"], "endpoint_url": runtime.url}
            sample.metadata["reward"] = 0.5
            try:
                (found,) = await ours(args, sample, sampling_params)
            finally:
                await Door.close()
    return found
