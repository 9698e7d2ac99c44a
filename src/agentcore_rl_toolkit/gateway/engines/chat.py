"""Any OpenAI-compatible endpoint, for models that are recorded and not trained.

A judge, a user simulator or a helper model goes through the same gateway: its messages are in the
journal, without ids.
"""

from __future__ import annotations

from msgspec import Raw

from ..dialects.base import Ask, encode
from .base import Answer, Engine, Prepared, Stream
from .openai import OpenAIStream, read_answer
from .vllm import PATHS


class ChatEngine(Engine):
    kind = "chat"
    exact = False

    def prepare(self, ask: Ask, session_id: str) -> Prepared:
        fields = dict(ask.fields)
        if self.model is not None:
            fields["model"] = Raw(encode(self.model))
        return Prepared(PATHS[ask.shape], encode(fields))

    def read(self, ask: Ask, body: bytes) -> Answer:
        return read_answer(ask, body, exact=False)

    def stream(self, ask: Ask) -> Stream:
        return OpenAIStream(ask, exact=False)

    async def healthy(self) -> bool:
        """A hosted endpoint has no /health; that it answers at all is enough."""
        status, _ = await self.http.ask("GET", "/v1/models", timeout=10.0)
        return status < 500
