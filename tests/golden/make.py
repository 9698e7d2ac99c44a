"""Small tokenizers in the style of model families, and the golden ids of a conversation in each.

    python tests/golden/make.py        writes one JSON file a family

The tokenizers are bytes, a few fixed merges and the family's special tokens: nothing is trained or
downloaded, so they are the same everywhere. What the model says is written by hand in the family's
own format and cut into ids as no tokenizer would, so that any second tokenisation shows. Harmony
(gpt-oss) insists on its own vocabulary, of which the litellm package carries a copy.
"""

from __future__ import annotations

import atexit
import base64
import functools
import importlib.util
import json
import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from agentcore_rl_toolkit.gateway.dialects.base import Ask, chat_ask
from agentcore_rl_toolkit.gateway.engines.answer import Growing, Tokens
from agentcore_rl_toolkit.gateway.text.family import choose_renderer
from agentcore_rl_toolkit.gateway.text.render import Renderer, Talk

HERE = Path(__file__).resolve().parent
MERGES = ["t h", "th e", "i n", "a r", "o l", '{ "', '" :', "Ġ the", "Ċ Ċ", "w e", "c e", "e r"]
BAR, LOW = "\uff5c", "\u2581"


def ds(name: str) -> str:
    return f"<{BAR}{name.replace('_', LOW)}{BAR}>"


CHATML = (
    "{%- if tools -%}{{- '<|im_start|>system\\n' + (messages[0].content if messages[0].role == "
    "'system' else 'You help.') + '\\n\\nTools, one a line:' -}}{%- for tool in tools -%}"
    "{{- '\\n' + (tool | tojson) -}}{%- endfor -%}{{- '\\nCall them as <tool_call>\\n{\"name\": "
    "..., \"arguments\": ...}\\n</tool_call><|im_end|>\\n' -}}{%- elif messages[0].role == 'system'"
    " -%}{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' -}}{%- endif -%}"
    "{%- for m in messages -%}{%- if m.role == 'tool' -%}{%- if messages[loop.index0 - 1].role != "
    "'tool' -%}{{- '<|im_start|>user' -}}{%- endif -%}{{- '\\n<tool_response>\\n' + m.content + "
    "'\\n</tool_response>' -}}{%- if loop.last or messages[loop.index0 + 1].role != 'tool' -%}"
    "{{- '<|im_end|>\\n' -}}{%- endif -%}{%- elif not (m.role == 'system' and loop.first) -%}"
    "{{- '<|im_start|>' + m.role + '\\n' + m.content -}}{%- for call in m.tool_calls or [] -%}"
    '{{- \'\\n<tool_call>\\n{"name": "\' + call.function.name + \'", "arguments": \' + '
    "(call.function.arguments | tojson) + '}\\n</tool_call>' -}}{%- endfor -%}{{- '<|im_end|>\\n' "
    "-}}{%- endif -%}{%- endfor -%}{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' "
    "-}}{%- endif -%}"
)
"""A template that no family has: such models are rendered by their template."""

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather in a place.",
            "parameters": {
                "type": "object",
                "properties": {"place": {"type": "string"}, "days": {"type": "integer"}},
                "required": ["place"],
            },
        },
    }
]
ARGUMENTS = {"place": "Köln", "days": 2}


@dataclass(frozen=True)
class Family:
    renderer: str
    special: tuple[str, ...]
    call: str
    """What the model says first: reasoning where the family has it, and a call."""
    end: str
    """Token that ends an answer."""
    end_call: str | None = None
    """Token that ends an answer with a call, where it is another."""
    last: str = "Warm in Köln \N{SUN BEHIND CLOUD}."
    template: str | None = None
    content: str = ""
    reasoning: str | None = "look it up"
    closes: str | None = None
    """Token that closes an answer that was cut, where it ends none by itself."""
    options: dict[str, Any] | None = None
    """For the template."""


TAGS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
IM = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
THINK = "<think>\nlook it up\n</think>\n\n"
JSON_CALL = (
    '<tool_call>\n{"name": "weather",  "arguments": {"place": "Köln", "days": 2}}\n</tool_call>'
)
XML_CALL = (
    "<tool_call>\n<function=weather>\n<parameter=place>\nKöln\n</parameter>\n<parameter=days>\n2\n"
    "</parameter>\n</function>\n</tool_call>"
)

HARMONY = {
    "<|startoftext|>": 199998, "<|endoftext|>": 199999, "<|return|>": 200002,
    "<|constrain|>": 200003, "<|channel|>": 200005, "<|start|>": 200006, "<|end|>": 200007,
    "<|message|>": 200008, "<|call|>": 200012,
}  # fmt: skip

