"""What a captured turn costs in each API: chat, messages, responses.

    python benchmarks/dialects.py [--rounds 3] [--quick] [--json FILE]

CPU of the gateway's process alone, in microseconds. The first rows are the stand-in for vLLM and
the load of ``gateway.py``: answers of 256 tokens, in 256 events when streaming. The others are
whole conversations against ``tools/honest_engine.py``, whose ids are true, so that every turn
continues the one before it: a turn after 1 to 128 earlier ones (on a first prompt of 24k tokens),
and a turn on a prompt of 1k to 128k tokens (after 4 to 12 earlier ones, all lengths in step).
Rounds are interleaved; the table shows medians.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import report
from subjects import SERVE_OURS, Subject, free_port, process
from tools.honest_engine import ANSWER

from gateway import ANSWER_TOKENS, Bench

DIALECTS = ("chat", "messages", "responses")
PATHS = {"chat": "chat/completions", "messages": "messages", "responses": "responses"}
TURNS = (1, 2, 4, 8, 16, 32, 64, 128)
TOKENS = (1, 4, 16, 64, 128)
FIRST_PROMPT = 24_000
SYSTEM = "You are a careful agent."


def body_of(dialect: str, asked: list[str], *, stream: bool = False) -> dict[str, Any]:
    """A conversation whose last question is open; every answer is the stand-in's."""
    talk: list[dict[str, Any]] = []
    for at, question in enumerate(asked):
        if at:
            talk.append(_answer(dialect))
        talk.append({"role": "user", "content": question})
    body: dict[str, Any] = {"model": "policy", "stream": stream}
    if dialect == "chat":
        return {**body, "messages": [{"role": "system", "content": SYSTEM}, *talk]}
    if dialect == "messages":
        return {**body, "system": SYSTEM, "max_tokens": 256, "messages": talk}
    return {**body, "instructions": SYSTEM, "input": talk, "store": False}


def _answer(dialect: str) -> dict[str, Any]:
    if dialect == "chat":
        return {"role": "assistant", "content": ANSWER}
    if dialect == "messages":
        return {"role": "assistant", "content": [{"type": "text", "text": ANSWER}]}
    part = {"type": "output_text", "text": ANSWER, "annotations": []}
    return {"type": "message", "role": "assistant", "content": [part]}


