"""Warm-starts the demo policy from generated conversations and writes it to ``model/``.

A Qwen3 of 0.8 million parameters, 1,500 steps on demonstrations that are wrong more often than not
(see ``conversation.py``): it learns the format and to copy numbers, and solves about four in ten
of the held-out problems when sampled. Reinforcement learning does the rest. Eight minutes on one
core.

``--size medium`` makes a policy of 120 million parameters in the same way, for a GPU.

python make_tokenizer.py && python warm_start.py
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import torch
from conversation import MODEL, Example, demonstration, make_renderer, tokens
from problems import problems

STEPS = 1500
BATCH = 32
MATRIX_LR = 0.02
OTHER_LR = 3e-3
WARM_UP = 50
DECAY = 0.3
"""Last share of the steps, in which the rate falls to 0."""
POOL = 32768
"""Conversations, of which every step takes the next."""


SIZES = {
    "small": {
        "hidden_size": 128,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "head_dim": 32,
        "intermediate_size": 384,
    },
    "medium": {
        "hidden_size": 768,
        "num_hidden_layers": 16,
        "num_attention_heads": 12,
        "num_key_value_heads": 4,
        "head_dim": 64,
        "intermediate_size": 2560,
    },
}


def new_model(tokenizer: Any, size: str = "small") -> Any:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    end = tokenizer.eos_token_id
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        max_position_embeddings=1024,
        **SIZES[size],
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=end,
        pad_token_id=tokenizer.pad_token_id,
    )
    config._attn_implementation = "sdpa"
    model = Qwen3ForCausalLM(config)
    model.generation_config.eos_token_id = [end, tokenizer.pad_token_id]
    return model


def optimisers(model: Any) -> list[torch.optim.Optimizer]:
    matrices, others = [], []
    for name, parameter in model.named_parameters():
        (matrices if parameter.ndim == 2 and "embed" not in name else others).append(parameter)
    return [
        torch.optim.Muon(matrices, lr=MATRIX_LR, momentum=0.95, weight_decay=0.0),
        torch.optim.AdamW(others, lr=OTHER_LR, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def rate(step: int, steps: int) -> float:
    return min(1.0, (step + 1) / WARM_UP, (steps - step) / (DECAY * steps))


def batch_loss(model: Any, batch: list[Example]) -> torch.Tensor:
    """Cross entropy on what the assistant says, and logits only there."""
    width = max(len(e.token_ids) for e in batch)
    ids = torch.zeros(len(batch), width, dtype=torch.long)
    target = torch.zeros(len(batch), width, dtype=torch.bool)
    for i, example in enumerate(batch):
        ids[i, : len(example.token_ids)] = torch.tensor(example.token_ids)
        target[i, : len(example.token_ids)] = torch.tensor(example.loss_mask, dtype=torch.bool)
    ids, target = ids.to(model.device), target.to(model.device)
    # padding is on the right: causal attention keeps it out of sight
    hidden = model.model(input_ids=ids).last_hidden_state
    before, wanted = hidden[:, :-1][target[:, 1:]], ids[:, 1:][target[:, 1:]]
    return torch.nn.functional.cross_entropy(model.lm_head(before), wanted)


def train(model: Any, examples: list[Example], steps: int, rng: random.Random) -> None:
    steppers = optimisers(model)
    base = [[group["lr"] for group in o.param_groups] for o in steppers]
    order: list[Example] = []
    started = time.perf_counter()
    for step in range(steps):
        if len(order) < BATCH:
            order = rng.sample(examples, len(examples))
        batch, order = order[:BATCH], order[BATCH:]
        for stepper, rates in zip(steppers, base, strict=True):
            for group, lr in zip(stepper.param_groups, rates, strict=True):
                group["lr"] = lr * rate(step, steps)
        with torch.autocast(model.device.type, torch.bfloat16, enabled=model.device.type != "cpu"):
            loss = batch_loss(model, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for stepper in steppers:
            stepper.step()
            stepper.zero_grad()
        if step % 50 == 0 or step == steps - 1:
            took = time.perf_counter() - started
            print(f"step {step:4d}  loss {loss.item():.3f}  {took:5.1f} s", flush=True)


def evaluate(model: Any, tokenizer: Any, count: int) -> tuple[float, float]:
    """Sampled and greedy success on held-out problems."""
    from play import play_groups, success

    from agentcore_rl_toolkit.engine import Engine

    async def run() -> tuple[float, float]:
        asked = list(problems(count, 1, "test"))
        renderer = make_renderer(tokenizer)
        with Engine(model, max_rows=64) as engine:
            sampled = await play_groups(engine, renderer, asked, 1, "sampled")
            greedy = await play_groups(engine, renderer, asked, 1, "greedy", temperature=0.0)
        return success(sampled), success(greedy)

    return asyncio.run(run())


def save(model: Any, folder: Path) -> None:
    """Half precision on disk, which is what is then trained: rounded before it is judged."""
    model.half().save_pretrained(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--threads", type=int, default=0, help="0: as torch chooses")
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--evaluate", type=int, default=384, help="held-out problems")
    parser.add_argument("--out", type=Path, default=MODEL)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    from transformers import AutoTokenizer

    from agentcore_rl_toolkit.engine import load_model

    torch.manual_seed(options.seed)
    rng = random.Random(options.seed)
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    renderer = make_renderer(tokenizer)
    examples = [tokens(demonstration(p, rng), renderer) for p in problems(POOL, options.seed)]
    model = new_model(tokenizer, options.size).to(options.device)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {len(examples)} examples")
    train(model, examples, options.steps, rng)
    save(model, options.out)
    tokenizer.save_pretrained(options.out)
    model = load_model(options.out, device=options.device)
    sampled, greedy = evaluate(model, tokenizer, options.evaluate)
    print(f"held out: sampled {sampled:.3f}, greedy {greedy:.3f}")
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
