"""Collecting while training, against in turns, with an agent whose tool waits a second.

Whole runs of the demo policy with real sessions, in turn: synchronous (staleness 0) and
asynchronous. A step has 16 rollouts: the demo's 64 keep two cores busy from beginning to end, so
that little is left to overlap (``--tasks 8``). The table says where a rollout's time goes. Two
shares say what collecting costs: ``idle`` is the part of the wall clock in which no agent worked,
nothing was generated and nothing was optimised, since all waited for collection; ``waited`` is the
part of a rollout's own time that went into its start and its end, most of it a queue for the
processor when a step starts them all at once.

python benchmarks/overlap.py [--json FILE]
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import report

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

HERE = Path(__file__).resolve().parent
MATH = HERE.parent / "examples" / "strands_math_agent"
sys.path.insert(0, str(MATH))


def run(staleness: int, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    import demo

    from agentcore_rl_toolkit.cli.train import new_run_dir
    from agentcore_rl_toolkit.cli.train import run as train
    from agentcore_rl_toolkit.run import RunReader
    from agentcore_rl_toolkit.trainer.view import Silent

    given = argparse.Namespace(
        steps=options.steps,
        evaluate=8,
        seed=1,
        staleness=staleness,
        model=demo.POLICY / "model",
        run_dir=str(folder / "runs"),
        overrides=[
            f"agent.env.WAIT_S={options.wait!r}",
            f"rollout.tasks_per_step={options.tasks}",
            "rollout.max_concurrent=128",
        ],
    )
    config = demo.make_config(given, folder)
    shutil.copy(HERE / "agents" / "waiting" / "rl_app.py", Path(config.agent.path or ""))
    run_dir = new_run_dir(config)
    train(config, run_dir, Silent())
    lines = [line for line in RunReader(run_dir).metrics() if line["kind"] == "step"]
    wall = lines[-1]["at"] - lines[0]["at"]
    stages = {name: mean([line["stages"][name] for line in lines]) for name in lines[0]["stages"]}
    began, ended = lines[0]["at"], lines[-1]["at"]
    return {
        "step_s": wall / (len(lines) - 1),
        "idle": 1 - covered(busy(RunReader(run_dir), lines), began, ended) / wall,
        "train_s": mean([line["seconds"]["train"] for line in lines]),
        "stale": mean([line["staleness"] for line in lines]),
        **stages,
    }


def busy(reader: Any, steps: list[dict[str, Any]]) -> list[tuple[float, float]]:
    """When an agent worked (its model calls included) or the optimiser did."""
    spans = [(line["at"] - line["seconds"]["train"], line["at"]) for line in steps]
    for line in reader.rollouts():
        if line["phase"] == "train":
            spent = line["timings"]
            end = line["at"] - spent["finish_s"]
            spans.append((end - sum(spent[k] for k in ("agent_s", "model_s", "reward_s")), end))
    return spans


def covered(spans: list[tuple[float, float]], began: float, ended: float) -> float:
    """Seconds between two times in which at least one span is open."""
    total, at = 0.0, began
    for start, end in sorted(spans):
        start, end = max(start, at), min(end, ended)
        if end > start:
            total, at = total + end - start, end
    return total


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--tasks", type=int, default=2, help="of a step, with 8 rollouts each")
    parser.add_argument("--wait", type=float, default=1.0, help="seconds of the tool")
    parser.add_argument("--staleness", type=int, default=2)
    report.option(parser)
    options = parser.parse_args()
    rows = {}
    for name, staleness in (("in turns", 0), ("overlapped", options.staleness)):
        with tempfile.TemporaryDirectory(prefix="art-bench-") as folder:
            started = time.perf_counter()
            rows[name] = run(staleness, options, Path(folder))
            print(f"{name}: {time.perf_counter() - started:.0f} s", file=sys.stderr)
    work = ("start_s", "agent_s", "model_s", "reward_s", "finish_s")
    columns = ("step_s", "train_s", "stale", *work)
    print(f"{'seconds':<12}" + "".join(f"{n:>10}" for n in (*columns, "waited", "idle")))
    found = report.Report()
    for name, row in rows.items():
        waited = (row["start_s"] + row["finish_s"]) / sum(row[k] for k in work)
        cells = "".join(f"{row[k]:>10.2f}" for k in columns)
        print(f"{name:<12}{cells}{waited:>10.1%}{row['idle']:>10.1%}")
        found.row(f"wall clock lost to collecting, {name}", "%", 100 * row["idle"], aim=10)
        found.row(f"a rollout's time in start and end, {name}", "%", 100 * waited)
    ratio = rows["in turns"]["step_s"] / rows["overlapped"]["step_s"]
    print(f"overlapped is {ratio:.2f} times as fast")
    found.row(
        "a step while collecting, tools that wait 1 s",
        "s",
        rows["overlapped"]["step_s"],
        peers={"in turns": rows["in turns"]["step_s"]},
        times={"in turns": 1.3},
        headline=True,
    )
    found.write(options.json)


if __name__ == "__main__":
    main()