def cpu_us(pid: int) -> float:
    """All threads of a process, far finer than its clock ticks."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        total += int((task / "schedstat").read_text().split()[0])
    return total / 1000


class Round:
    def __init__(self, bench: Bench, number: int) -> None:
        self.bench, self.number = bench, number
        self.sessions = 2 if bench.quick else 12
        self.found: dict[str, dict[str, float]] = {dialect: {} for dialect in DIALECTS}

    def run(self) -> None:
        folder = self.bench.folder
        fake, engine = str(folder / "fakevllm"), free_port()
        command = [fake, str(engine), "--tokens", str(ANSWER_TOKENS), "--latency-us", "0"]
        with process(command, engine, folder / "engine.log"), self._gateway(engine) as (port, pid):
            for dialect in DIALECTS:
                self._small(dialect, port, pid)
        honest, engine = Path(__file__).parent / "tools" / "honest_engine.py", free_port()
        command = [sys.executable, str(honest), str(engine)]
        with process(command, engine, folder / "engine.log"), self._gateway(engine) as (port, pid):
            for dialect in DIALECTS:
                self._turns(dialect, port, pid)
                self._tokens(dialect, port, pid)

    def _gateway(self, engine: int) -> Any:
        return served(self.bench, engine)

    def _small(self, dialect: str, port: int, pid: int) -> None:
        for stream in (False, True):
            body = body_of(dialect, ["word " * 120], stream=stream)
            path = self.bench.folder / f"{dialect}-{stream}.json"
            path.write_text(json.dumps(body, separators=(",", ":")))
            subject = Subject(dialect, f"/sessions/%s/v1/{PATHS[dialect]}", None)
            count = (400 if stream else 2000) // (4 if self.bench.quick else 1)
            options = {"conc": 32, "bodies": path, "episode": 8, "seconds": 60}
            name = f"{dialect}{stream}{self.number}"
            self.bench.load(port, subject, f"w{name}", requests=64, **options)
            before = cpu_us(pid)
            result = self.bench.load(port, subject, name, requests=count, **options)
            if result["errors"]:
                raise RuntimeError(f"{dialect}: {result['errors']} of {count} requests failed")
            key = "a streamed request" if stream else "a request"
            self.found[dialect][key] = (cpu_us(pid) - before) / result["done"]

    def _turns(self, dialect: str, port: int, pid: int) -> None:
        talk = self._talk(dialect, port, pid, "t", FIRST_PROMPT, TURNS[-1] + 2)
        costs = list(talk)
        # the beginning once more beside the end: the machine's speed changes meanwhile
        again = list(self._talk(dialect, port, pid, "u", FIRST_PROMPT, 4))
        for earlier in TURNS:
            # three neighbours: one turn of a few sessions alone is too short to time
            near = costs[max(1, earlier - 1) : earlier + 2]
            near += again[1:4] if earlier == TURNS[0] else []
            self.found[dialect][f"a turn after {earlier}"] = statistics.median(near)

    def _tokens(self, dialect: str, port: int, pid: int) -> None:
        """All lengths in step, so that they meet the same machine."""
        talks = [self._talk(dialect, port, pid, f"p{n}", n * 1000, 13) for n in TOKENS]
        costs = list(zip(*talks, strict=True))[4:]
        for at, thousands in enumerate(TOKENS):
            cost = statistics.median(turn[at] for turn in costs)
            self.found[dialect][f"a turn on {thousands}k tokens"] = cost

    def _talk(
        self, dialect: str, port: int, pid: int, name: str, first: int, n_turns: int
    ) -> Iterator[float]:
        """CPU of every turn of a conversation, a mean over sessions that go in step."""
        asked = ["q" * first]
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        for turn in range(n_turns):
            data = json.dumps(body_of(dialect, asked), separators=(",", ":"))
            before = cpu_us(pid)
            for session in range(self.sessions):
                sid = f"{name}-{dialect}-{self.number}-{session}"
                path = f"/sessions/{sid}/v1/{PATHS[dialect]}"
                connection.request("POST", path, data, {"content-type": "application/json"})
                reply = connection.getresponse()
                said = reply.read()
                if reply.status != 200:
                    raise RuntimeError(f"{dialect} turn {turn}: {said[:300]!r}")
            yield (cpu_us(pid) - before) / self.sessions
            asked.append(f"and number {turn}, what of it? " + "x" * 32)
        connection.close()
        self._check(port, f"{name}-{dialect}-{self.number}-0", n_turns)

    def _check(self, port: int, sid: str, n_turns: int) -> None:
        """That the turns really continued each other."""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("POST", f"/sessions/{sid}/finish", "{}")
        count = json.loads(connection.getresponse().read())["count"]
        connection.close()
        if count["trained_turns"] != n_turns or count["forks"]:
            raise RuntimeError(f"{sid} did not stay in one conversation: {count}")


def served(bench: Bench, engine: int) -> Any:
    port, folder = free_port(), Path(tempfile.mkdtemp(dir=bench.folder))
    command = [sys.executable, "-c", SERVE_OURS, str(engine), str(port), str(folder)]
    return _Served(command, port, bench.folder / "gateway.log")


class _Served:
    """``process`` that also says its port."""

    def __init__(self, command: list[str], port: int, log: Path) -> None:
        self._process, self._port = process(command, port, log), port

    def __enter__(self) -> tuple[int, int]:
        return self._port, self._process.__enter__()

    def __exit__(self, *error: Any) -> Any:
        return self._process.__exit__(*error)


def table(rounds: list[dict[str, dict[str, float]]]) -> Iterator[str]:
    yield "| CPU of, µs | " + " | ".join(DIALECTS) + " |"
    yield "| --- |" + " ---: |" * len(DIALECTS)
    for key in rounds[0][DIALECTS[0]]:
        cells = [statistics.median(one[d][key] for one in rounds) for d in DIALECTS]
        yield f"| {key} | " + " | ".join(f"{cell:,.0f}" for cell in cells) + " |"


def rows(rounds: list[dict[str, dict[str, float]]]) -> report.Report:
    found = report.Report()
    growths = (
        ("earlier turns", TURNS, "a turn after {}"),
        ("thousand tokens of prompt", TOKENS, "a turn on {}k tokens"),
    )
    for key in ("a request", "a streamed request"):
        for dialect in DIALECTS:
            found.row(f"CPU of {key}, {dialect}", "µs", [one[dialect][key] for one in rounds])
    for what, sizes, key in growths:
        cost = {d: {n: [one[d][key.format(n)] for one in rounds] for n in sizes} for d in DIALECTS}
        found.curve(f"CPU of a turn by {what}", what, "µs of CPU", cost)
        for dialect in DIALECTS:
            first, last = cost[dialect][sizes[0]], cost[dialect][sizes[-1]]
            grown = [b / a for a, b in zip(first, last, strict=True)]
            name = f"CPU of a turn, {sizes[-1]} beside {sizes[0]} {what}, {dialect}"
            found.row(name, "times", grown, aim=2, headline=dialect == "chat")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="fewer requests and sessions")
    report.option(parser)
    options = parser.parse_args()
    rounds = []
    with tempfile.TemporaryDirectory(prefix="art-bench-") as folder:
        bench = Bench(Path(__file__).with_name("tools"), Path(folder), options.quick)
        bench.compile()
        for number in range(options.rounds):
            one = Round(bench, number)
            one.run()
            rounds.append(one.found)
        print("\n".join(table(rounds)))
        rows(rounds).write(options.json)


if __name__ == "__main__":
    main()
