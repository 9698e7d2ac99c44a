"""vLLM over its own chat and completions endpoints, with ids and log-probabilities forced on.

The client's body is sent as it came, except for what capture needs: ``logprobs``,
``return_token_ids`` and, since leaving reasoning out switches both off in vLLM,
``include_reasoning``. What the client did not ask for is taken out of the reply again.
"""

from __future__ import annotations

from msgspec import Raw

from ..dialects.base import Ask, encode
from .base import Answer, Engine, Prepared, Stream
from .openai import OpenAIStream, read_answer

TRUE = Raw(b"true")
ZERO = Raw(b"0")
PATHS = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}


class VLLMEngine(Engine):
    kind = "vllm"

    def prepare(self, ask: Ask, session_id: str) -> Prepared:
        fields = dict(ask.fields)
        fields["return_token_ids"] = TRUE
        if self.model is not None:
            fields["model"] = Raw(encode(self.model))
        if ask.chat:
            fields["logprobs"] = TRUE
            if not ask.wants_logprobs:
                fields.pop("top_logprobs", None)
            if "include_reasoning" in fields:
                fields["include_reasoning"] = TRUE
        elif not ask.wants_logprobs:
            fields["logprobs"] = ZERO
        return Prepared(PATHS[ask.shape], encode(fields))

    def read(self, ask: Ask, body: bytes) -> Answer:
        return read_answer(ask, body)

    def stream(self, ask: Ask) -> Stream:
        return OpenAIStream(ask)

    async def pause(self, mode: str = "keep") -> None:
        await self.control(f"/pause?mode={mode}")

    async def resume(self) -> None:
        await self.control("/resume")

    async def set_version(self, version: str) -> None:
        await self.control("/update_weight_version", {"new_version": version})
