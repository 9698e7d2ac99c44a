"""slime's own ``generate_rollout`` with our functions, run in an environment that has slime.

    python slime_rollout.py FOLDER

A stand-in answers for SGLang; sessions, gateway and samples are real. Two steps: the second after
the weights changed, on a runtime that throttles, with sessions that die and a worker that is gone
for some calls. What was seen goes to ``seen.json`` in the folder.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fake_sglang import FakeSGLang  # beside this file
from slime.rollout.sglang_rollout import generate_rollout  # type: ignore[import-not-found]
from slime.utils import http_utils  # type: ignore[import-not-found]
from slime.utils.async_utils import get_async_loop  # type: ignore[import-not-found]
from slime.utils.types import Sample  # type: ignore[import-not-found]
from transformers import AutoTokenizer

from agentcore_rl_toolkit.backends.slime import runner
from agentcore_rl_toolkit.backends.slime.generate import Door
from agentcore_rl_toolkit.backends.slime.reward import post_process
from agentcore_rl_toolkit.cli.deploy import control_client, register
from agentcore_rl_toolkit.run.reader import RunReader
from agentcore_rl_toolkit.runtime.awsquota import AwsQuotas
from agentcore_rl_toolkit.runtime.thread import RuntimeThread

HERE = Path(__file__).resolve().parent
MODEL = HERE.parents[1] / "examples" / "demo_policy" / "model"
GROUPS, SIZE = 2, 2


class Data:
    """slime's data source: numbers groups and samples."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows, self.at = rows, 0

    def get_samples(self, count: int) -> list[list[Any]]:
        groups = []
        for _ in range(count):
            row = self.rows[self.at % len(self.rows)]
            first = self.at * SIZE
            groups.append([self._sample(first + i, row, i) for i in range(SIZE)])
            self.at += 1
        return groups

    def _sample(self, index: int, row: dict[str, Any], place: int) -> Any:
        metadata = {**row, "reward": float(place)}
        return Sample(group_index=self.at, index=index, prompt="what?", metadata=metadata)

    def add_samples(self, groups: Any) -> None:
        raise AssertionError("nothing is left over")


@contextmanager
def sglang(answer: list[int]) -> Iterator[FakeSGLang]:
    """On a loop of its own: slime blocks the thread that calls it."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    engine = FakeSGLang(answer)

    def run(work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, loop).result(60)

    run(engine.__aenter__())
    try:
        yield engine
    finally:
        run(engine.__aexit__())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


def make_args(port: int, agentcore: dict[str, Any]) -> Namespace:
    """What slime's ``generate_rollout`` reads of its arguments."""
    return Namespace(
        hf_checkpoint=str(MODEL),
        custom_generate_function_path=runner.GENERATE,
        custom_rm_path=None,
        sglang_router_ip="127.0.0.1",
        sglang_router_port=port,
        rollout_batch_size=GROUPS,
        over_sampling_batch_size=GROUPS,
        n_samples_per_prompt=SIZE,
        rollout_temperature=1.0,
        rollout_top_p=1.0,
        rollout_top_k=-1,
        rollout_max_response_len=16,
        rollout_stop=None,
        rollout_stop_token_ids=None,
        rollout_skip_special_tokens=False,
        rollout_sample_hook_path=[],
        rollout_sample_filter_path=None,
        rollout_all_samples_process_path=None,
        rollout_global_dataset=True,
        rollout_num_gpus=1,
        rollout_num_gpus_per_engine=1,
        num_gpus_per_node=1,
        sglang_server_concurrency=8,
        sglang_dp_size=1,
        sglang_enable_deterministic_inference=False,
        sglang_speculative_algorithm=None,
        dynamic_sampling_filter_path=None,
        buffer_filter_path=None,
        use_rollout_routing_replay=False,
        use_distributed_post=False,
        partial_rollout=False,
        mask_offpolicy_in_partial_rollout=False,
        group_rm=False,
        ci_test=False,
        reward_key=None,
        rewards_normalization=True,
        grpo_std_normalization=True,
        agentcore=agentcore,
    )


def told(args: Namespace, groups: list[Any]) -> list[dict[str, Any]]:
    samples = [one for group in groups for place in group for one in place]
    raw, advantages = post_process(args, samples)
    return [
        {
            "tokens": sample.tokens,
            "response_length": sample.response_length,
            "loss_mask": sample.loss_mask,
            "logprobs": sample.rollout_log_probs,
            "versions": sample.weight_versions,
            "status": sample.status.value,
            "removed": sample.remove_sample,
            "rollout_id": sample.rollout_id,
            "group": sample.group_index,
            "reward": reward,
            "advantage": advantage,
        }
        for sample, reward, advantage in zip(samples, raw, advantages, strict=True)
    ]


def main() -> None:
    folder = Path(sys.argv[1])
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    answer = [*tokenizer.encode("42", add_special_tokens=False), tokenizer.eos_token_id]
    quotas = AwsQuotas.parse("new_sessions=3")
    with (
        RuntimeThread(port=0, home=folder / "home", quotas=quotas) as runtime,
        sglang(answer) as engine,
    ):
        control = control_client(runtime.url)
        made = register(control, "two_turns", HERE / "two_turns", "rl_app.py", {})
        setting = {"arn": str(made["agentRuntimeArn"]), "endpoint_url": runtime.url}
        setting |= {"run_dir": str(folder / "run"), "retries": 2, "timeout_s": 60.0}
        args = make_args(engine.port, setting)
        http_utils.init_http_client(args)
        first = generate_rollout(args, 0, Data([{}]), evaluation=False)
        engine.version, engine.die = "2", 3
        second = generate_rollout(args, 1, Data([{}, {"die": True}]), evaluation=False)
        seen = {
            "answer": answer,
            "first": told(args, first.samples),
            "second": told(args, second.samples),
            "keys": sorted(set(engine.keys)),
            "rollouts": list(RunReader(folder / "run").rollouts()),
        }
        get_async_loop().run(Door.close())
    (folder / "seen.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    main()
