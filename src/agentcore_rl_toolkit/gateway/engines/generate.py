"""vLLM's ``/inference/v1/generate``: ids in, ids out, with weight versions by token.

Needs vLLM started with ``--enable-scale-out`` or ``--tokens-only``.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..dialects.base import Ask
from ..text.render import Renderer
from .answer import Tokens
from .experts import decode_experts
from .tokens import SAMPLING, TokenEngine
from .vllm import VLLMEngine


class _Logprob(msgspec.Struct, gc=False):
    logprob: float
    entropy: float | None = None
    """Of the embedded engine only."""


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
    sampling = (*SAMPLING, "structured_outputs")
    pause = VLLMEngine.pause
    resume = VLLMEngine.resume
    set_version = VLLMEngine.set_version

    @classmethod
    async def is_offered(cls, engine: VLLMEngine) -> bool:
        """Whether a vLLM server was started with this endpoint; asked without sampling."""
        try:
            status, _ = await engine.http.ask("POST", cls.path, b"{}")
        except (OSError, TimeoutError):
            return False
        return status in (400, 422)  # 403 or 404 where it is switched off

    @classmethod
    def beside(cls, engine: VLLMEngine, renderer: Renderer) -> GenerateEngine:
        """The same server, asked with ids; takes the connections over."""
        new = cls(engine.url, model=engine.model)
        new.http.close()
        new.http, new.capabilities, new.renderer = engine.http, engine.capabilities, renderer
        return new

    def request(self, ask: Ask, ids: list[int], sampling: dict[str, Any]) -> dict[str, Any]:
        body: dict[str, Any] = {
            "token_ids": ids,
            "sampling_params": {**sampling, "logprobs": 0, "n": ask.n},
            "stream": ask.stream,
        }
        if self.experts:
            body["routed_experts_prompt_start"] = ask.known
        return {"model": self.model, **body} if self.model else body

    def answers(self, body: bytes) -> list[Tokens]:
        return [_tokens(choice) for choice in _reply.decode(body).choices]


def _tokens(choice: _Choice) -> Tokens:
    content = (choice.logprobs.content if choice.logprobs else None) or []
    return Tokens(
        choice.index,
        choice.token_ids or [],
        [entry.logprob for entry in content],
        choice.finish_reason,
        [(v.version, v.start, v.end) for v in choice.weight_versions or ()],
        decode_experts(choice.routed_experts),
        entropies=[e.entropy for e in content if e.entropy is not None],
    )
