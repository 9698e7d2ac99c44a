"""Real clients against the gateway: how many rows a rollout becomes, and that no token is lost.

    python benchmarks/clients.py [--quick] [--json FILE]

Each client has its conversation with a scripted model, reasoning and tool calls in the answers.
``ids``: the gateway renders and the engine takes token ids; ``chat``: captured from an engine's
own chat endpoint, whose template writes the reasoning that a client sends back, or does not.
Delivered is what the engine sampled for answers that the client got; trained is what of it stands
in a row, a turn's ids whole and once, with mask 1. Coding CLIs are used where
``tests/e2e/client_tool.py`` has installed them. The peer's traces are joined wherever one's prompt
begins with the ids before it, which is the best that a trainer can make of them. ``--quick`` has
``chat`` only for the client that the peer is shown with.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import importlib.metadata
import json
import logging
import subprocess
import tempfile
import urllib.request
import warnings
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import report
from subjects import MAKERS, RLLM, free_port, process
from tools import parts, talks
from tools.parts import FakeScript, Say, Stand
from tools.scripted_tokens import ScriptedTokens

from agentcore_rl_toolkit.gateway import Gateway, GatewaySettings, ModelSpec
from agentcore_rl_toolkit.gateway.session import OpenSession
from agentcore_rl_toolkit.trajectory import Row

KINDS = ("ids", "chat")
CARELESS = "openai chat, drops reasoning, rewrites arguments"

Talk = Callable[[Stand, Any, Path], Awaitable[str]]
"""Has its conversation at an opened session; gives the text of the last answer."""


@dataclass(frozen=True)
class Client:
    name: str
    talk: Talk
    script: Sequence[Say] = talks.SCRIPT
    needs: tuple[str, ...] = ()
    """Distributions that may not be there."""
    tool: tuple[str, str] | None = None
    """Command and npm package that may not be installed."""

    def missing(self) -> str:
        for name in self.needs:
            try:
                importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                return f"{name} is not installed"
        if self.tool and not parts.npm_folder(self.tool[1]).is_dir():
            return "not installed: python tests/e2e/client_tool.py does it"
        return ""


@dataclass
class Found:
    client: str
    kind: str
    turns: int = 0
    rows: int = 0
    forks: dict[str, int] = field(default_factory=dict)
    delivered: int = 0
    trained: int = 0
    skipped: str = ""

    @property
    def share(self) -> float:
        return self.trained / self.delivered

    def line(self) -> str:
        if self.skipped:
            return f"| {self.client} | {self.kind} | skipped: {self.skipped} | | | | | |"
        forks = ", ".join(f"{n} {kind}" for kind, n in self.forks.items()) or "-"
        cells = [self.client, self.kind, self.turns, self.rows, forks, self.delivered]
        return f"| {' | '.join(map(str, [*cells, self.trained]))} | {self.share:.3f} |"


# --- coding CLIs --------------------------------------------------------------------------------


async def claude_code(at: Stand, opened: Any, folder: Path) -> str:
    repo = folder / "repo"
    repo.mkdir()
    (repo / "calc.py").write_text("def add(a, b):\n    return a - b\n")
    tool = await asyncio.to_thread(parts.npm_tool, *parts.CLAUDE_CODE)
    said = await parts.run_claude(tool, "Fix add in calc.py", repo, opened)
    return str(said["result"])


async def codex(at: Stand, opened: Any, folder: Path) -> str:
    tool = await asyncio.to_thread(parts.npm_tool, *parts.CODEX)
    items = await parts.run_codex(tool, at, folder, "policy")
    return str(items[-1]["text"])


CLAUDE_SCRIPT = (
    Say("I look first.", [("Read", {"file_path": "calc.py"})], reasoning="what is in it?"),
    Say(
        "Now I mend it.",
        [("Bash", {"command": "sed -i s/-/+/ calc.py"}), ("Bash", {"command": "cat calc.py"})],
        reasoning="a sign",
    ),
    Say("add(2, 3) is 5 now.", reasoning="done"),
)
CODEX_SCRIPT = (
    Say(reasoning="look first", calls=[parts.shell("cat calc.py"), parts.shell("ls")]),
    Say(
        "I mend it.", [parts.shell(f"apply_patch <<'EOF'\n{parts.PATCH}EOF")], reasoning="the sign"
    ),
    Say("Mended.", reasoning="done"),
)


def _sdk(talk: Any, **options: Any) -> Any:
    async def alone(at: Stand, opened: Any, folder: Path) -> str:
        return str(await talk(opened, **options))

    return alone


CLIENTS = (
    Client("openai chat", _sdk(talks.chat)),
    Client("openai chat, streamed", _sdk(talks.chat, stream=True)),
    Client(CARELESS, _sdk(talks.chat, careless=True)),
    Client(f"{CARELESS}, streamed", _sdk(talks.chat, careless=True, stream=True)),
    Client("anthropic messages, streamed", _sdk(talks.messages)),
    Client("anthropic messages, streamed, drops thinking", _sdk(talks.messages, careless=True)),
    Client("openai responses", _sdk(talks.responses)),
    Client("openai responses, streamed", _sdk(talks.responses, stream=True)),
    Client("openai responses, previous_response_id", _sdk(talks.responses, previous=True)),
    Client(
        "openai responses, drops reasoning, rewrites arguments",
        _sdk(talks.responses, careless=True),
    ),
    Client("Strands", _sdk(talks.strands), needs=("strands-agents",)),
    Client("LangGraph", _sdk(talks.langgraph), needs=("langgraph", "langchain-openai")),
    Client("OpenAI Agents SDK", _sdk(talks.agents_sdk), needs=("openai-agents",)),
    Client("Claude Code", claude_code, CLAUDE_SCRIPT, tool=parts.CLAUDE_CODE),
    Client("Codex", codex, CODEX_SCRIPT, tool=parts.CODEX),
)


# --- one client ---------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def engine_of(kind: str, script: Sequence[Say]) -> AsyncIterator[tuple[Any, ModelSpec]]:
    if kind == "ids":
        async with ScriptedTokens(lambda n: script[n]) as tokens:
            urls = (f"vllm-generate:{tokens.url}",)
            yield tokens, ModelSpec("*", urls, tokenizer=tokens.renderer)
    else:
        async with FakeScript(lambda body, n: script[told(body)]) as chat:
            yield chat, ModelSpec.parse(f"*=vllm:{chat.url}#tiny")


def told(body: dict[str, Any]) -> int:
    return sum(message["role"] == "assistant" for message in body["messages"])


async def measure(client: Client, kind: str) -> Found:
    found = Found(client.name, kind, skipped=client.missing())
    if found.skipped:
        return found
    with tempfile.TemporaryDirectory(prefix="art-bench-") as folder:
        settings = GatewaySettings(run_dir=Path(folder) / "run", fsync=False)
        async with (
            engine_of(kind, client.script) as (engine, model),
            Gateway([model], settings) as gateway,
        ):
            opened = await gateway.open_session(OpenSession())
            try:
                said = await client.talk(Stand(gateway, engine, opened), opened, Path(folder))
            except parts.Missing as reason:
                found.skipped = str(reason)
                return found
            finished = await gateway.finish_session(opened.session_id)
    if said != client.script[-1].text:
        raise RuntimeError(f"{client.name}: the conversation ended with {said!r}")
    sampled = Counter(tuple(map(_id, one)) for one in engine.said)
    trained = Counter(ids for row in finished.rows for ids in trained_ids(row))
    if trained - sampled:
        raise RuntimeError(f"{client.name}: trained twice, or never sampled: {trained - sampled}")
    found.turns, found.rows = finished.count.turns, len(finished.rows)
    found.forks = dict(finished.count.forks)
    found.delivered = sum(map(len, sampled.elements()))
    found.trained = sum(map(len, (sampled & trained).elements()))
    return found


def _id(token: int | str) -> int:
    return ord(token) if isinstance(token, str) else token


def trained_ids(row: Row) -> Iterator[tuple[int, ...]]:
    """Turn by turn."""
    mask = row.loss_mask > 0
    for turn in np.unique(row.turn_index[mask]):
        yield tuple(row.token_ids[mask & (row.turn_index == turn)].tolist())


# --- the peer -----------------------------------------------------------------------------------


async def measure_peer() -> Found:
    """rllm's gateway before the same engine and the careless client."""
    found = Found(CARELESS, RLLM)
    try:
        subject = await asyncio.to_thread(MAKERS["rllm"])
        async with FakeScript(lambda body, n: talks.SCRIPT[told(body)]) as engine:
            traces = await _peer_traces(subject.command, engine.url)
    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
        found.skipped = str(error).splitlines()[0][:80]
        return found
    rows: list[list[int]] = []
    for trace in traces:
        prompt, said = trace["prompt_token_ids"], trace["completion_token_ids"]
        if rows and prompt[: len(rows[-1])] == rows[-1]:
            rows.pop()
        rows.append([*prompt, *said])
        found.trained += len(said)
    found.turns, found.rows = len(traces), len(rows)
    found.delivered = sum(map(len, engine.said))
    return found


