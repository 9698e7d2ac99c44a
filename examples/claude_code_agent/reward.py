"""The reward: the repository's functions, called from outside, give what they should.

The calls go to a process that has the agent's code; the results are compared here. So nothing that
the agent writes, tests included, ever holds or decides what is right.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from agentcore_rl_toolkit import RewardFunction

TIMEOUT_S = 20.0
CHECKS: dict[str, list[tuple[str, list[Any], Any]]] = {
    "roman": [
        ("to_roman", [4], "IV"),
        ("to_roman", [9], "IX"),
        ("to_roman", [1666], "MDCLXVI"),
        ("to_roman", [1990], "MCMXC"),
        ("to_roman", [444], "CDXLIV"),
        ("to_roman", [3999], "MMMCMXCIX"),
    ],
    "wallet": [
        ("split", [100, 4], [25, 25, 25, 25]),
        ("split", [101, 3], [34, 34, 33]),
        ("split", [2, 5], [1, 1, 0, 0, 0]),
        ("split", [1000, 7], [143, 143, 143, 143, 143, 143, 142]),
    ],
}
CALL = """
import importlib, json, sys
sys.path.insert(0, sys.argv[1])
asked = json.load(sys.stdin)
module = importlib.import_module(sys.argv[2])
results = [getattr(module, name)(*arguments) for name, arguments in asked]
print("\\n" + json.dumps(results))
"""


class RepoReward(RewardFunction):
    """1.0 when every call gives the right result, else 0.0."""

    def __call__(self, *, folder: Path | None = None, repo: str = "", **_: Any) -> float:
        checks = CHECKS.get(repo)
        if folder is None or not checks:
            return 0.0
        asked = [[name, arguments] for name, arguments, _ in checks]
        try:
            done = subprocess.run(
                [sys.executable, "-I", "-c", CALL, str(folder), repo],
                input=json.dumps(asked).encode(),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={"PATH": os.defpath},
                cwd=folder.parent,
                timeout=TIMEOUT_S,
                check=True,
            )
            results = json.loads(done.stdout.splitlines()[-1])
        except (subprocess.SubprocessError, ValueError, IndexError):
            return 0.0
        return float(results == [right for _, _, right in checks])
