"""The demo on a CUDA GPU: a policy of 120 million parameters, warm-started and trained there.

    python benchmarks/gpu.py [--steps 30] [--json FILE]

Real sessions, the gateway, the embedded engine and the trainer on one machine, as in ``make demo``,
with 128 rollouts a step; then the engine alone on a model of the same size.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import report
import torch

from agentcore_rl_toolkit.run import RunReader

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parent / "examples"
SETTINGS = ("train.lr=1e-4", "rollout.tasks_per_step=16", "rollout.max_concurrent=128")
POLL_S = 0.5


class Memory:
    """The most that was taken of the GPU's memory, by whomever, while the block ran."""

    def __enter__(self) -> Memory:
        self.most = 0.0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._end.wait(POLL_S):
            free, total = torch.cuda.mem_get_info()
            self.most = max(self.most, (total - free) / 1e9)


def train(model: Path, steps: int, folder: Path) -> list[dict[str, Any]]:
    """The metrics of one demo."""
    demo = EXAMPLES / "strands_math_agent" / "demo.py"
    command = [sys.executable, str(demo), "--run-dir", str(folder), "--model", str(model)]
    subprocess.run([*command, "--steps", str(steps), *SETTINGS], check=True)
    return [line for p in folder.rglob("metrics.jsonl") for line in RunReader(p.parent).metrics()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=30)
    report.option(parser)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("there is no CUDA GPU here: this benchmark is for machines with one")
    device, found = torch.cuda.get_device_name(), report.Report()
    with tempfile.TemporaryDirectory(prefix="art-bench-") as name, Memory() as memory:
        model, runs = Path(name) / "model", Path(name) / "runs"
        warm = EXAMPLES / "demo_policy" / "warm_start.py"
        make = [sys.executable, str(warm), "--size", "medium", "--device", "cuda", "--steps", "600"]
        subprocess.run([*make, "--out", str(model)], check=True, cwd=warm.parent)
        began = time.perf_counter()
        lines = train(model, options.steps, runs)
        took = time.perf_counter() - began
    describe(found, lines, options.steps, f"{device}, bf16")
    found.row(f"all of it, {device}", "s", took)
    found.row(f"most GPU memory in use, {device}", "GB", memory.most)
    engine(found, device)
    found.write(options.json)


def describe(found: report.Report, lines: list[dict[str, Any]], steps: int, where: str) -> None:
    step = [line for line in lines if line["kind"] == "step"]
    success = {line["step"]: 100 * line["success"] for line in lines if line["kind"] == "eval"}
    name = f"held-out success, 120 million parameters, {steps} steps of 128 rollouts, {where}"
    before, after = success[min(success)], success[max(success)]
    found.row(name, "%", after, peers={"before": before}, higher=True, headline=True)
    for key, title in (("collect", "collecting"), ("train", "optimising")):
        found.row(f"a step's {title}, {where}", "s", [line["seconds"][key] for line in step])
    speeds = [line["tokens_per_s"] for line in step]
    found.row(f"trained tokens/s over whole steps, {where}", "/s", speeds, higher=True)
    worst = statistics.fmean(line["report"]["agreement"]["mean"] for line in step)
    found.row(f"captured and trainer log-probabilities, mean difference, {where}", "", worst)
    curve = {"reward": {line["step"]: [line["reward"]] for line in step}}
    found.curve("reward of each step on a GPU", "step", "reward", curve)


def engine(found: report.Report, device: str) -> None:
    with tempfile.TemporaryDirectory(prefix="art-bench-") as name:
        out = Path(name) / "engine.json"
        size = ["--device", "cuda", "--layers", "12", "--width", "768", "--quick"]
        command = [sys.executable, str(HERE / "engine.py"), *size, "--json", str(out)]
        subprocess.run(command, check=True)
        for row in report.read(json.loads(out.read_text())).rows:
            row.name, row.headline = f"{row.name}, {device}", False
            found.rows.append(row)


if __name__ == "__main__":
    main()
