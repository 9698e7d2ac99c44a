"""A small random model, made once: two layers, grouped heads, tied embeddings."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

# some CPUs announce instructions that they then refuse
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

VOCABULARY = 61
END = 1


def make_model(seed: int = 0, **changes: Any) -> Any:
    import torch
    from transformers import AutoModelForCausalLM, Qwen3Config

    settings: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "intermediate_size": 48,
        "tie_word_embeddings": True,
        "max_position_embeddings": 256,
        "eos_token_id": END,
        "initializer_range": 0.3,
    }
    torch.manual_seed(seed)
    config = Qwen3Config(**{**settings, **changes})
    return AutoModelForCausalLM.from_config(
        config, dtype=torch.float32, attn_implementation="sdpa"
    ).eval()


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def model() -> Any:
    return make_model()