async def _peer_traces(command: Any, engine_url: str) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="art-bench-") as folder:
        port = free_port()
        url, log = f"http://127.0.0.1:{port}", Path(folder) / "log"
        run = process(command(0, port, Path(folder)), port, log)
        ask = functools.partial(asyncio.to_thread, _fetch)
        await asyncio.to_thread(run.__enter__)
        try:
            await ask(f"{url}/admin/workers", {"url": f"{engine_url}/v1"})
            opened = SimpleNamespace(base_url=f"{url}/sessions/one/v1")
            await talks.chat(opened, careless=True)
            await ask(f"{url}/admin/flush", {})
            return list(await ask(f"{url}/sessions/one/traces"))
        finally:
            await asyncio.to_thread(run.__exit__, None, None, None)


def _fetch(url: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=20) as reply:
        return json.load(reply)


# --- the table ----------------------------------------------------------------------------------


def rows(ours: list[Found], peer: Found) -> report.Report:
    found = report.Report()
    measured = [one for one in ours if not one.skipped]
    exact = [one for one in measured if one.kind == "ids"]
    names = {one.client for one in measured}
    found.row(
        f"trained of delivered tokens, least of {len(names)} real clients",
        "",
        min(one.share for one in measured),
        aim=1.0,
        higher=True,
        headline=True,
    )
    relayed = next(one for one in measured if (one.client, one.kind) == (CARELESS, "chat"))
    found.row(
        f"rows of a rollout of {relayed.turns} turns, client that drops reasoning",
        "",
        max(one.rows for one in exact if "drops" in one.client),
        # both leave rendering to the engine
        peers={"this without a tokenizer": relayed.rows, RLLM: peer.skipped or peer.rows},
        aim=1,
        headline=True,
    )
    for one in ours:
        name = f"rows a rollout, {one.client} ({one.kind})"
        found.row(name, "", one.skipped or one.rows, aim=1 if one.kind == "ids" else None)
    return found


async def run(quick: bool) -> tuple[list[Found], Found]:
    """All at once: nothing is timed, and most of it waits for clients to start."""
    both = [(client, kind) for client in CLIENTS for kind in KINDS]
    wanted = [(c, kind) for c, kind in both if not quick or kind == "ids" or c.name == CARELESS]
    ours = [measure(client, kind) for client, kind in wanted]
    *found, peer = await asyncio.gather(*ours, measure_peer())
    return found, peer


def table(found: list[Found]) -> Iterator[str]:
    yield "| client | engine | turns | rows | forks | delivered | trained | trained/delivered |"
    yield "| --- | --- | ---: | ---: | --- | ---: | ---: | ---: |"
    for one in found:
        yield one.line()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="chat engines with one client only")
    report.option(parser)
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message="create_react_agent has been moved")
    logging.getLogger("strands").setLevel(logging.ERROR)  # it says that it drops reasoning
    ours, peer = asyncio.run(run(options.quick))
    print("\n".join(table([*ours, peer])))
    rows(ours, peer).write(options.json)


if __name__ == "__main__":
    main()
