"""vLLM's ``/inference/v1/generate``: ids in, ids out, with weight versions by token.

Needs vLLM started with ``--enable-scale-out`` or ``--tokens-only``.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..dialects.base import Ask
from .tokens import TokenEngine, Tokens
from .vllm import VLLMEngine


class _Logprob(msgspec.Struct, gc=False):
    logprob: float


class _Logprobs(msgspec.Struct):
    content: list[_Logprob] | None = None


class _Version(msgspec.Struct):
    version: str
    start: int
    end: int


class _Choice(msgspec.Struct):
    index: int = 0
    token_ids: list[int] | None = None
    logprobs: _Logprobs | None = None
    finish_reason: str | None = None
    weight_versions: list[_Version] | None = None
    routed_experts: str | None = None


class _Reply(msgspec.Struct):
    choices: list[_Choice]


_reply = msgspec.json.Decoder(_Reply)


class GenerateEngine(TokenEngine):
    kind = "vllm-generate"
    path = "/inference/v1/generate"
    pause = VLLMEngine.pause
    resume = VLLMEngine.resume
    set_version = VLLMEngine.set_version

    def request(self, ask: Ask, ids: list[int], sampling: dict[str, Any]) -> dict[str, Any]:
        body: dict[str, Any] = {
            "token_ids": ids,
            "sampling_params": {**sampling, "logprobs": 0, "n": ask.n},
            "stream": ask.stream,
        }
        return {"model": self.model, **body} if self.model else body

    def answers(self, body: bytes) -> list[Tokens]:
        return [
            Tokens(
                choice.index,
                choice.token_ids or [],
                [e.logprob for e in (choice.logprobs.content or ())] if choice.logprobs else [],
                choice.finish_reason,
                [(v.version, v.start, v.end) for v in choice.weight_versions or ()],
                choice.routed_experts.encode() if choice.routed_experts else None,
            )
            for choice in _reply.decode(body).choices
        ]
