"""Log-probabilities in the API's shape, from the values that were captured anyway."""

from __future__ import annotations

from typing import Any

import msgspec

from ..dialects.base import Ask
from ..fault import bad_request
from .spelling import Speller

_any = msgspec.json.Decoder(Any)


def refuse_alternatives(ask: Ask, kind: str) -> None:
    """400 for log-probabilities of tokens that were not sampled: nobody has them."""
    name = "top_logprobs" if ask.chat else "logprobs"
    raw = ask.raw(name)
    wanted: object = _any.decode(raw) if raw is not None else 0
    if wanted and wanted is not True:
        raise bad_request(
            f"a {kind} engine gives the log-probability of sampled tokens only: {name!r} must be 0",
            name,
        )


def tell_logprobs(
    ask: Ask, speller: Speller, ids: list[int], logprobs: list[float], offset: int = 0
) -> dict[str, Any]:
    """``offset``: characters of a completion that came before."""
    if ask.chat:
        return _chat(speller, ids, logprobs)
    return _completion(speller, ids, logprobs, offset)


def _chat(speller: Speller, ids: list[int], logprobs: list[float]) -> dict[str, Any]:
    content = []
    for token, logprob in zip(ids, logprobs, strict=False):
        text, data = speller.spell(token)
        content.append({"token": text, "bytes": data, "logprob": logprob, "top_logprobs": []})
    return {"content": content}


def _completion(
    speller: Speller, ids: list[int], logprobs: list[float], offset: int
) -> dict[str, Any]:
    tokens = [speller.spell(token).text for token in ids]
    offsets = []
    for token in tokens:
        offsets.append(offset)
        offset += len(token)
    return {
        "tokens": tokens,
        "token_logprobs": logprobs[: len(ids)],
        "top_logprobs": None,
        "text_offset": offsets,
    }
