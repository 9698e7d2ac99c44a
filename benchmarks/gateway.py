"""What capture costs: this gateway beside a direct connection, nginx and its peers, in one run.

    python benchmarks/gateway.py [--rounds 3] [--only direct,gateway] [--quick] [--json FILE]

``benchmarks/tools`` holds ``loadgen.c`` and ``fakevllm.c``: a closed-loop load generator and a
stand-in for vLLM, both compiled into a temporary folder. Rounds are interleaved, so that a noisy
machine is noisy for everybody; the table shows medians. Peers come from PyPI into environments of
their own under the user's cache folder; one that cannot be made is skipped with the reason.
Everything stays on loopback.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import report

SESSION_PATH = "/sessions/%s/v1/chat/completions"
PLAIN_PATH = "/v1/chat/completions"
ANSWER_TOKENS = 256

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


@dataclass
class Bench:
    tools: Path
    folder: Path
    quick: bool
    bodies: dict[str, str] = field(default_factory=dict)

    def compile(self) -> None:
        for name in ("loadgen", "fakevllm"):
            source = self.tools / f"{name}.c"
            if not source.exists():
                raise SystemExit(f"{source} is missing: give the folder of the C tools as --tools")
            out = self.folder / name
            subprocess.run(["gcc", "-O2", "-w", "-o", out, source, "-lpthread"], check=True)

    def write_bodies(self) -> None:
        base = [
            {"role": "system", "content": "You are a careful agent."},
            {"role": "user", "content": "word " * 120},
        ]
        self.bodies["small"] = self._body("small", {"model": "policy", "messages": base})
        self.bodies["stream"] = self._body(
            "stream", {"model": "policy", "messages": base, "stream": True}
        )
        # the stand-in counts a token for every four bytes of a request: 8k to 32k in 13 turns
        messages: list[dict[str, str]] = [{"role": "system", "content": "s" * 31_500}]
        turns = []
        for turn in range(13):
            messages.append({"role": "user", "content": f"{turn} " + "u" * 7_600})
            turns.append(self._body(f"turn{turn}", {"model": "policy", "messages": messages}))
            messages.append({"role": "assistant", "content": "a" * 280})
        self.bodies["turns"] = ",".join(turns)
        large = [{"role": "user", "content": "l" * 64_000} for _ in range(8)]
        self.bodies["large"] = self._body("large", {"model": "policy", "messages": large})
        self.bodies["long"] = ",".join(self._long())

    def _long(self) -> Iterator[str]:
        """50 turns, up to 32k tokens."""
        messages: list[dict[str, str]] = [{"role": "system", "content": "s" * 1_000}]
        for turn in range(50):
            messages.append({"role": "user", "content": f"{turn} " + "u" * 2_250})
            yield self._body(f"long{turn}", {"model": "policy", "messages": messages})
            messages.append({"role": "assistant", "content": "a" * 280})

    def _body(self, name: str, body: dict[str, Any]) -> str:
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(body, separators=(",", ":")))
        return str(path)

    def load(self, port: int, subject: Subject, sid: str, **options: Any) -> dict[str, Any]:
        command = [str(self.folder / "loadgen"), str(port), "--path", subject.path, "--sid", sid]
        if subject.header is not None:
            command += ["--header", subject.header]
        for name, value in options.items():
            command += [f"--{name.replace('_', '-')}", str(value)]
        out = subprocess.run(command, capture_output=True, text=True, check=True)
        return dict(json.loads(out.stdout))


MEASURES = {
    "cpu_us": "CPU a request, µs",
    "rps": "requests/s, 256 in flight",
    "p50_1_ms": "p50 at concurrency 1, ms",
    "stream_cpu_us": "CPU a streamed request, µs",
    "stream_rps": "streamed requests/s, 256 in flight",
    "turn_cpu_us": "CPU a turn, 13 turns 8k to 32k, µs",
    "slow_p50_s": "p50 with a 2 s engine, 1,000 in flight, s",
    "slow_errors": "errors there",
    "rss_mb": "memory growth a 10,000 captures, MB",
    "lag_ms": "loop lag p99, 128k-token prompts 8 at a time, ms",
    "long_mb": "memory of a session of 50 turns and 32k tokens, MB",
}


OURS, RLLM, ACR = "this gateway", "rllm-model-gateway", "agentcore-rl-toolkit 0.2.0"
AIMS: dict[str, dict[str, Any]] = {
    "cpu_us": {"aim": 1, "times": {RLLM: 5, ACR: 3}, "headline": True},
    "rps": {"higher": True, "times": {RLLM: 8, ACR: 4}, "headline": True},
    "stream_cpu_us": {"aim": 4, "times": {RLLM: 5}, "headline": True},
    "stream_rps": {"higher": True},
    "turn_cpu_us": {"aim": 3, "headline": True},
    "slow_errors": {"aim": 0},
    "rss_mb": {"aim": 50, "headline": True},
    "lag_ms": {"aim": 50},
    "long_mb": {"aim": 2},
}
ADDED = {
    "p50_1_ms": ("p50 added at concurrency 1, ms", 1.0, 1.5),
    "slow_p50_s": ("p50 added with a 2 s engine, 1,000 in flight, ms", 1e3, 50.0),
}
"""Of what is measured against the direct connection: title, factor to its unit, aim."""
ONLY_OURS = ("lag_ms", "long_mb")
NAMES = {"rllm": RLLM, "acr": ACR, "litellm": "LiteLLM proxy (no capture)"}


class Round:
    """All measures of one subject, once."""

    def __init__(self, bench: Bench, subject: Subject, number: int) -> None:
        self.bench, self.subject, self.number = bench, subject, number
        self.found: dict[str, float] = {}

    def run(self) -> dict[str, float]:
        with self._pair(latency_us=0) as (port, pid):
            self._small(port, pid)
            self._streamed(port, pid)
            self._turns(port, pid)
        if self.subject.name == "this gateway":
            with self._pair(latency_us=0) as (port, pid):
                self._long(port, pid)
                self._large(port, pid)
        with self._pair(latency_us=2_000_000) as (port, pid):
            self._slow(port)
        return self.found

    @contextlib.contextmanager
    def _pair(self, latency_us: int) -> Iterator[tuple[int, int]]:
        """An engine and the subject in front of it."""
        bench, engine = self.bench, free_port()
        fake = [str(bench.folder / "fakevllm"), str(engine), "--tokens", str(ANSWER_TOKENS)]
        fake += ["--latency-us", str(latency_us)]
        with process(fake, engine, bench.folder / "engine.log") as engine_pid:
            if self.subject.command is None:
                yield engine, engine_pid
                return
            port = free_port()
            run = Path(tempfile.mkdtemp(dir=bench.folder))
            log = bench.folder / f"{self.subject.name.split()[0]}.log"
            with process(self.subject.command(engine, port, run), port, log) as pid:
                self._register(port, engine)
                yield port, pid
            shutil.rmtree(run, ignore_errors=True)

    def _register(self, port: int, engine: int) -> None:
        if self.subject.name.startswith("rllm"):
            body = json.dumps({"url": f"http://127.0.0.1:{engine}/v1"}).encode()
            request = urllib.request.Request(
                f"http://127.0.0.1:{port}/admin/workers",
                data=body,
                headers={"content-type": "application/json"},
            )
            urllib.request.urlopen(request, timeout=10).close()

    def _measured(self, port: int, pid: int, n: int, sid: str, **options: Any) -> dict[str, Any]:
        before = cpu_s(pid)
        result = self.bench.load(
            port, self.subject, f"{sid}{self.number}", requests=n, seconds=40, **options
        )
        spent = cpu_s(pid) - before
        done = max(result["done"], 1)
        failed = result["errors"] + result["badstream"]
        if failed > done * 0.01:
            raise RuntimeError(f"{failed} of {done} requests failed")
        return {**result, "cpu_us": spent / done * 1e6}

    def _small(self, port: int, pid: int) -> None:
        small, scale = self.bench.bodies["small"], 4 if self.bench.quick else 1
        slow = self.subject.name not in ("direct", "nginx", "this gateway")
        # every connection once, so that what a connection costs is not taken for growth
        self._measured(port, pid, 256, "w", conc=256, bodies=small, episode=8)
        # growth levels off once the answers kept for retries are as many as may be: a few requests
        # alone would be taken for five times as much, so only the slow ones are cut short
        memory, count = rss_mb(pid), 8_000 // (8 * scale) if slow else 8_000
        result = self._measured(port, pid, count, "a", conc=256, bodies=small, episode=8)
        self.found["rps"], self.found["cpu_us"] = result["rps"], result["cpu_us"]
        self.found["rss_mb"] = (rss_mb(pid) - memory) * 10_000 / count
        alone = self._measured(port, pid, 400 // scale, "b", conc=1, bodies=small, episode=8)
        if alone["n"]:
            self.found["p50_1_ms"] = alone["p50"] / 1000

    def _streamed(self, port: int, pid: int) -> None:
        slow = 8 if self.subject.name not in ("direct", "nginx", "this gateway") else 1
        count = 1_600 // (4 if self.bench.quick else 1) // slow
        body = self.bench.bodies["stream"]
        result = self._measured(
            port, pid, count, "c", conc=min(256, count), bodies=body, stream=1, episode=8
        )
        self.found["stream_rps"], self.found["stream_cpu_us"] = result["rps"], result["cpu_us"]

    def _turns(self, port: int, pid: int) -> None:
        count = 13 * (4 if self.bench.quick else 20)
        result = self._measured(port, pid, count, "d", conc=4, bodies=self.bench.bodies["turns"])
        self.found["turn_cpu_us"] = result["cpu_us"]

    def _long(self, port: int, pid: int) -> None:
        bodies, count = self.bench.bodies["long"], 4 if self.bench.quick else 16
        self._measured(port, pid, 50 * 4, "f", conc=4, bodies=bodies)
        memory = rss_mb(pid)
        self._measured(port, pid, 50 * count, "g", conc=4, bodies=bodies)
        self.found["long_mb"] = (rss_mb(pid) - memory) / count

    def _large(self, port: int, pid: int) -> None:
        self._measured(port, pid, 200, "h", conc=8, bodies=self.bench.bodies["large"])
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as reply:
            lines = reply.read().decode().splitlines()
        lag = next(line for line in lines if line.startswith("art_gateway_loop_lag_p99"))
        self.found["lag_ms"] = float(lag.split()[1]) * 1000

    def _slow(self, port: int) -> None:
        result = self.bench.load(
            port,
            self.subject,
            f"e{self.number}",
            conc=1000,
            requests=3000,
            seconds=15 if self.bench.quick else 30,
            bodies=self.bench.bodies["small"],
            ramp_us=2000,
        )
        if not result["n"]:
            raise RuntimeError("no request was answered with 1,000 in flight")
        self.found["slow_p50_s"] = result["p50"] / 1e6
        self.found["slow_errors"] = result["errors"]


# --- subjects -----------------------------------------------------------------------------------


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "agentcore-rl-toolkit" / "peers"


def peer_python(name: str, packages: list[str], check: str) -> str:
    """Interpreter of a peer's own environment, made when it is not there."""
    folder = cache_folder() / name
    python = folder / "bin" / "python"
    if not python.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        install = [str(python), "-m", "pip", "install", "-q", *packages]
        done = subprocess.run(install, capture_output=True, text=True, timeout=900, check=False)
        if done.returncode:
            shutil.rmtree(folder, ignore_errors=True)
            raise RuntimeError(f"pip: {done.stderr.strip()[-200:]}")
    done = subprocess.run([str(python), "-c", check], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
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
    python = peer_python("rllm", ["rllm-model-gateway"], "import rllm_model_gateway")

    def command(engine: int, port: int, folder: Path) -> list[str]:
        where = ["--host", "127.0.0.1", "--port", str(port), "--db-path", str(folder / "db")]
        return [python, "-m", "rllm_model_gateway", *where, "--log-level", "error"]

    return Subject("rllm-model-gateway", SESSION_PATH, command)


def _litellm() -> Subject:
    python = peer_python("litellm", ["litellm[proxy]"], "import litellm.proxy.proxy_cli")

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
    check = "import agentcore_rl_toolkit.rollout_gateway.gateway, transformers"
    python = peer_python("acr", ["agentcore-rl-toolkit[gateway]==0.2.0"], check)

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


# --- the table ----------------------------------------------------------------------------------


def table(names: list[str], results: dict[str, list[dict[str, float]]]) -> str:
    rows = [["", *names], ["---"] * (len(names) + 1)]
    for key, title in MEASURES.items():
        cells = []
        for name in names:
            values = [found[key] for found in results[name] if key in found]
            cells.append(f"{statistics.median(values):,.{_digits(key)}f}" if values else "-")
        rows.append([title, *cells])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def rows(results: dict[str, list[dict[str, float]]], absent: dict[str, str]) -> report.Report:
    """The same figures, beside their aims."""
    found = report.Report()
    others = [name for name in results if name not in (OURS, "direct")]
    why = {NAMES.get(key, key): reason.splitlines()[0][:80] for key, reason in absent.items()}

    def values(name: str, key: str, less: float, factor: float) -> Any:
        return [factor * (one[key] - less) for one in results[name] if key in one] or "no answer"

    for key, title in MEASURES.items() if OURS in results else ():
        less, factor, more = 0.0, 1e-3 if key.endswith("_us") else 1.0, AIMS.get(key, {})
        if key in ADDED:
            if "direct" not in results:
                continue
            title, factor, aim = ADDED[key]
            more = {"aim": aim, "headline": True}
            less = statistics.median(one[key] for one in results["direct"])
        name, _, unit = title.rpartition(", ")
        name, unit = (name, unit) if unit in ("µs", "ms", "MB") else (title, "")
        here = values(OURS, key, less, factor)
        peers = {one: values(one, key, less, factor) for one in others} | why
        if key in ONLY_OURS:
            peers = {}
        found.row(f"gateway, {name}", unit.replace("µs", "ms"), here, peers=peers, **more)
    return found


def _digits(key: str) -> int:
    return 2 if key.endswith(("_s", "_ms", "long_mb")) else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tools", type=Path, default=Path(__file__).with_name("tools"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help=f"comma list of {', '.join(MAKERS)}")
    parser.add_argument("--quick", action="store_true", help="a quarter of the requests")
    report.option(parser)
    options = parser.parse_args()
    wanted = {name.strip() for name in options.only.split(",") if name.strip()}
    with tempfile.TemporaryDirectory(prefix="art-bench-") as folder:
        bench = Bench(options.tools, Path(folder), options.quick)
        bench.compile()
        bench.write_bodies()
        absent: dict[str, str] = {}
        chosen = list(subjects(wanted, absent))
        results: dict[str, list[dict[str, float]]] = {subject.name: [] for subject in chosen}
        for number in range(options.rounds):
            for subject in chosen:
                one = Round(bench, subject, number)
                try:
                    one.run()
                except (RuntimeError, OSError, subprocess.SubprocessError, ValueError) as error:
                    print(f"{subject.name}: {error}", file=sys.stderr)
                results[subject.name].append(one.found)
        print(table([subject.name for subject in chosen], results))
        for key, reason in absent.items():
            print(f"not measured: {key}: {reason}")
        rows(results, absent).write(options.json)


if __name__ == "__main__":
    main()
