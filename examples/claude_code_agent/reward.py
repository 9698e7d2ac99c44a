"""The reward: the repository's functions, called from outside, give what they should.

The tests come with the payload: calls and their right results. The calls go to a process that has
the agent's code; the results are compared here. So nothing that the agent reads or writes, tests
included, ever holds or decides what is right.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from claude_code import FENCE

from agentcore_rl_toolkit import RewardFunction

TIMEOUT_S = 20.0
MAX_BYTES = 1 << 20
CALL = """
import importlib, json, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
sys.path.insert(0, sys.argv[1])
asked = json.load(sys.stdin)
module = importlib.import_module(sys.argv[2])
results = [getattr(module, name)(*arguments) for name, arguments in asked]
print("\\n" + json.dumps(results))
"""


class RepoReward(RewardFunction):
    """1.0 when every call gives the right result, else 0.0."""

    def __call__(
        self,
        *,
        folder: Path | None = None,
        repo: str = "",
        checks: Sequence[tuple[str, list[Any], Any]] = (),
        **_: Any,
    ) -> float:
        if folder is None or not checks:
            return 0.0
        asked = [[name, arguments] for name, arguments, _ in checks]
        try:
            results = json.loads(call(folder, repo, json.dumps(asked).encode()))
        except (subprocess.SubprocessError, ValueError, RecursionError):
            return 0.0
        return float(results == [right for _, _, right in checks])


def call(folder: Path, repo: str, asked: bytes) -> bytes:
    """The last line that the process prints."""
    command = [sys.executable, "-I", "-c", CALL, str(folder), repo]
    with tempfile.TemporaryFile() as said:
        subprocess.run(
            [sys.executable, "-I", "-c", FENCE, *command],
            input=asked,
            stdout=said,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.defpath},
            cwd=folder.parent,
            timeout=TIMEOUT_S,
            check=True,
        )
        said.seek(0)
        return said.read(MAX_BYTES).rstrip().rpartition(b"\n")[2]
