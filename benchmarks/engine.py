"""Tokens per second of the embedded engine against its peers on the same weights.

Peers: transformers' ``generate`` (one padded batch, all sequences of one length: its best case),
transformers' own continuous batching, and vLLM without its server, where its CPU build is there
(``python tests/backends/environment.py vllm``). Every row is prompts of equal length, all asked at
once; the best of three rounds counts. Log-probabilities are compared with a plain forward pass.

python benchmarks/engine.py [--quick] [--compiled] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import report
import torch

CASES = ((40, 12), (400, 32))
"""(prompt tokens, sampled tokens)"""
CONCURRENT = (1, 8, 64)
PEERS = {
    "generate": "transformers' generate",
    "continuous": "transformers' continuous",
    "vLLM": "vLLM",
}
VLLM = "engines/vllm"
"""Of the cache folder; made by ``tests/backends/environment.py``."""
VLLM_SETTINGS = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}


def make_model(device: str, layers: int, width: int) -> Any:
    from transformers import AutoModelForCausalLM, Qwen3Config

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=1024,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=width // 32,
        num_key_value_heads=width // 32,
        head_dim=32,
        intermediate_size=3 * width,
        tie_word_embeddings=True,
        max_position_embeddings=2048,
    )
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa")
    return model.to(device).eval()


def prompts(count: int, length: int, round_: int) -> list[list[int]]:
    """Different in every round, so that nothing is reused between rounds."""
    return [[(7 * i + 3 * j + round_) % 1000 for j in range(length)] for i in range(count)]


class Ours:
    def __init__(self, model: Any) -> None:
        from agentcore_rl_toolkit.engine import Engine

        self.model = model
        self.engine = Engine(model, stop_token_ids=(), max_rows=64).start()
        self.runner = asyncio.Runner()
        self.worst = 0.0
        """Largest difference of a log-probability from a forward pass."""

    def __call__(self, asked: list[list[int]], sampled: int) -> list[Any]:
        from agentcore_rl_toolkit.engine import Sampling

        async def all_of_them() -> list[Any]:
            sampling = Sampling(max_tokens=sampled)
            return await asyncio.gather(*(self.engine.generate(p, sampling) for p in asked))

        return self.runner.run(all_of_them())

    def compare(self, prompt: list[int], done: Any) -> None:
        ids = torch.tensor([prompt + done.token_ids], device=self.model.device)
        with torch.no_grad():
            rows = self.model(ids).logits[0].float().log_softmax(-1)[len(prompt) - 1 : -1]
        expected = rows.gather(1, ids[0, len(prompt) :, None]).squeeze(1).tolist()
        for a, b in zip(expected, done.logprobs, strict=True):
            self.worst = max(self.worst, abs(a - b))

    def stop(self) -> None:
        self.engine.close()
        self.runner.close()


def generate(model: Any) -> Callable[[list[list[int]], int], Any]:
    def run(asked: list[list[int]], sampled: int) -> None:
        ids = torch.tensor(asked, device=model.device)
        model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=sampled,
            min_new_tokens=sampled,
            do_sample=True,
            top_k=0,
            pad_token_id=0,
        )

    return run


def continuous(model: Any) -> Callable[[list[list[int]], int], Any]:
    from transformers import ContinuousBatchingConfig, GenerationConfig

    twin = type(model)(copy.deepcopy(model.config)).to(model.device, model.dtype).eval()
    twin.load_state_dict(model.state_dict())
    sampling = GenerationConfig(
        do_sample=True, top_k=0, top_p=1.0, eos_token_id=-1, pad_token_id=0, max_new_tokens=64
    )
    batching = ContinuousBatchingConfig(
        return_logprobs=True,
        num_blocks=192,
        max_batch_tokens=1024,
        use_cuda_graph=False,
        use_async_batching=False,
        allow_block_sharing=False,
    )
    manager = twin.init_continuous_batching(
        generation_config=sampling, continuous_batching_config=batching
    )

    def run(asked: list[list[int]], sampled: int) -> None:
        if not manager.is_running():
            manager.start()
        for ids in asked:
            manager.add_request(ids, max_new_tokens=sampled, eos_token_id=-1)
        done = 0
        while done < len(asked):
            result = manager.get_result(timeout=120)
            if result is None:
                raise RuntimeError("transformers' continuous batching gave no result")
            done += result.is_finished()

    run.stop = lambda: manager.stop(block=True, timeout=10)  # type: ignore[attr-defined]
    return run


class Vllm:
    """A child in vLLM's environment, on the same weights."""

    def __init__(self, python: Path, model: Any, folder: Path, compiled: bool) -> None:
        model.save_pretrained(folder / "model")
        self.log = folder / "log"
        script = Path(__file__).parent / "tools" / "vllm_tokens.py"
        command = [str(python), str(script), str(folder / "model"), *["compiled"] * compiled]
        path = f"{python.parent}:{os.environ['PATH']}"
        with self.log.open("wb") as said:
            self.child = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                env={**os.environ, **VLLM_SETTINGS, "PATH": path},
                start_new_session=True,  # to end its workers with it
            )
        self._answer()

    def __call__(self, asked: list[list[int]], sampled: int) -> None:
        assert self.child.stdin is not None
        line = json.dumps({"prompts": asked, "sampled": sampled})
        self.child.stdin.write(line.encode() + b"\n")
        self.child.stdin.flush()
        self._answer()

    def _answer(self) -> None:
        assert self.child.stdout is not None
        if not self.child.stdout.readline():
            raise RuntimeError(f"vLLM ended: {self.log.read_text(errors='replace')[-1000:]}")

    def stop(self) -> None:
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.child.stdin.close()
        self.child.stdout.close()
        try:
            self.child.wait(30)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(self.child.pid, signal.SIGKILL)


