"""What a backend's bridge costs, and that it loses nothing: the same 64 rollouts through each.

Rollouts are those of a tool-using agent, made by the real graph: a long first prompt, turns with
tool results between them, in every fourth a sub-agent with a history of its own and a turn that
was asked again. Collecting is not measured here (see rollouts.py): the bridge begins with rows.

python benchmarks/backends.py [--turns 8] [--prompt 1500] [--sampled 120] [--json FILE]
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import report

from agentcore_rl_toolkit.backends import trl
from agentcore_rl_toolkit.backends.base import samples
from agentcore_rl_toolkit.backends.slime.sample import fill
from agentcore_rl_toolkit.backends.tinker.datum import columns as tinker_columns
from agentcore_rl_toolkit.backends.tinker.datum import datum
from agentcore_rl_toolkit.backends.verl.fields import rollout_fields
from agentcore_rl_toolkit.collect import Rollout, Timings
from agentcore_rl_toolkit.trajectory import Row, SessionGraph, assign_rewards
from agentcore_rl_toolkit.trajectory.export import to_columns, write_parquet

ROLLOUTS = 64
GROUP = 8
TOOL_TOKENS = 60
REPEATS = 5


def make(number: int, options: argparse.Namespace) -> tuple[Rollout, int]:
    """A rollout, and how many sampled tokens its agent was delivered."""
    chance = random.Random(number)
    name = f"task{number // GROUP}-{number % GROUP}"
    graph = SessionGraph(f"s-{name}", rollout_id=name, group_id=f"task{number // GROUP}")
    history = [chance.randrange(1000, 50_000) for _ in range(options.prompt)]
    delivered = 0

    def turn(prompt: Sequence[int], *, lost: bool = False, key: str | None = None) -> list[int]:
        nonlocal delivered
        ids = [chance.randrange(1000, 50_000) for _ in range(options.sampled)]
        placement = graph.place(prompt_ids=list(prompt), retry_key=key)
        logprobs = [-chance.random() for _ in ids]
        span = [("7", 0, len(ids))]
        made = graph.make_turn(
            placement, sampled=ids, logprobs=logprobs, versions=span, delivered=not lost
        )
        graph.commit(made)
        delivered += 0 if lost else len(ids)
        return ids

    for at in range(options.turns):
        if number % 4 == 3 and at == 1:
            turn(history, lost=True, key="again")
        history += turn(history, key="again" if at == 1 else None)
        history += [chance.randrange(1000, 50_000) for _ in range(TOOL_TOKENS)]
    if number % 4 == 3:
        turn([chance.randrange(1000, 50_000) for _ in range(options.prompt // 4)])
    rows = list(assign_rewards(graph.rows(), chance.random()))
    return rollout(number, name, rows), delivered


def rollout(number: int, name: str, rows: list[Row]) -> Rollout:
    return Rollout(
        task=number // GROUP,
        sample=number % GROUP,
        group_id=f"task{number // GROUP}",
        rollout_id=name,
        session_id=f"s-{name}",
        rows=tuple(rows),
        reward=rows[0].reward,
        result=None,
        failure=None,
        attempts=1,
        turns=sum(len(row.turns) for row in rows),
        timings=Timings(),
        metrics={},
    )


class Blank:
    """The part of slime's ``Sample`` that its bridge touches, where slime is not installed."""

    class Status:
        COMPLETED, TRUNCATED, ABORTED, FAILED, PENDING = range(5)

    def __init__(self) -> None:
        self.index, self.group_index, self.metadata = 0, 0, {}
        self.status = self.Status.PENDING


SDK = SimpleNamespace(
    Datum=SimpleNamespace,
    ModelInput=SimpleNamespace(from_ints=list),
    TensorData=SimpleNamespace(from_numpy=np.ndarray.tolist),
)
"""Tinker's types as far as the bridge uses them: ids and numbers as lists, as it sends them."""

Export = Callable[[Rollout], tuple[int, int, int]]
"""Gives rows, tokens, and trained tokens of what it made."""


def by_verl(one: Rollout) -> tuple[int, int, int]:
    found = rollout_fields(one, step=7)
    tokens = sum(len(f["prompt_ids"]) + len(f["response_ids"]) for f in found)
    return len(found), tokens, sum(sum(f["response_mask"]) for f in found)


