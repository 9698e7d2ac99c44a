"""``make demo`` as a benchmark: does the demo agent learn, and in what time?

    python benchmarks/demo.py [--json FILE]

Real sessions, the gateway, the embedded engine and the trainer, on this machine alone.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import report

from agentcore_rl_toolkit.run import RunReader

DEMO = Path(__file__).resolve().parents[1] / "examples" / "strands_math_agent" / "demo.py"
LAST = re.compile(r"held-out success: ([\d.]+) % -> ([\d.]+) %")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=40)
    report.option(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="art-bench-") as folder:
        command = [sys.executable, str(DEMO), "--run-dir", folder, "--steps", str(options.steps)]
        began = time.perf_counter()
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        took = time.perf_counter() - began
        runs = [RunReader(path.parent) for path in Path(folder).rglob("metrics.jsonl")]
        steps = [line for run in runs for line in run.metrics() if line["kind"] == "step"]
    print(done.stdout)
    said = LAST.search(done.stdout)
    if done.returncode or said is None:
        sys.exit(f"the demo ended with status {done.returncode}")
    before, after = map(float, said.groups())
    found = report.Report()
    name = f"held-out success of the demo agent after {options.steps} steps, two CPU cores"
    more = {"peers": {"before": before}, "aim": 90, "higher": True, "headline": True}
    found.row(name, "%", after, **more)
    found.row("the whole demo", "s", took, aim=360, headline=True)
    worst = max(line["report"]["agreement"]["max"] for line in steps)
    name = "captured and trainer log-probabilities, largest difference in the demo"
    found.row(name, "", worst, aim=1e-4, headline=True)
    found.write(options.json)


if __name__ == "__main__":
    main()
