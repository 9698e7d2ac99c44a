"""Rows sampled by a small random model, and the model that sampled them."""

from __future__ import annotations

import asyncio
import copy
import os
import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

# some CPUs announce instructions that they then refuse
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

from agentcore_rl_toolkit.trajectory.row import Row, TurnSpan

VOCABULARY = 61


def make_model(seed: int = 0) -> Any:
    import torch
    from transformers import AutoModelForCausalLM, Qwen3Config

    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        intermediate_size=48,
        tie_word_embeddings=True,
        max_position_embeddings=256,
        initializer_range=0.3,
    )
    return AutoModelForCausalLM.from_config(
        config, dtype=torch.float32, attn_implementation="sdpa"
    ).eval()


def make_row(
    turns: Sequence[tuple[list[int], Any]], rollout: str, group: str, reward: float
) -> Row:
    """Turns are (ids put before, completion)."""
    ids: list[int] = []
    spans: list[TurnSpan] = []
    marks: list[tuple[int, int, Any]] = []
    for index, (before, done) in enumerate(turns):
        ids += before
        start = len(ids)
        ids += done.token_ids
        spans.append(TurnSpan(index, f"{rollout}/{index}", start, len(ids), done.finish_reason))
        marks.append((index, start, done))
    mask = np.zeros(len(ids), np.uint8)
    logprobs = np.zeros(len(ids), np.float32)
    turn_index = np.full(len(ids), -1, np.int32)
    versions = []
    for index, start, done in marks:
        end = start + len(done.token_ids)
        mask[start:end], logprobs[start:end], turn_index[start:end] = 1, done.logprobs, index
        versions += [(name, start + a, start + b) for name, a, b in done.versions]
    return Row(
        token_ids=np.array(ids, np.int32),
        loss_mask=mask,
        logprobs=logprobs,
        turn_index=turn_index,
        turns=spans,
        rollout_id=rollout,
        session_id=rollout,
        group_id=group,
        reward=reward,
        weight_versions=versions,
    ).check()


async def _sample(model: Any, groups: int, size: int, seed: int, **options: Any) -> list[Row]:
    from agentcore_rl_toolkit.engine import Engine, Sampling, twin

    rng = random.Random(seed)

    def ids(longest: int) -> list[int]:
        return [rng.randrange(2, VOCABULARY) for _ in range(rng.randrange(2, longest))]

    with Engine(twin(model), stop_token_ids=(), seed=seed, **options) as engine:

        async def rollout(name: str, group: str, prompt: list[int], between: list[int]) -> Row:
            first = await engine.generate(prompt, Sampling(max_tokens=len(prompt) % 7 + 2))
            so_far = prompt + first.token_ids + between
            second = await engine.generate(so_far, Sampling(max_tokens=len(between) + 2))
            reward = float(rng.random() < 0.5)
            return make_row([(prompt, first), (between, second)], name, group, reward)

        prompts = [ids(20) for _ in range(groups)]
        return await asyncio.gather(
            *(
                rollout(f"r{g}-{k}", f"g{g}", prompt, ids(6))
                for g, prompt in enumerate(prompts)
                for k in range(size)
            )
        )


def sample_rows(
    model: Any, groups: int = 3, size: int = 4, seed: int = 0, **options: Any
) -> list[Row]:
    """Two turns a rollout, rewards 0 or 1 by chance; at least one group differs."""
    rows = asyncio.run(_sample(model, groups, size, seed, **options))
    rows[0].reward, rows[1].reward = 1.0, 0.0
    return rows


def aged(rows: list[Row]) -> list[Row]:
    """As if older weights had sampled them: trained, but not compared."""
    old = copy.deepcopy(rows)
    for row in old:
        row.weight_versions = [("older", a, b) for _, a, b in row.weight_versions]
    return old


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def model() -> Any:
    return make_model()


@pytest.fixture(scope="session")
def sampled() -> list[Row]:
    """Of ``make_model()``; copy before changing."""
    return sample_rows(make_model())
