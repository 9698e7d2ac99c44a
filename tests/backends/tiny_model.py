"""A model that every engine loads in a second: random weights, a tokenizer of its own, ChatML.

Embeddings are not tied: vLLM on a CPU serves a stale output layer after a reload when they are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = """\
{%- if tools %}<|im_start|>system
Tools:{% for tool in tools %} {{ tool | tojson }}{% endfor %}<|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content or '' }}
{%- for call in message.tool_calls or [] %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def make_tokenizer() -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        show_progress=False,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    words = "the answer is a number; call the calculator with an expression and say what it gives"
    bpe.train_from_iterator([words, words.title(), '<tool_call>\n{"name": "add"}\n'], trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def make_model(tokenizer: Any, seed: int) -> Any:
    import torch
    from transformers import AutoModelForCausalLM, Qwen3Config

    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        intermediate_size=256,
        max_position_embeddings=2048,
        tie_word_embeddings=False,
        eos_token_id=tokenizer.eos_token_id,
        initializer_range=0.15,
    )
    return AutoModelForCausalLM.from_config(
        config, dtype=torch.float32, attn_implementation="sdpa"
    ).eval()


def save(folder: Path, seed: int) -> Any:
    """Writes a checkpoint; returns its model, for comparison."""
    tokenizer = make_tokenizer()
    model = make_model(tokenizer, seed)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model


def logprobs(model: Any, token_ids: Any) -> list[float]:
    """Log-probability of every id but the first, by one plain forward pass."""
    import torch

    ids = torch.tensor([list(token_ids)])
    with torch.no_grad():
        scores = model(ids).logits[0, :-1].float().log_softmax(-1)
    return [float(x) for x in scores.gather(1, ids[0, 1:, None])[:, 0]]
