"""Does it learn, and how fast? Sampled held-out success of the demo policy over training steps.

``--in-process`` plays the agent's conversation directly on the engine: engine and trainer alone,
without gateway, sessions and Strands. ``--control`` replaces rewards by chance, which must leave
the curve flat; ``--both`` does one after the other. Success is measured as training samples (greedy
would mislead: it moves by drift).

python benchmarks/train.py --in-process --both [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

import report

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

POLICY = Path(__file__).resolve().parent.parent / "examples" / "demo_policy"
sys.path.insert(0, str(POLICY))

TASKS = 8
GROUP = 8
FLAT_POINTS = 7
"""Two standard deviations of a difference between two evaluations of 384 problems."""


@dataclasses.dataclass(frozen=True)
class Learnt:
    before: float
    after: float
    spent: dict[str, float]
    """Seconds, by what for."""
    tokens: int
    worst: float
    """Largest difference of a captured log-probability from the trainer's."""


async def in_process(options: argparse.Namespace, control: bool) -> Learnt:
    from conversation import MODEL, make_renderer
    from play import play_groups, success
    from problems import STORIES, problems
    from transformers import AutoTokenizer

    from agentcore_rl_toolkit.engine import Engine, load_model, twin
    from agentcore_rl_toolkit.trainer import Trainer

    folder = options.model or MODEL
    renderer = make_renderer(AutoTokenizer.from_pretrained(folder))
    reference = load_model(folder, device=options.device) if options.kl else None
    model = load_model(folder, device=options.device)
    trainer = Trainer(model, setting(options), reference=reference)
    tasks = problems(TASKS * options.steps, options.seed)
    held_out = list(problems(options.evaluate, 1, "test"))
    chance = random.Random(options.seed)
    spent = {"sampling": 0.0, "training": 0.0, "evaluation": 0.0}
    sampled_tokens = 0
    worst = 0.0
    by_story: dict[int, float] = {}
    with Engine(twin(trainer.model), max_rows=128, seed=options.seed) as engine:

        async def evaluate(name: str) -> float:
            started = time.perf_counter()
            rows = await play_groups(engine, renderer, held_out, 1, name)
            spent["evaluation"] += time.perf_counter() - started
            for story in range(len(STORIES)):
                own = [r for r, p in zip(rows, held_out, strict=True) if p.story == story]
                by_story[story] = success(own) if own else 0.0
            return success(rows)

        before = await evaluate("before")
        line(0, before, None, 0.0)
        started = time.perf_counter()
        for step in range(1, options.steps + 1):
            clock = time.perf_counter()
            batch = [next(tasks) for _ in range(TASKS)]
            rows = await play_groups(engine, renderer, batch, GROUP, f"step-{step}")
            sampled_tokens += sum(row.n_trained for row in rows)
            spent["sampling"] += time.perf_counter() - clock
            if control:
                for row in rows:
                    row.reward = float(chance.random() < 0.5)
            clock = time.perf_counter()
            report = await asyncio.to_thread(trainer.step, rows, changing=engine.updating)
            spent["training"] += time.perf_counter() - clock
            worst = max(worst, report.agreement.max)
            if step % options.every == 0 or step == options.steps:
                now = await evaluate(f"eval-{step}")
                line(step, now, report, time.perf_counter() - started)
        after = await evaluate("after")
    print("\nby story: " + " ".join(f"{value:.0%}" for value in by_story.values()))
    learnt = Learnt(before, after, spent, sampled_tokens, worst)
    summary(learnt, options.steps)
    return learnt


def setting(options: argparse.Namespace) -> Any:
    from agentcore_rl_toolkit.trainer import TrainSetting

    return TrainSetting(
        steps=options.steps,
        lr=options.lr,
        schedule="linear",
        warmup_steps=3,
        minibatches=2,
        normalise=options.normalise,
        batch_tokens=options.batch_tokens,
        kl=options.kl,
        seed=options.seed,
    )


def line(step: int, now: float, report: Any, took: float) -> None:
    bar = "█" * round(40 * now)
    detail = ""
    if report is not None:
        detail = (
            f"  reward {report.reward:.2f}  skipped {report.skipped_groups}/{report.groups}"
            f"  |captured-trainer| {report.agreement.max:.1e}  {took:.0f} s"
        )
    print(f"{step:4d}  {now:6.1%}  {bar:<40}{detail}", flush=True)


def summary(learnt: Learnt, steps: int) -> None:
    spent = learnt.spent
    for name in ("sampling", "training"):
        print(f"{name:<12}{spent[name]:8.1f} s  {spent[name] / steps:6.2f} s a step")
    print(f"{'evaluation':<12}{spent['evaluation']:8.1f} s")
    speed = learnt.tokens / spent["sampling"]
    print(f"sampled {learnt.tokens} tokens, {speed:.0f} tokens/s while sampling")
    print(f"largest |captured - trainer| log-probability of the run: {learnt.worst:.1e}")
    print(gpu_memory(), end="")
    print(f"held-out success: {learnt.before:.1%} -> {learnt.after:.1%}", flush=True)


def write(learnt: Learnt | None, control: Learnt | None, options: argparse.Namespace) -> None:
    found, steps = report.Report(), options.steps
    if learnt is not None:
        name = f"held-out success after {steps} steps, engine and trainer alone"
        more = {"peers": {"before": 100 * learnt.before}, "higher": True}
        found.row(name, "%", 100 * learnt.after, aim=90, **more)
        for part in ("sampling", "training"):
            found.row(f"{part}, a step", "s", learnt.spent[part] / steps)
        speed = learnt.tokens / learnt.spent["sampling"]
        found.row("sampled tokens/s", "/s", speed, higher=True)
        name = "captured and trainer log-probabilities, largest difference"
        found.row(name, "", learnt.worst, aim=1e-4)
    if control is not None:
        name = f"random rewards: change of held-out success in {steps} steps, either way"
        peers = {"before, %": 100 * control.before, "after, %": 100 * control.after}
        change = abs(100 * (control.after - control.before))
        found.row(name, "points", change, aim=FLAT_POINTS, peers=peers)
    found.write(options.json)


def gpu_memory() -> str:
    import torch

    if not torch.cuda.is_available():
        return ""
    peak = torch.cuda.max_memory_allocated() / 2**30
    return f"{torch.cuda.get_device_name()}, at most {peak:.2f} GiB\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--in-process", action="store_true", help="engine and trainer alone")
    parser.add_argument("--control", action="store_true", help="random rewards: must stay flat")
    parser.add_argument("--both", action="store_true", help="with rewards, then with random ones")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lr", type=float, default=8e-4)
    parser.add_argument("--kl", type=float, default=0.03, help="weight of the pull to the start")
    parser.add_argument("--normalise", default="token", choices=["rollout", "token"])
    parser.add_argument("--batch-tokens", type=int, default=8192)
    parser.add_argument("--evaluate", type=int, default=384, help="held-out problems")
    parser.add_argument("--every", type=int, default=10, help="steps between evaluations")
    parser.add_argument("--threads", type=int, default=0, help="0: as torch chooses")
    parser.add_argument("--device", default=None)
    parser.add_argument("--model", type=Path, default=None)
    report.option(parser)
    options = parser.parse_args()
    if options.threads:
        import torch

        torch.set_num_threads(options.threads)
    learnt = None if options.control else asyncio.run(in_process(options, control=False))
    both = options.control or options.both
    control = asyncio.run(in_process(options, control=True)) if both else None
    write(learnt, control, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
