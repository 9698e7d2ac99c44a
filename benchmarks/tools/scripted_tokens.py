"""An engine that takes ids and says what a script tells it, in Qwen3's own writing.

Its vocabulary is the tests' golden one, and what it samples is cut as no tokenizer would cut it: a
second tokenisation anywhere shows. How far a conversation is can be read from its prompt.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from aiohttp import web

from .parts import FakeTokens, Say, golden

QWEN = golden.FAMILIES["qwen3"]


class ScriptedTokens(FakeTokens):
    """``say(n)`` is the answer to a prompt that holds ``n`` answers."""

    def __init__(self, say: Callable[[int], Say]) -> None:
        super().__init__()
        self.say = say
        self.renderer = golden.make_renderer(QWEN)
        self.said: list[list[int]] = []

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "tiny", "max_model_len": 1 << 20}]})

    async def _vllm(self, request: web.Request) -> web.StreamResponse:
        body: dict[str, Any] = await request.json()
        text = self.renderer.decode(body["token_ids"])
        say = self.say(text.count("<|im_start|>assistant") - 1)
        tokenizer = self.renderer.tokenizer
        self.sampled = golden.sampled(QWEN, tokenizer, written(say), "<|im_end|>")
        self.said.append(self.sampled)
        return await super()._vllm(request)


def written(say: Say) -> str:
    """Reasoning, text and calls, these with more space than a template writes."""
    thought = f"<think>\n{say.reasoning}\n</think>\n\n" if say.reasoning else ""
    calls = [
        f'<tool_call>\n{{"name": "{name}",  "arguments": '
        f"{said if isinstance(said, str) else json.dumps(said)}}}\n</tool_call>"
        for name, said in say.calls
    ]
    return thought + "\n".join([*([say.text] if say.text else []), *calls])
