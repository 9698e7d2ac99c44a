"""The whole stack on this machine, each part in a process of its own, a relay between any two.

    driver ──client──► runtime ──fork──► sessions ──agent──► gateway ──engine──► engine
       └────────────────admin────────────────────────────────►┘

Owns one work folder, in which everything lies: the runtime's home, the gateway's run folder, the
ledger, logs, the jumping clock and the parts' own temporary folder. Every process carries the
folder's name in its environment, so that what is left behind can be found.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import struct
import sys
from pathlib import Path
from typing import Any

import aiohttp

from agentcore_rl_toolkit.cli.deploy import control_client, register
from agentcore_rl_toolkit.errors import ConfigError

from .part import Part, PartError, children, free_port
from .proxy import Link

ROOT = Path(__file__).resolve().parents[1]
AGENT = Path(__file__).parent / "agent"
CLOCK = Path(__file__).parent / "clock"
MARK = "FAULTS_MARK"
ART = [sys.executable, "-m", "agentcore_rl_toolkit.cli.main"]
WORKERS = 2
DEPLOYS = 3


class Stack:
    def __init__(
        self,
        work: Path,
        seed: int,
        *,
        concurrent: int,
        delay_s: float,
        spread: float = 1.0,
        turns: int | None = None,
    ) -> None:
        """``delay_s``: what an answer of the engine takes, give or take the share ``spread``."""
        self.work, self.seed, self.concurrent = work, seed, concurrent
        self.home, self.run_dir, self.tmp = work / "home", work / "run", work / "tmp"
        self.ledger, self.clock = work / "ledger.jsonl", work / "clock"
        self.token = secrets.token_urlsafe(16)
        self.arn = ""
        self.ports = {name: free_port() for name in ("runtime", "gateway", "engine")}
        self.links = {
            name: Link(name, self.ports[target], seed)
            for name, target in (
                ("client", "runtime"),
                ("agent", "gateway"),
                ("admin", "gateway"),
                ("engine", "engine"),
            )
        }
        self._delay_s, self._spread, self._turns = delay_s, spread, turns
        self.parts: dict[str, Part] = {}
        self._http: aiohttp.ClientSession | None = None

    @property
    def http(self) -> aiohttp.ClientSession:
        assert self._http is not None, "made by start"
        return self._http

    def env(self) -> dict[str, str]:
        path = os.pathsep.join([str(CLOCK), str(ROOT)])
        return {
            **os.environ,
            MARK: str(self.work),
            "FAULTS_CLOCK": str(self.clock),
            "ART_HOME": str(self.home),
            "TMPDIR": str(self.tmp),
            "PYTHONPATH": path,
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    async def start(self) -> None:
        for folder in (self.home, self.run_dir, self.tmp):
            folder.mkdir(mode=0o700, parents=True)
        self.jump(0.0)
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10))
        for link in self.links.values():
            await link.start()
        self._make_parts()
        await asyncio.gather(*(self.parts[n].start() for n in ("engine", "runtime", "gateway")))
        self.arn = await asyncio.to_thread(self._deploy)
        self.parts["driver"] = self._part("driver", self._driver())
        await self.parts["driver"].start()

    def _make_parts(self) -> None:
        ports = {name: str(port) for name, port in self.ports.items()}
        engine = [sys.executable, "-m", "faults.engine", ports["engine"], "--seed", str(self.seed)]
        runtime = [*ART, "runtime", "serve", "--port", ports["runtime"], "--home", str(self.home)]
        gateway = [*ART, "gateway", "serve", "--port", ports["gateway"]]
        gateway += ["--model", f"policy=vllm:{self.links['engine'].url}#tiny"]
        gateway += ["--run-dir", str(self.run_dir), "--admin-token", self.token]
        gateway += ["--workers", str(WORKERS), "--public-url", self.links["agent"].url]
        delay = ["--delay", str(self._delay_s), "--spread", str(self._spread)]
        self.parts["engine"] = self._part("engine", engine + delay, "/health")
        self.parts["runtime"] = self._part("runtime", runtime, "/_art/")
        self.parts["gateway"] = self._part("gateway", gateway, "/health")

    def _part(self, name: str, command: list[str], health: str | None = None) -> Part:
        async def ready() -> bool:
            try:
                async with self.http.get(f"http://127.0.0.1:{self.ports[name]}{health}") as reply:
                    return reply.status == 200
            except (aiohttp.ClientError, TimeoutError):
                return False

        log = self.work / f"{name}.log"
        return Part(name, command, self.env(), log, ready if health else None)

    def _driver(self) -> list[str]:
        return [
            *(sys.executable, "-m", "faults.driver", "--ledger", str(self.ledger)),
            *("--runtime", self.links["client"].url, "--gateway", self.links["admin"].url),
            *("--token", self.token, "--arn", self.arn, "--seed", str(self.seed)),
            *("--concurrent", str(self.concurrent)),
            *self._long(),
        ]

    def _long(self) -> list[str]:
        """Rollouts of a fixed number of turns take as long as the engine does, and may."""
        if self._turns is None:
            return []
        patience_s = max(90.0, 4 * self._turns * self._delay_s)
        return ["--turns", str(self._turns), "--timeout", str(patience_s)]

    def _deploy(self) -> str:
        control = control_client(f"http://127.0.0.1:{self.ports['runtime']}")
        variables = {MARK: str(self.work)}
        try:
            for left in reversed(range(DEPLOYS)):
                try:
                    made = register(control, "chaos", AGENT, "rl_app.py", variables)
                    return str(made["agentRuntimeArn"])
                except ConfigError:  # a machine so busy that imports take half a minute
                    if not left:
                        raise
        finally:
            control.close()
        raise AssertionError("the last try returns or raises")

    async def stop(self) -> list[str]:
        """Everything, in the order of a user's Ctrl-C; says what had to be killed."""
        problems: list[str] = []
        for name in ("driver", "gateway", "runtime", "engine"):
            part = self.parts.get(name)
            try:
                if part is not None:
                    await part.stop()
            except PartError as error:
                problems.append(str(error))
        for link in self.links.values():
            await link.stop()
        if self._http is not None:
            await self._http.close()
        return problems

    async def kill(self) -> None:
        for part in self.parts.values():
            await part.kill()
        for link in self.links.values():
            await link.stop()
        if self._http is not None:
            await self._http.close()

    # --- what events act on ---------------------------------------------------------------------

    def jump(self, seconds: float) -> None:
        """Sets the wall clock of every part so far off the true one."""
        with self.clock.open("r+b" if self.clock.exists() else "w+b") as file:
            file.write(struct.pack("<d", seconds))

    async def sessions(self) -> list[dict[str, Any]]:
        url = f"http://127.0.0.1:{self.ports['runtime']}/_art/sessions"
        try:
            async with self.http.get(url) as reply:
                return list((await reply.json())["sessions"])
        except (aiohttp.ClientError, TimeoutError):
            return []

    def workers(self) -> list[int]:
        gateway = self.parts["gateway"]
        return children(gateway.pid) if gateway.up else []

    def journals(self) -> list[Path]:
        return sorted((self.run_dir / "turns").glob("*.journal"))
