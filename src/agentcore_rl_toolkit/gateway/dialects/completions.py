"""OpenAI's legacy ``/v1/completions``: one prompt, as text or as token ids."""

from __future__ import annotations

from typing import Any, ClassVar

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
    take_int,
    take_model,
    take_n,
)

_list = msgspec.json.Decoder(list[Any])
MAX_ID = (1 << 31) - 1


class CompletionsDialect(Dialect):
    name = "completions"
    refused: ClassVar[dict[str, str]] = {
        "echo": "the answer would repeat the prompt",
        "best_of": "choices that are sampled and thrown away cannot be captured; use 'n'",
        "suffix": "the prompt that is sampled from would not be the one that was sent",
        "use_beam_search": "beam search does not sample from the policy",
        "kv_transfer_params": "it could replace the prompt behind the capture",
        "prompt_embeds": "a prompt without token ids cannot be trained",
        "prompt_logprobs": "ask the engine itself",
    }

    def parse(self, body: bytes) -> Ask:
        fields = read_fields(body)
        if "prompt" not in fields:
            raise bad_request("'prompt' is missing", "prompt")
        n = take_n(fields)
        if take_int(fields, "best_of", n) == n:
            fields.pop("best_of", None)
        refuse(fields, self.refused)
        fields["prompt"] = _single(fields["prompt"])
        return Ask(
            dialect=self.name,
            body=body,
            fields=fields,
            model=take_model(fields),
            stream=take_bool(fields, "stream"),
            n=n,
            wants_logprobs="logprobs" in fields,
            wants_ids=take_bool(fields, "return_token_ids"),
        )


def _single(prompt: Raw) -> Raw:
    """A list of one prompt is that prompt; several in one call would be several turns."""
    kind = first_byte(prompt)
    if kind == b'"':
        return prompt
    if kind != b"[":
        raise bad_request("'prompt' must be a string or a list of token ids", "prompt")
    items = _list.decode(prompt)
    if items and all(type(item) is int for item in items):
        if min(items) < 0 or max(items) > MAX_ID:
            raise bad_request("'prompt' has ids that no vocabulary has", "prompt")
        return prompt
    if len(items) == 1 and isinstance(items[0], str | list):
        return _single(Raw(msgspec.json.encode(items[0])))
    raise bad_request("'prompt' must be one prompt: send one request for each", "prompt")


COMPLETIONS = CompletionsDialect()
