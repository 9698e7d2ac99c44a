"""Plays the math agent's conversation directly on an engine: no gateway, no session, no Strands.

For warm starts and for checks of engine and trainer alone; the ids are the ones that the whole
system produces, the agent's loop is not. A rollout becomes one row.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from conversation import agent_request, opening, tool_result
from problems import Problem

from agentcore_rl_toolkit import FinalAnswer
from agentcore_rl_toolkit.engine import Completion, Engine, Sampling
from agentcore_rl_toolkit.trajectory.row import Row, TurnSpan

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "strands_math_agent"))
from calculator import calculator

MAX_TURNS = 4
MAX_TOKENS = 48
"""In one turn; a call with its expression has about fifteen."""


async def play(
    engine: Engine,
    renderer: Any,
    problem: Problem,
    rollout_id: str,
    group_id: str,
    sampling: Sampling,
) -> Row:
    tools = agent_request()["tools"]
    ids: list[int] = renderer.render_ids(
        opening(problem.prompt), tools=tools, add_generation_prompt=True
    )
    turns: list[tuple[int, Completion]] = []
    said = ""
    for _ in range(MAX_TURNS):
        done = await engine.generate(ids, sampling)
        turns.append((len(ids), done))
        parsed = renderer.parse_response(done.token_ids, tools=tools)
        said = parsed.content
        calls = [c for c in parsed.tool_calls if c.name == "calculator"]
        if not calls or done.finish_reason != "stop":
            ids = ids + done.token_ids
            break
        results = [tool_result(_compute(call.arguments)) for call in calls]
        bridged = renderer.bridge_to_next_turn(ids, done.token_ids, results, tools=tools)
        ids = bridged.token_ids
    end = turns[-1][0] + len(turns[-1][1].token_ids)
    reward = FinalAnswer()(response=said, answer=str(problem.answer))
    return _row(ids[:end], turns, reward, rollout_id, group_id)


def _compute(arguments: Any) -> str:
    expression = arguments.get("expression") if isinstance(arguments, dict) else None
    return calculator(expression) if isinstance(expression, str) else "error: no expression"


def _row(
    ids: list[int],
    turns: Sequence[tuple[int, Completion]],
    reward: float,
    rollout_id: str,
    group_id: str,
) -> Row:
    mask = np.zeros(len(ids), np.uint8)
    logprobs = np.zeros(len(ids), np.float32)
    index = np.full(len(ids), -1, np.int32)
    spans, versions = [], []
    for i, (start, done) in enumerate(turns):
        end = start + len(done.token_ids)
        mask[start:end], logprobs[start:end], index[start:end] = 1, done.logprobs, i
        spans.append(TurnSpan(i, f"{rollout_id}/{i}", start, end, done.finish_reason))
        versions += [(version, start + a, start + b) for version, a, b in done.versions]
    return Row(
        token_ids=np.array(ids, np.int32),
        loss_mask=mask,
        logprobs=logprobs,
        turn_index=index,
        turns=spans,
        rollout_id=rollout_id,
        session_id=rollout_id,
        group_id=group_id,
        reward=reward,
        weight_versions=versions,
    ).check()


async def play_groups(
    engine: Engine, renderer: Any, problems: Sequence[Problem], size: int, name: str, **options: Any
) -> list[Row]:
    """``size`` rollouts of each problem, as groups."""
    sampling = Sampling(max_tokens=MAX_TOKENS, **options)
    return await asyncio.gather(
        *(
            play(engine, renderer, problem, f"{name}-{g}-{k}", f"{name}-{g}", sampling)
            for g, problem in enumerate(problems)
            for k in range(size)
        )
    )


def success(rows: Sequence[Row]) -> float:
    return sum(row.reward or 0.0 for row in rows) / len(rows)
