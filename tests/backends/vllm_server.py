"""A vLLM for tests: its CPU build in its own environment, float32, with management endpoints."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

START_S = 600.0
OPTIONS = (
    *("--host", "127.0.0.1", "--served-model-name", "tiny", "--dtype", "float32"),
    *("--max-model-len", "1024", "--max-num-seqs", "8", "--enforce-eager"),
    *("--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--enable-scale-out"),
    *("--logprobs-mode", "processed_logprobs", "--generation-config", "vllm"),
)


def post(url: str, body: dict[str, Any]) -> Any:
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(url, data=json.dumps(body).encode(), headers=headers)
    with urllib.request.urlopen(request, timeout=120) as reply:
        return json.loads(reply.read() or b"null")


@contextlib.contextmanager
def serving(python: Path, model: Path, log: Path) -> Iterator[str]:
    """Its URL, once it has answered a first request."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    command = [str(python.with_name("vllm")), "serve", str(model), "--port", str(port), *OPTIONS]
    settings = {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_SERVER_DEV_MODE": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "PATH": f"{python.parent}:{os.environ['PATH']}",
    }
    with log.open("wb") as out:
        child = subprocess.Popen(
            command, env={**os.environ, **settings}, stdout=out, stderr=out, start_new_session=True
        )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait(child, url, log)
        # kernels are compiled at the first request: not within a test's own deadlines
        post(f"{url}/v1/completions", {"model": "tiny", "prompt": "the", "max_tokens": 2})
        yield url
    finally:
        child.terminate()
        try:
            child.wait(30)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _wait(child: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while True:
        assert child.poll() is None, log.read_text()[-2000:]
        assert time.monotonic() < deadline, log.read_text()[-2000:]
        with contextlib.suppress(OSError), urllib.request.urlopen(url + "/health", timeout=2):
            return
        time.sleep(0.2)
