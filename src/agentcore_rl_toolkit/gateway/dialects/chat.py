"""OpenAI's ``/v1/chat/completions``."""

from __future__ import annotations

from typing import ClassVar

import msgspec
from msgspec import Raw

from ..fault import bad_request
from .base import (
    Ask,
    Dialect,
    first_byte,
    read_fields,
    refuse,
    take_bool,
    take_model,
    take_n,
)

_messages = msgspec.json.Decoder(list[Raw])


class ChatDialect(Dialect):
    name = "chat"
    refused: ClassVar[dict[str, str]] = {
        "audio": "only text is captured",
        "modalities": "only text is captured",
        "web_search_options": "tools run on the agent's side",
        "prediction": "predicted outputs have no log-probabilities of their own",
        "store": "nothing is stored beyond the run folder",
        "functions": "use 'tools'",
        "function_call": "use 'tool_choice'",
        "use_beam_search": "beam search does not sample from the policy",
        "best_of": "choices that are sampled and thrown away cannot be captured; use 'n'",
        "kv_transfer_params": "it could replace the prompt behind the capture",
        "echo": "the answer would repeat the prompt",
        "prompt_logprobs": "ask the engine itself",
    }

    def parse(self, body: bytes) -> Ask:
        fields = read_fields(body)
        messages = fields.get("messages")
        if messages is None:
            raise bad_request("'messages' is missing", "messages")
        if first_byte(messages) != b"[":
            raise bad_request("'messages' must be a list", "messages")
        split = [bytes(message) for message in _messages.decode(messages)]
        if not split or any(message[:1] != b"{" for message in split):
            raise bad_request("'messages' must be a list of at least one object", "messages")
        refuse(fields, self.refused)
        return Ask(
            dialect=self.name,
            body=body,
            fields=fields,
            messages=split,
            model=take_model(fields),
            stream=take_bool(fields, "stream"),
            n=take_n(fields),
            wants_logprobs=take_bool(fields, "logprobs"),
            wants_ids=take_bool(fields, "return_token_ids"),
            hides_reasoning="include_reasoning" in fields
            and not take_bool(fields, "include_reasoning"),
        )


CHAT = ChatDialect()
