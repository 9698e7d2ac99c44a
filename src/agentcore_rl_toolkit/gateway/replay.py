"""An answer given again from the journal's turns, when the call itself is no longer in memory.

After a restart, or long after the fact, a client that retries still gets what was sampled for it
and nothing is sampled a second time.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..trajectory.turn import Turn
from .call import Identity, body_digest
from .dialects.base import Ask
from .fault import Refusal
from .session import Session
from .text.logprob import tell_logprobs
from .text.spelling import Speller

encode = msgspec.json.Encoder().encode


def find_answered(session: Session, identity: Identity, salt: bytes = b"") -> list[Turn]:
    """Turns, one a choice, that answer a repeated request; empty when it must be sampled.

    422 when a key comes again with another request: what was sampled does not answer that.
    """
    told = identity.retry_count > 0 or identity.idempotency_key is not None
    graph = session.graph
    found = graph.retries.answered(identity.name, arrived=told)
    if found is None:
        return []
    turns: list[Turn] = []
    while (head := graph.find_retry(found, len(turns))) is not None:
        turns.append(graph.turn(head.turn_id))
    keyed = identity.idempotency_key is not None
    if keyed and identity.digest != body_digest(turns[0].request, salt):
        raise Refusal(
            422,
            "this Idempotency-Key came with another request before: use a key for one request only",
            code="idempotency_key_reused",
            retry=False,
        )
    return turns


def replay(ask: Ask, turns: list[Turn], speller: Speller | None = None) -> bytes:
    """The answer as the client would have got it, whole or as one event a choice.

    Without a speller there are no log-probabilities in it: nobody could name the tokens.
    """
    chat = ask.chat
    kind = "chat.completion" if chat else "text_completion"
    head: dict[str, Any] = {
        "id": f"replay-{turns[0].turn_id}",
        "object": f"{kind}.chunk" if ask.stream and chat else kind,
        "created": int(turns[0].started),
        "model": ask.model,
    }
    choices = [_choice(ask, turn, speller) for turn in turns]
    n_sampled = sum(turn.n_sampled for turn in turns)
    usage = {
        "prompt_tokens": turns[0].n_prompt,
        "completion_tokens": n_sampled,
        "total_tokens": turns[0].n_prompt + n_sampled,
    }
    if not ask.stream:
        return encode({**head, "choices": choices, "usage": usage})
    events = [encode({**head, "choices": [choice]}) for choice in choices]
    if b"include_usage" in (ask.raw("stream_options") or b""):
        events.append(encode({**head, "choices": [], "usage": usage}))
    return b"".join(b"data: %b\n\n" % event for event in [*events, b"[DONE]"])


def _choice(ask: Ask, turn: Turn, speller: Speller | None) -> dict[str, Any]:
    message = msgspec.json.decode(turn.response)
    if ask.hides_reasoning:
        message = {k: v for k, v in message.items() if not k.startswith("reasoning")}
    choice: dict[str, Any] = {"index": turn.choice, "logprobs": None}
    choice["finish_reason"] = turn.finish_reason
    if ask.wants_logprobs and speller is not None and turn.logprobs:
        choice["logprobs"] = tell_logprobs(
            ask, speller, turn.sampled_ids().tolist(), turn.sampled_logprobs().tolist()
        )
    if turn.stop is not None:
        choice["stop_reason"] = turn.stop
    if not ask.chat:
        return {**choice, "text": message.get("content") or ""}
    if ask.stream and message.get("tool_calls"):
        calls = [{"index": i, **call} for i, call in enumerate(message["tool_calls"])]
        message = {**message, "tool_calls": calls}
    return {**choice, "delta" if ask.stream else "message": message}