def by_slime(one: Rollout) -> tuple[int, int, int]:
    found = fill(SimpleNamespace(), Blank(), one)
    tokens = sum(len(s.tokens) for s in found)
    return len(found), tokens, sum(sum(s.loss_mask) for s in found)


def by_tinker(one: Rollout) -> tuple[int, int, int]:
    found = [tinker_columns(row, np.ones(row.n_tokens, np.float32)) for row in one.rows]
    made = [datum(SDK, one) for one in found]
    assert len(made) == len(found)
    return len(found), sum(c.targets.size + 1 for c in found), sum(int(c.mask.sum()) for c in found)


def by_trl(one: Rollout) -> tuple[int, int, int]:
    found = trl.columns(samples(one))
    tokens = sum(map(len, found["prompt_ids"])) + sum(map(len, found["completion_ids"]))
    return len(found["row"]), tokens, sum(map(sum, found["env_mask"]))


def by_columns(one: Rollout) -> tuple[int, int, int]:
    found = to_columns(one.rows)
    ids, masks = found["token_ids"], found["loss_mask"]
    return len(ids), sum(map(len, ids)), sum(map(sum, masks))


def by_parquet(one: Rollout) -> tuple[int, int, int]:
    with tempfile.TemporaryDirectory() as folder:
        write_parquet(one.rows, Path(folder) / "rows.parquet")
    return len(one.rows), sum(r.n_tokens for r in one.rows), one.tokens


EXPORTS: dict[str, Export] = {
    "verl": by_verl,
    "slime": by_slime,
    "tinker": by_tinker,
    "TRL": by_trl,
    "columns": by_columns,
    "Parquet": by_parquet,
}


def measure(export: Export, rollouts: list[Rollout]) -> tuple[float, float, Any]:
    """Best CPU and wall seconds of all rollouts, and what came out."""
    cpu = wall = float("inf")
    for _ in range(REPEATS):
        at, used = time.perf_counter(), time.process_time()
        found = [export(one) for one in rollouts]
        cpu = min(cpu, time.process_time() - used)
        wall = min(wall, time.perf_counter() - at)
    return cpu, wall, np.sum(found, axis=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=1500)
    parser.add_argument("--sampled", type=int, default=120)
    report.option(parser)
    options = parser.parse_args()
    made = [make(number, options) for number in range(ROLLOUTS)]
    rollouts, delivered = [one for one, _ in made], sum(n for _, n in made)
    turns = sum(one.turns for one in rollouts)
    unique = sum(distinct(one) for one in rollouts)
    print(f"{ROLLOUTS} rollouts, {turns} trained turns, {delivered} delivered tokens")
    print(
        f"{'':9}{'CPU ms':>8}{'wall ms':>9}{'rows':>7}{'trained/delivered':>19}{'re-sent/turn':>14}"
    )
    found, least, most_rows, most_resent = report.Report(), 1.0, 0.0, 0.0
    for name, export in EXPORTS.items():
        cpu, wall, (rows, tokens, trained) = measure(export, rollouts)
        print(
            f"{name:9}{1e3 * cpu / ROLLOUTS:8.2f}{1e3 * wall / ROLLOUTS:9.2f}"
            f"{rows / ROLLOUTS:7.2f}{trained / delivered:19.3f}{(tokens - unique) / turns:14.1f}"
        )
        assert trained == delivered, name
        least = min(least, trained / delivered)
        most_rows = max(most_rows, rows / ROLLOUTS)
        most_resent = max(most_resent, (tokens - unique) / turns)
        found.row(f"CPU of the bridge to {name}, a rollout", "ms", 1e3 * cpu / ROLLOUTS)
        found.row(f"time of the bridge to {name}, a rollout", "ms", 1e3 * wall / ROLLOUTS)
    found.row("rows of a rollout, at most of any backend", "", most_rows)
    found.row("tokens sent again in a turn, at most of any backend", "", most_resent)
    name = f"trained of delivered tokens, as handed to {', '.join(EXPORTS)}"
    found.row(name, "", least, aim=1.0, higher=True, headline=True)
    found.write(options.json)


def distinct(one: Rollout) -> int:
    """Tokens of a rollout when what rows share is counted once."""
    seen: list[list[int]] = []
    total = 0
    for row in one.rows:
        ids = row.token_ids.tolist()
        total += len(ids) - max((shared(ids, other) for other in seen), default=0)
        seen.append(ids)
    return total


def shared(one: list[int], other: list[int]) -> int:
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


if __name__ == "__main__":
    main()