FAMILIES: dict[str, Family] = {
    "hermes": Family(
        "template", IM, THINK + "One moment. " + JSON_CALL, "<|im_end|>", template=CHATML,
        content="One moment. ",
    ),
    "qwen3": Family("qwen3", (*IM, *TAGS), THINK + JSON_CALL, "<|im_end|>"),
    "qwen3.5": Family(
        "qwen3.5",
        (*IM, *TAGS, "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"),
        "look it up\n</think>\n\n" + XML_CALL, "<|im_end|>", last="fine\n</think>\n\nWarm.",
    ),
    "llama-3": Family(
        "llama-3",
        ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
         "<|eot_id|>", "<|eom_id|>", "<|python_tag|>"),
        '{"name": "weather", "parameters": {"place": "Köln", "days": 2}}', "<|eot_id|>",
        reasoning=None,
    ),
    "deepseek-v3": Family(
        "deepseek-v3",
        tuple(map(ds, (
            "begin_of_sentence", "end_of_sentence", "User", "Assistant", "tool_calls_begin",
            "tool_calls_end", "tool_call_begin", "tool_call_end", "tool_sep",
            "tool_outputs_begin", "tool_outputs_end", "tool_output_begin", "tool_output_end"))),
        "One moment." + ds("tool_calls_begin") + ds("tool_call_begin") + "function"
        + ds("tool_sep") + 'weather\n```json\n{"place": "Köln", "days": 2}\n```'
        + ds("tool_call_end") + ds("tool_calls_end"),
        ds("end_of_sentence"), content="One moment.", reasoning=None,
    ),
    "glm-4.5": Family(
        "glm-4.5",
        ("<|endoftext|>", "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>",
         "<|observation|>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", *TAGS[:4]),
        "\n<think>look it up</think>\n<tool_call>weather\n<arg_key>place</arg_key>\n<arg_value>Köln"
        "</arg_value>\n<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>",
        "<|user|>", "<|observation|>", last="\n<think></think>\nWarm.",
    ),
    "kimi-k2": Family(
        "kimi-k2",
        ("<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>", "<|im_end|>",
         "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>",
         "<|tool_call_argument_begin|>", "<|tool_call_end|>", "[BOS]", "[EOS]"),
        "One moment.<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0"
        '<|tool_call_argument_begin|>{"place": "Köln", "days": 2}<|tool_call_end|>'
        "<|tool_calls_section_end|>", "<|im_end|>", content="One moment.", reasoning=None,
    ),
    "minimax-m2": Family(
        "minimax-m2",
        ("]~!b[", "]~b]", "[e~[", "<think>", "</think>", "<minimax:tool_call>",
         "</minimax:tool_call>"),
        'look it up\n</think>\n\n<minimax:tool_call>\n<invoke name="weather">\n<parameter '
        'name="place">Köln</parameter>\n<parameter name="days">2</parameter>\n</invoke>\n'
        "</minimax:tool_call>", "[e~[", last="fine\n</think>\n\nWarm.",
    ),
    "gpt-oss": Family(
        "gpt-oss", tuple(HARMONY),
        "look it up<|end|><|start|>assistant<|channel|>commentary to=functions.weather "
        '<|constrain|>json<|message|>{"place": "Köln", "days": 2}', "<|return|>", "<|call|>",
        last="fine<|end|><|start|>assistant<|channel|>final<|message|>Warm in Köln.",
        closes="<|end|>", options={"conversation_start_date": "2026-01-01"},
    ),
}  # fmt: skip


def harmony_vocabulary() -> Path | None:
    """A copy of ``o200k_base.tiktoken``, if one is installed."""
    spec = importlib.util.find_spec("litellm")
    if spec is None or not spec.submodule_search_locations:
        return None
    copies = Path(spec.submodule_search_locations[0]) / "litellm_core_utils" / "tokenizers"
    path = copies / "fb374d419588a4632f3f557e76b4b70aebbca790"
    return path if path.is_file() else None


class HarmonyTokenizer:
    eos_token, unk_token_id = "<|return|>", None

    def __init__(self, path: Path) -> None:
        from tiktoken import Encoding

        lines = (line.split() for line in path.read_bytes().splitlines())
        ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
        cut = r"\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+|\s+"
        self._encoding = Encoding(
            "harmony", pat_str=cut, mergeable_ranks=ranks, special_tokens=HARMONY
        )

    def encode(self, text: str, **_: Any) -> list[int]:
        return self._encoding.encode(text, allowed_special="all")

    def decode(self, ids: Any, **_: Any) -> str:
        return self._encoding.decode([ids] if isinstance(ids, int) else list(ids))

    def convert_tokens_to_ids(self, token: str) -> int:
        return HARMONY[token]


