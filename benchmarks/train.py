"""``make demo`` as a benchmark: does the demo agent learn, and in what time?

    python benchmarks/train.py [--seeds 1,2,3] [--control] [--json FILE]

Real sessions, the gateway, the embedded engine and the trainer, on this machine alone. With
``--control`` one more run follows, whose training rewards are random: its success must stay where
it was.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import report

from agentcore_rl_toolkit.run import RunReader

HERE = Path(__file__).resolve().parent
MATH = HERE.parent / "examples" / "strands_math_agent"
CHANCE_POINTS = 12.0
"""Two standard deviations of the difference between two evaluations of 128 problems."""
LAST = re.compile(r"held-out success: ([\d.]+) % -> ([\d.]+) %")


@dataclasses.dataclass(frozen=True)
class Run:
    before: float
    after: float
    took: float
    worst: float
    """Largest difference of a captured log-probability from the trainer's."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=46)
    parser.add_argument("--seeds", default="1", help="comma list, one whole demo each")
    parser.add_argument("--control", action="store_true", help="and one with random rewards")
    report.option(parser)
    options = parser.parse_args()
    runs = [run(options.steps, int(seed)) for seed in options.seeds.split(",")]
    found = report.Report()
    name = f"held-out success of the demo agent after {options.steps} steps, two CPU cores"
    more = {"peers": {"before": [one.before for one in runs]}, "aim": 90, "higher": True}
    found.row(name, "%", [one.after for one in runs], **more, headline=True)
    found.row("the whole demo", "s", [one.took for one in runs], aim=360, headline=True)
    name = "captured and trainer log-probabilities, largest difference in the demo"
    found.row(name, "", max(one.worst for one in runs), aim=1e-4, headline=True)
    if options.control:
        control = run(options.steps, 1, agent=HERE / "agents" / "random")
        name = "held-out success moved by as many steps of random rewards, up or down"
        moved = abs(control.after - control.before)
        found.row(name, "points", moved, peers={}, aim=CHANCE_POINTS, headline=True)
    found.write(options.json)


def run(steps: int, seed: int, agent: Path | None = None) -> Run:
    """``agent``: a folder whose files replace the demo agent's."""
    with tempfile.TemporaryDirectory(prefix="art-bench-") as folder:
        command = [sys.executable, str(MATH / "demo.py"), "--run-dir", f"{folder}/runs"]
        command += ["--steps", str(steps), "--seed", str(seed)]
        if agent is not None:
            command.append(f"agent.path={replaced(agent, Path(folder))}")
        began = time.perf_counter()
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        took = time.perf_counter() - began
        runs = [RunReader(path.parent) for path in Path(folder).rglob("metrics.jsonl")]
        lines = [line for one in runs for line in one.metrics() if line["kind"] == "step"]
    print(done.stdout)
    said = LAST.search(done.stdout)
    if done.returncode or said is None:
        sys.exit(f"the demo ended with status {done.returncode}")
    before, after = map(float, said.groups())
    return Run(before, after, took, max(line["report"]["agreement"]["max"] for line in lines))


def replaced(agent: Path, folder: Path) -> Path:
    sys.path.insert(0, str(MATH))
    import demo as program

    made = program.agent_folder(folder)
    shutil.copytree(agent, made, dirs_exist_ok=True)
    return Path(made)


if __name__ == "__main__":
    main()
