"""``art engine`` as a user types it: a model folder in, an address out, clean at Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

ART = [sys.executable, "-m", "agentcore_rl_toolkit.cli.main", "engine"]
ENV = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}
MODEL = Path(__file__).resolve().parents[2] / "examples" / "demo_policy" / "model"


def test_a_model_folder_is_served_until_ctrl_c() -> None:
    command = [*ART, "serve", str(MODEL), "--name", "policy", "--device", "cpu"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENV
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            found = re.search(r"on (http://127\.0\.0\.1:\d+) serves policy", next(process.stdout))
            assert found is not None
            assert f"vllm-generate:{found.group(1)} --tokenizer {MODEL}" in next(process.stdout)
            with urllib.request.urlopen(f"{found.group(1)}/v1/models") as reply:
                assert [model["id"] for model in json.load(reply)["data"]] == ["policy"]
            process.send_signal(signal.SIGINT)
            assert process.stdout.read() == "stopped\n"
            assert process.wait(30) == 0
            assert process.stderr.read() == f"loading {MODEL}\n", "and no bars in a pipe"
        finally:
            process.kill()