@functools.cache
def make_harmony() -> tuple[HarmonyTokenizer, Renderer]:
    """Made once: its vocabulary takes seconds to load."""
    path = harmony_vocabulary()
    assert path is not None, "install litellm: it carries the vocabulary of gpt-oss"
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (Path(folder) / "o200k_base.tiktoken").symlink_to(path)
    os.environ["TIKTOKEN_ENCODINGS_BASE"] = folder
    tokenizer = HarmonyTokenizer(path)
    return tokenizer, choose_renderer(tokenizer, name="gpt-oss")


def make_tokenizer(family: Family) -> Any:
    if family.renderer == "gpt-oss":
        return make_harmony()[0]
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocab = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    for merge in MERGES:
        vocab.setdefault(merge.replace(" ", ""), len(vocab))
    pairs = [tuple(merge.split(" ")) for merge in MERGES]
    rust = Tokenizer(models.BPE(vocab=vocab, merges=pairs))
    rust.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    rust.decoder = decoders.ByteLevel()
    rust.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in family.special]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=rust, eos_token=family.end, chat_template=family.template
    )


def make_renderer(family: Family) -> Renderer:
    if family.renderer == "gpt-oss":
        return make_harmony()[1]
    return choose_renderer(make_tokenizer(family), name=family.renderer)


def sampled(family: Family, tokenizer: Any, text: str, end: str) -> list[int]:
    """Ids of a text, cut into pieces of two characters: no merge of three survives."""
    special = "|".join(map(re.escape, family.special))
    ids: list[int] = []
    for part in re.split(f"({special})", text):
        whole = part in family.special
        pieces = [part] if whole else [part[i : i + 2] for i in range(0, len(part), 2)]
        for piece in pieces:
            ids += tokenizer.encode(piece, add_special_tokens=False)
    return [*ids, *tokenizer.encode(end, add_special_tokens=False)]


def ask_of(prompt: list[int], *, stream: bool = False) -> Ask:
    ask = chat_ask("chat", b"", {"model": "m", "tools": TOOLS}, [b"{}"], stream=stream)
    ask.prompt = np.asarray(prompt, np.int32).tobytes()
    return ask


def read_answer(renderer: Renderer, prompt: list[int], ids: list[int], step: int) -> Growing:
    """The answer, fed to the parser ``step`` ids at a time."""
    choice = Growing(ask_of(prompt), renderer, 0, "call")
    for at in range(0, len(ids), step):
        part = ids[at : at + step]
        done = "stop" if at + step >= len(ids) else None
        choice.add(Tokens(0, part, [0.0] * len(part), done))
    choice.end()
    return choice


def play(family: Family, step: int = 1 << 20) -> list[dict[str, Any]]:
    """Three turns: a call, an answer to its result, an answer to another question."""
    renderer = make_renderer(family)
    tokenizer = renderer.tokenizer
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "Answer briefly."},
        {"role": "user", "content": "Weather in Köln?"},
    ]
    said = [
        (family.call, family.end_call or family.end),
        (family.last, family.end),
        (family.last, family.end),
    ]
    turns: list[dict[str, Any]] = []
    held: list[int] = []
    n_held = n_prompt = 0
    for text, end in said:
        talk = talk_of(messages, family)
        if held:
            bridged = renderer.bridge(np.asarray(held, np.int32), n_prompt, talk, n_held)
            assert bridged is not None, "the conversation only grew"
            prompt = np.frombuffer(bridged, np.int32).tolist()
        else:
            prompt = np.frombuffer(renderer.render(talk), np.int32).tolist()
        ids = sampled(family, tokenizer, text, end)
        message = read_answer(renderer, prompt, ids, step).message
        turns.append({"prompt": prompt, "sampled": ids, "message": message})
        held, n_prompt, n_held = prompt + ids, len(prompt), len(messages) + 1
        messages = [*messages, replayed(message), *after(message)]
    turns.append({"text": renderer.decode(held)})
    return turns


def talk_of(messages: list[dict[str, Any]], family: Family) -> Talk:
    return Talk([json.dumps(message).encode() for message in messages], TOOLS, family.options)


def replayed(message: dict[str, Any]) -> dict[str, Any]:
    """As a client sends it back: without its reasoning."""
    return {k: v for k, v in message.items() if k != "reasoning_content"}


def after(message: dict[str, Any]) -> list[dict[str, Any]]:
    calls = message.get("tool_calls") or []
    if not calls:
        return [{"role": "user", "content": "And tomorrow?"}]
    return [{"role": "tool", "tool_call_id": call["id"], "content": "24 degrees"} for call in calls]


def main() -> None:
    for name, family in FAMILIES.items():
        text = json.dumps(play(family), ensure_ascii=False, separators=(",", ":"))
        (HERE / f"{name}.json").write_text(text + "\n")
        print(f"{name}.json  {len(text)} bytes")


if __name__ == "__main__":
    main()
