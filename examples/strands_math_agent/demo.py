"""Trains a small language model to solve word problems with a calculator, on this machine alone.

Starts a local AgentCore Runtime, deploys ``rl_app.py`` (a Strands agent), serves the demo policy
through a gateway that captures every token, and runs 46 steps of GRPO: 64 rollouts each, every one
in an isolated session of its own. Before and after, the agent is tried on problems that it has not
seen. Everything is stopped at the end, also on Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
POLICY = HERE.parent / "demo_policy"
AGENT_FILES = ("rl_app.py", "calculator.py", "reward.py")
CERTIFICATE = "one_ca.pem"

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")


def main() -> int:
    options = parse_arguments()
    say("loading ...")
    from agentcore_rl_toolkit.cli.train import new_run_dir, run
    from agentcore_rl_toolkit.cli.train_view import train_view

    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="art-demo-") as folder:
        config = make_config(options, Path(folder))
        run_dir = new_run_dir(config)
        say(
            f"training {POLICY.name} in {config.train.steps} steps of "
            f"{config.rollout.tasks_per_step} problems x {config.rollout.group_size} rollouts"
        )
        with train_view() as view:
            outcome = run(config, run_dir, view)
    say("")
    draw(run_dir)
    say(f"\n{outcome.report}")
    say(f"{time.perf_counter() - started:.0f} s in all; run folder {run_dir}")
    before, after = outcome.before or 0.0, outcome.after or 0.0
    say(f"held-out success: {100 * before:.1f} % -> {100 * after:.1f} %")
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=46)
    parser.add_argument("--evaluate", type=int, default=128, help="held-out problems")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--staleness", type=int, default=0, help="steps to collect ahead")
    parser.add_argument("--model", type=Path, default=POLICY / "model")
    parser.add_argument("--run-dir", default="runs")
    parser.add_argument("overrides", nargs="*", help="key.sub=value, as for 'art train'")
    return parser.parse_intermixed_args()


def make_config(options: argparse.Namespace, folder: Path) -> Any:
    from agentcore_rl_toolkit.trainer.config import load

    sys.path.insert(0, str(POLICY))
    from problems import problems

    for name, count, seed, split in (
        ("train", 8 * options.steps, options.seed, "train"),
        ("test", options.evaluate, 1, "test"),
    ):
        rows = (p.row(i) for i, p in enumerate(problems(count, seed, split)))
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(text)
    return load(
        HERE / "train.yaml",
        [
            f"agent.path={agent_folder(folder)}",
            f"agent.env.SSL_CERT_FILE={CERTIFICATE}",
            f"data.train={folder}/train.jsonl",
            f"data.eval={folder}/test.jsonl",
            f"model.path={options.model}",
            f"train.steps={options.steps}",
            f"train.seed={options.seed}",
            f"train.max_staleness={options.staleness}",
            f"run_dir={options.run_dir}",
            "train.eval_every=0",
            "train.save_every=0",
            *options.overrides,
        ],
    )


def agent_folder(folder: Path) -> Path:
    """The agent's files and one certificate.

    Strands makes a new HTTP client for every model call, and each loads all certificates that the
    system trusts: 30 ms, more than everything else that the agent does. The gateway is on
    loopback and speaks plain HTTP, so one is as good as all.
    """
    import certifi

    agent = folder / "strands_math_agent"
    agent.mkdir()
    for name in AGENT_FILES:
        shutil.copy(HERE / name, agent)
    end = "-----END CERTIFICATE-----\n"
    (agent / CERTIFICATE).write_text(certifi.contents().partition(end)[0] + end)
    return agent


def draw(run_dir: Path, width: int = 64, height: int = 10) -> None:
    """The reward of every step, and the held-out success, as a chart."""
    from agentcore_rl_toolkit.run import RunReader

    lines = list(RunReader(run_dir).metrics())
    rewards = [line["reward"] for line in lines if line["kind"] == "step"]
    evals = [(line["step"], line["success"]) for line in lines if line["kind"] == "eval"]
    if not rewards:
        return
    size = max(1, -(-len(rewards) // width))
    means = [
        sum(rewards[i : i + size]) / len(rewards[i : i + size])
        for i in range(0, len(rewards), size)
    ]
    marks = {min(len(means) - 1, step // size): value for step, value in evals}
    say("reward of each training step (█) and success on held-out problems (◆)")
    for row in range(height, -1, -1):
        level = row / height
        cells = "".join(
            "◆"
            if i in marks and round(marks[i] * height) == row
            else "█"
            if mean >= level - 0.5 / height and row
            else " "
            for i, mean in enumerate(means)
        )
        say(f"{level:4.0%} │{cells}")
    say("     └" + "─" * len(means) + f" step {len(rewards)}")


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    from agentcore_rl_toolkit.errors import ToolkitError

    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("\nstopped; nothing is left running")
    except ToolkitError as error:
        sys.exit(f"error: {error}")
