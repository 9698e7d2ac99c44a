"""What may stand between a load and an engine: this gateway, nginx, and its peers from PyPI.

Peers live in environments of their own under the user's cache folder; one that cannot be made is
skipped with the reason.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peer import environment

SESSION_PATH = "/sessions/%s/v1/chat/completions"
PLAIN_PATH = "/v1/chat/completions"
OURS, RLLM, ACR = "this gateway", "rllm-model-gateway", "agentcore-rl-toolkit 0.2.0"
NAMES = {"rllm": RLLM, "acr": ACR, "litellm": "LiteLLM proxy (no capture)"}

SERVE_OURS = """
import sys
from pathlib import Path
import uvloop
from agentcore_rl_toolkit.gateway import GatewaySettings, ModelSpec
from agentcore_rl_toolkit.gateway.server import serve
settings = GatewaySettings(port=int(sys.argv[2]), run_dir=Path(sys.argv[3]), open=True)
model = ModelSpec.parse(f"policy=vllm:http://127.0.0.1:{sys.argv[1]}#fake-model")
uvloop.run(serve([model], settings))
"""
SERVE_ACR = """
import sys
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast
from agentcore_rl_toolkit.rollout_gateway import HfTemplateRenderer, RolloutGateway
from agentcore_rl_toolkit.rollout_gateway.sampling_backends.vllm_http import VllmHttpBackend
bpe = Tokenizer(models.BPE())
bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
bpe.decoder = decoders.ByteLevel()
trainer = trainers.BpeTrainer(
    vocab_size=400, max_token_length=4, show_progress=False, special_tokens=["<|end|>"],
    initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
bpe.train_from_iterator(["u" * 64, "s" * 64, "a" * 64, "word " * 16], trainer)
template = ("{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}<|end|>{% endfor %}"
            "{% if add_generation_prompt %}assistant: {% endif %}")
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=bpe, eos_token="<|end|>", chat_template=template)
gateway = RolloutGateway(
    backend=VllmHttpBackend(f"http://127.0.0.1:{sys.argv[1]}"),
    renderer=HfTemplateRenderer(tokenizer), tokenizer=tokenizer)
gateway.run(host="127.0.0.1", port=int(sys.argv[2]))
"""


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextlib.contextmanager
def process(command: list[str], port: int, log: Path, wait_s: float = 240.0) -> Iterator[int]:
    """Runs a server until the block ends; yields its pid once it listens."""
    with log.open("wb") as out:
        child = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        try:
            deadline = time.monotonic() + wait_s
            while True:
                if child.poll() is not None:
                    raise RuntimeError(f"ended at once: {log.read_text()[-300:]}")
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                if time.monotonic() > deadline:
                    raise RuntimeError(f"did not listen within {wait_s:g} s")
                time.sleep(0.05)
            yield child.pid
        finally:
            child.terminate()
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def family(pid: int) -> list[int]:
    """A process and its descendants: nginx and LiteLLM work in children."""
    found, todo = [], [pid]
    while todo:
        one = todo.pop()
        found.append(one)
        with contextlib.suppress(OSError):
            children = Path(f"/proc/{one}/task/{one}/children").read_text().split()
            todo += [int(child) for child in children]
    return found


def cpu_s(pid: int) -> float:
    total = 0.0
    for one in family(pid):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
            total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def rss_mb(pid: int) -> float:
    total = 0
    for one in family(pid):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{one}/status").read_text().splitlines():
                if line.startswith("VmRSS"):
                    total += int(line.split()[1])
    return total / 1024


@dataclass
class Subject:
    """Something that stands between the load and the engine."""

    name: str
    path: str
    command: Any
    """(engine port, own port, folder) to a command line; None for the direct connection."""
    header: str | None = None
    """Header that names the session, when the path does not."""


def peer_python(name: str, *packages: str) -> str:
    """Interpreter of a peer's own environment; RuntimeError where it cannot be made."""
    python = environment(name, *packages)
    if python is None:
        raise RuntimeError("its environment cannot be made: see above")
    return str(python)


def nginx_command(engine: int, port: int, folder: Path) -> list[str]:
    config = folder / "nginx.conf"
    config.write_text(
        f"daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log;\n"
        "events { worker_connections 8192; }\nhttp { access_log off;\n"
        f"upstream engine {{ server 127.0.0.1:{engine}; keepalive 1024; }}\n"
        f"server {{ listen 127.0.0.1:{port}; client_max_body_size 64m;\n"
        "rewrite ^/sessions/[^/]+(/.*)$ $1 break;\n"
        "location / { proxy_pass http://engine; proxy_http_version 1.1; proxy_buffering off;\n"
        'proxy_set_header Connection ""; } } }\n'
    )
    return ["nginx", "-c", str(config), "-p", str(folder)]


def subjects(wanted: set[str], absent: dict[str, str]) -> Iterator[Subject]:
    """Those that can run here; ``absent`` learns why another cannot."""
    for key, make in MAKERS.items():
        if wanted and key not in wanted:
            continue
        try:
            yield make()
        except (RuntimeError, OSError, subprocess.SubprocessError) as error:
            absent[key] = str(error)


def _nginx() -> Subject:
    if shutil.which("nginx") is None:
        raise RuntimeError("not installed (Debian: apt-get install nginx-light)")
    return Subject("nginx", SESSION_PATH, nginx_command)


def _ours() -> Subject:
    def command(engine: int, port: int, folder: Path) -> list[str]:
        return [sys.executable, "-c", SERVE_OURS, str(engine), str(port), str(folder)]

    return Subject("this gateway", SESSION_PATH, command)


def _rllm() -> Subject:
    python = peer_python("rllm", "rllm-model-gateway")

    def command(engine: int, port: int, folder: Path) -> list[str]:
        where = ["--host", "127.0.0.1", "--port", str(port), "--db-path", str(folder / "db")]
        return [python, "-m", "rllm_model_gateway", *where, "--log-level", "error"]

    return Subject("rllm-model-gateway", SESSION_PATH, command)


def _litellm() -> Subject:
    python = peer_python("litellm", "litellm[proxy]")

    def command(engine: int, port: int, folder: Path) -> list[str]:
        config = folder / "config.yaml"
        config.write_text(
            "model_list:\n  - model_name: policy\n    litellm_params:\n"
            "      model: openai/fake-model\n      api_key: none\n"
            f"      api_base: http://127.0.0.1:{engine}/v1\n"
            "general_settings:\n  dangerously_permit_weak_or_unset_master_key: true\n"
        )
        tool = str(Path(python).with_name("litellm"))
        # else it looks for prices and headers on the network, for a minute and a half
        local = ("MODEL_COST_MAP", "ANTHROPIC_BETA_HEADERS", "POLICY_TEMPLATES", "BLOG_POSTS")
        alone = ["env", *(f"LITELLM_LOCAL_{name}=True" for name in local), tool]
        return [*alone, "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]

    return Subject("LiteLLM proxy (no capture)", PLAIN_PATH, command)


def _acr() -> Subject:
    python = peer_python("acr", "agentcore-rl-toolkit[gateway]==0.2.0", "transformers")

    def command(engine: int, port: int, folder: Path) -> list[str]:
        return [python, "-c", SERVE_ACR, str(engine), str(port)]

    header = "Authorization: Bearer %s"
    return Subject("agentcore-rl-toolkit 0.2.0", PLAIN_PATH, command, header)


MAKERS: dict[str, Any] = {
    "direct": lambda: Subject("direct", PLAIN_PATH, None),
    "nginx": _nginx,
    "gateway": _ours,
    "rllm": _rllm,
    "acr": _acr,
    "litellm": _litellm,
}
