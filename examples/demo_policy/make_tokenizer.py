"""Makes the demo policy's tokenizer: byte-level BPE on the exact text of its conversations.

Digits, signs and brackets are always tokens of their own, so that numbers can be copied digit by
digit; everything between them may merge across words, because the stories repeat. The agent's
system message with its tools is one token: it is the same in every conversation and half of each
prompt otherwise. Any other text still encodes, down to bytes.

python make_tokenizer.py
"""

from __future__ import annotations

import random
from typing import Any

from conversation import MODEL, agent_request, call_text, demonstration
from problems import problems

VOCABULARY = 1024
CONVERSATIONS = 2000

CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MARKS = (
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
)

CHAT_TEMPLATE = """\
{%- macro text(content) -%}
{%- if content is string -%}{{ content }}
{%- elif content is iterable -%}{%- for part in content -%}{{ part.text }}{%- endfor -%}
{%- endif -%}
{%- endmacro -%}
{%- set first = messages[0] if messages[0].role == 'system' else none -%}
{%- if tools -%}
{{- '<|im_start|>system\\n' -}}
{%- if first -%}{{- text(first.content) + '\\n\\n' -}}{%- endif -%}
{{- TOOLS_BEFORE -}}
{%- for tool in tools -%}{{- '\\n' + (tool | tojson) -}}{%- endfor -%}
{{- TOOLS_AFTER + '<|im_end|>\\n' -}}
{%- elif first -%}
{{- '<|im_start|>system\\n' + text(first.content) + '<|im_end|>\\n' -}}
{%- endif -%}
{%- for message in messages -%}
{%- if message.role == 'tool' -%}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' -%}
{{- '<|im_start|>user' -}}
{%- endif -%}
{{- '\\n<tool_response>\\n' + text(message.content) + '\\n</tool_response>' -}}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' -%}
{{- '<|im_end|>\\n' -}}
{%- endif -%}
{%- elif message.role == 'assistant' -%}
{{- '<|im_start|>assistant\\n' + text(message.content) -}}
{%- for call in message.tool_calls or [] -%}
{%- set function = call.function or call -%}
{%- if not loop.first or text(message.content) -%}{{- '\\n' -}}{%- endif -%}
{{- '<tool_call>\\n{"name": "' + function.name + '", "arguments": ' -}}
{%- if function.arguments is string -%}{{- function.arguments -}}
{%- else -%}{{- function.arguments | tojson -}}{%- endif -%}
{{- '}\\n</tool_call>' -}}
{%- endfor -%}
{{- '<|im_end|>\\n' -}}
{%- elif not (message.role == 'system' and loop.first) -%}
{{- '<|im_start|>' + message.role + '\\n' + text(message.content) + '<|im_end|>\\n' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""


def corpus(count: int, seed: int) -> list[str]:
    """Every piece of text between two marks, as the renderer encodes it."""
    rng = random.Random(seed)
    pieces: list[str] = []
    for problem in problems(count, seed):
        demo = demonstration(problem, rng)
        pieces += [f"user\n{demo.prompt}", "assistant\n", f"#### {demo.answer}"]
        if demo.expression is not None:
            pieces += [call_text(demo.expression), "\n", "user", f"\n{demo.result}\n"]
    return pieces


def system_block(plain: Any) -> str:
    """The system message with its tools as the renderer writes it, without the marks around it."""
    from conversation import make_renderer

    request = agent_request()
    ids = make_renderer(plain).render_ids(request["messages"], tools=request["tools"])
    text: str = plain.decode(ids, skip_special_tokens=False)
    return text.removeprefix("<|im_start|>").removesuffix("<|im_end|>\n")


def train(pieces: list[str], blocks: list[str]) -> Any:
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\d| [-+*/] |[()]"), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(MARKS) - len(blocks),
        special_tokens=list(CONTROL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(pieces, trainer)
    plain = [*MARKS, *blocks]
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in plain])
    return tokenizer


def wrap(tokenizer: Any) -> Any:
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        model_max_length=1024,
        clean_up_tokenization_spaces=False,
    )


def chat_template() -> str:
    """The template, with the two sentences around the tools as the renderer has them."""
    from renderers import qwen3

    before = repr(qwen3._TOOLS_HEADER)
    after = repr(qwen3._TOOLS_FOOTER)
    return CHAT_TEMPLATE.replace("TOOLS_BEFORE", before).replace("TOOLS_AFTER", after)


def main() -> None:
    pieces = corpus(CONVERSATIONS, seed=1)
    block = system_block(wrap(train(pieces, [])))
    tokenizer = wrap(train(pieces, [block]))
    tokenizer.chat_template = chat_template()
    tokenizer.save_pretrained(MODEL)
    print(f"wrote a tokenizer of {len(tokenizer)} tokens to {MODEL}")


if __name__ == "__main__":
    main()
