"""``art runtime serve`` as a user starts it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import boto3

from agentcore_rl_toolkit import local

AGENT = Path(__file__).resolve().parents[1] / "agents" / "echo_agent"


def test_off_loopback_it_makes_keys_and_says_how_to_use_them(tmp_path: Path) -> None:
    home = tmp_path / "home"
    command = [sys.executable, "-m", "agentcore_rl_toolkit.cli.main", "runtime", "serve"]
    process = subprocess.Popen(
        [*command, "--host", "0.0.0.0", "--port", "0", "--home", str(home)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "NO_COLOR": "1", "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    try:
        said = ""
        while "networks that you do not trust" not in said:
            line = process.stdout.readline()
            assert line, said
            said += line
        words = dict(word.split("=", 1) for word in said.split() if "=" in word)
        url = words["AWS_ENDPOINT_URL"]
        path = Path(words["AWS_SHARED_CREDENTIALS_FILE"])
        assert path == home / "access-keys"
        keys = local.read_keys(path)
        assert not [secret for secret in keys.values() if secret in said]
        name, secret = next(iter(keys.items()))
        s3 = boto3.client(
            "s3",
            endpoint_url=url,
            region_name="us-east-1",
            aws_access_key_id=name,
            aws_secret_access_key=secret,
        )
        assert s3.list_buckets()["Buckets"]
        s3.close()
        strange = subprocess.run(
            [*command[:-2], "deploy", str(AGENT), "--local", "--endpoint", url],
            capture_output=True,
            text=True,
            env={**os.environ, "ART_HOME": str(tmp_path / "elsewhere"), "NO_COLOR": "1"},
            check=False,
        )
        assert "Set ART_ACCESS_KEYS to the file" in strange.stderr, "a caller without keys"
        process.send_signal(signal.SIGINT)
        assert "stopped, with every session" in process.stdout.read()
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
