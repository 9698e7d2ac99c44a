"""The real ``art train`` on the embedded engine: killed with -9 between its steps, and resumed.

Runs beside the storm, in a run folder of its own. Afterwards the folder must tell one story: every
step once in the line that leads to the last checkpoint, every step's rollouts complete, no session
trained by two of them, and nothing of a killed run left running.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from agentcore_rl_toolkit.run.reader import RunReader

from .part import Part, PartError
from .stack import ART, MARK, ROOT

STEPS, TASKS, GROUP = 4, 2, 2
AGENT = ROOT / "tests" / "trainer" / "lucky_agent"
MODEL = ROOT / "examples" / "demo_policy" / "model"
END_S = 420.0


class Training:
    def __init__(self, work: Path, env: Mapping[str, str], seed: int, kills: int = 2) -> None:
        self.work, self._kills = work / "train", kills
        self._random = random.Random(f"{seed}/train")
        self._env = {**env, "ART_HOME": str(self.work / "home")}
        self.kills = 0

    def write_config(self) -> Path:
        self.work.mkdir()
        (self.work / "home").mkdir(mode=0o700)
        rows = "".join(json.dumps({"prompt": f"Say {i}."}) + "\n" for i in range(4))
        (self.work / "data.jsonl").write_text(rows)
        value = {
            "agent": {"path": str(AGENT), "env": {MARK: self._env[MARK]}},
            "data": {"train": "data.jsonl"},
            "model": {"path": str(MODEL), "threads": 1},
            "rollout": {
                "group_size": GROUP,
                "tasks_per_step": TASKS,
                "sampling": {"max_tokens": 4},
            },
            "train": {"steps": STEPS, "lr": 1.0e-4, "save_every": 1, "eval_every": 0},
            "run_dir": str(self.work / "runs"),
        }
        path = self.work / "train.yaml"
        path.write_text(json.dumps(value))  # which is YAML, too
        return path

    async def run(self) -> None:
        """PartError when it does not end well."""
        config = self.write_config()
        part = self._part([str(config)])
        await part.start()
        for _ in range(self._kills):
            before = len(self.steps())
            if not await self._more_steps(part, before + 1):
                break
            await asyncio.sleep(self._random.uniform(0.0, 1.5))
            if not part.up:
                break
            await part.kill()
            self.kills += 1
            part = self._part([str(config), "--resume", str(self.folder())])
            await part.start()
        await self._end(part)

    def _part(self, arguments: list[str]) -> Part:
        log = self.work / "train.log"
        return Part("art train", [*ART, "train", *arguments], self._env, log)

    def folder(self) -> Path:
        return next((self.work / "runs").iterdir())

    def steps(self) -> list[int]:
        try:
            folder = self.folder()
        except (StopIteration, FileNotFoundError):
            return []
        return [int(m["step"]) for m in RunReader(folder).metrics() if m["kind"] == "step"]

    async def _more_steps(self, part: Part, count: int) -> bool:
        deadline = time.monotonic() + END_S
        while len(self.steps()) < count and part.up:
            if time.monotonic() > deadline:
                await part.kill()
                raise PartError(f"art train made no step in {END_S:.0f} s: {part.said()}")
            await asyncio.sleep(0.2)
        return part.up

    async def _end(self, part: Part) -> None:
        assert part.process is not None, "it was started"
        try:
            async with asyncio.timeout(END_S):
                code = await part.process.wait()
        except TimeoutError:
            await part.kill()
            raise PartError(f"art train did not end in {END_S:.0f} s: {part.said()}") from None
        except asyncio.CancelledError:
            await part.kill()
            raise
        if code != 0:
            raise PartError(f"art train ended with {code}: {part.said()}")

    def check(self) -> list[str]:
        reader = RunReader(self.folder())
        rollouts = [line for line in reader.rollouts() if line["phase"] == "train"]
        wrong = one_story(self.steps(), STEPS)
        wrong += complete(rollouts, STEPS, TASKS * GROUP)
        wrong += [f"art train: {p.path.name}: {p.message}" for p in reader.problems]
        return wrong


def one_story(steps: Iterable[int], last: int) -> list[str]:
    """A resumed run may do its last step again, when it died before it was saved; no other."""
    wrong: list[str] = []
    done = 0
    for step in steps:
        if step not in (done, done + 1):
            wrong.append(f"art train: step {step} came after step {done}")
        done = step
    if done != last:
        wrong.append(f"art train: it ended after step {done} of {last}")
    return wrong


def complete(rollouts: Iterable[Mapping[str, Any]], steps: int, size: int) -> list[str]:
    wrong: list[str] = []
    sessions: dict[str, Any] = {}
    latest: dict[tuple[int, str], Mapping[str, Any]] = {}
    for line in rollouts:
        if line["session_id"] in sessions:
            wrong.append(f"art train: session {line['session_id']} is in two rollouts")
        sessions[line["session_id"]] = line
        latest[int(line["step"]), str(line["rollout_id"])] = line
    for step in range(steps):
        found = sum(key[0] == step for key in latest)
        if found != size:
            wrong.append(f"art train: step {step} has {found} rollouts of {size}")
    return wrong