@contextmanager
def vllm(model: Any, compiled: bool) -> Iterator[Vllm | None]:
    """None where there is no such environment, or no CPU to compare on."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    home = base / "agentcore-rl-toolkit" / VLLM
    if not (home / "ready").exists() or model.device.type != "cpu":
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="art-bench-") as folder:
        peer = Vllm(home / "bin" / "python", model, Path(folder), compiled)
        try:
            yield peer
        finally:
            peer.stop()


def measure(run: Any, count: int, length: int, sampled: int, rounds: int) -> float:
    best = 0.0
    for round_ in range(rounds):
        asked = prompts(count, length, round_)
        started = time.perf_counter()
        done = run(asked, sampled)
        best = max(best, count * sampled / (time.perf_counter() - started))
        if isinstance(run, Ours):
            run.compare(asked[-1], done[-1])
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=0, help="0: as torch chooses")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="the short case alone, two rounds")
    parser.add_argument("--compiled", action="store_true", help="vLLM with its compiled kernels")
    report.option(parser)
    options = parser.parse_args()
    if options.quick:
        options.rounds = 2
    if options.threads:
        torch.set_num_threads(options.threads)
    model = make_model(options.device, options.layers, options.width)
    size = sum(p.numel() for p in model.parameters())
    print(f"{size:,} parameters, {model.dtype}, {options.device}; sampled tokens per second")
    with vllm(model, options.compiled) as peer:
        runs = {"engine": Ours(model), "generate": generate(model), "continuous": continuous(model)}
        try:
            compare(runs | ({"vLLM": peer} if peer is not None else {}), options)
        finally:
            runs["engine"].stop()
            runs["continuous"].stop()


def compare(runs: dict[str, Any], options: argparse.Namespace) -> None:
    names = "".join(f"{name:>14}" for name in runs)
    print(f"{'prompt':>7}{'sampled':>9}{'at once':>9}{names}")
    found = report.Report()
    for length, sampled in CASES[:1] if options.quick else CASES:
        for count in CONCURRENT:
            speeds = {
                name: measure(run, count, length, sampled, options.rounds)
                for name, run in runs.items()
            }
            figures = "".join(f"{speed:>14.0f}" for speed in speeds.values())
            print(f"{length:>7}{sampled:>9}{count:>9}{figures}", flush=True)
            found.row(
                f"engine, tokens/s, {count} at once, {length} in and {sampled} out",
                "/s",
                speeds.pop("engine"),
                higher=True,
                peers={PEERS[name]: speed for name, speed in speeds.items()},
                headline=count == CONCURRENT[-1] and length == CASES[0][0],
            )
    worst = runs["engine"].worst
    print(f"largest |log-probability - forward pass| of the engine: {worst:.1e}")
    name = "engine, largest difference of a log-probability from a forward pass"
    found.row(name, "", worst, aim=1e-5 if options.device == "cpu" else None)
    found.write(options.json)


if __name__ == "__main__":
    main()
