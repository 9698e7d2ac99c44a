"""The demo policy with an output layer of its own, in float32.

Embeddings must not be tied: vLLM on a CPU serves a stale output layer after a reload when they are.
"""

from __future__ import annotations

from pathlib import Path

POLICY = Path(__file__).parents[2] / "examples" / "demo_policy" / "model"


def save(folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tied = AutoModelForCausalLM.from_pretrained(POLICY, dtype=torch.float32)
    config = tied.config
    config.tie_word_embeddings, config.dtype = False, torch.float32
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    weights = {**tied.state_dict(), "lm_head.weight": tied.get_input_embeddings().weight.clone()}
    model.load_state_dict(weights)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(POLICY).save_pretrained(folder)
