"""Commands that end with all that they started, and cannot end whoever started them.

Each runs under a keeper of its own (``keeper.py``), whose source is in memory from the start: what
a command does to the file does not matter.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

KEEPER = (Path(__file__).resolve().parent / "keeper.py").read_text()
MAX_BYTES = 8 << 20
"""Of what a command prints; it may print more, which nobody reads."""
TIMED_OUT = 124


@dataclass(frozen=True)
class Done:
    code: int
    output: str
    escaped: bool
    """The keeper was killed: what the command started may still be there."""


def run(
    command: Sequence[str],
    folder: Path,
    env: Mapping[str, str],
    timeout_s: float,
    stdin: bytes = b"",
) -> Done:
    with tempfile.TemporaryFile() as said:
        try:
            code = subprocess.run(
                [sys.executable, "-I", "-c", KEEPER, str(timeout_s), *command],
                cwd=folder,
                env=env,
                input=stdin,
                stdout=said,
                stderr=subprocess.STDOUT,
                timeout=timeout_s + 30,
                check=False,
            ).returncode
            escaped = code < 0
        except subprocess.TimeoutExpired:
            code, escaped = TIMED_OUT, True
        said.seek(0)
        return Done(code, said.read(MAX_BYTES).decode(errors="replace"), escaped)
