"""An answer given again from the journal's turns, when the call itself is no longer in memory.

After a restart, or long after the fact, a client that retries still gets what was sampled for it
and nothing is sampled a second time.
"""

from __future__ import annotations

import itertools
from typing import Any

import msgspec

from ..trajectory.turn import Turn
from .call import Identity, retry_keys
from .dialects.base import Ask
from .session import Session

encode = msgspec.json.Encoder().encode


def find_answered(session: Session, identity: Identity) -> list[Turn]:
    """Turns, one a choice, that answer a repeated request; empty when it must be sampled."""
    told = identity.retry_count > 0 or identity.idempotency_key is not None
    graph, found = session.graph, None
    for key in retry_keys(identity):
        turn = graph.find_retry(key)
        if turn is None:
            break
        if turn.error is None and (told or not graph.is_delivered(turn.turn_id)):
            found = key
    if found is None:
        return []
    choices = (graph.find_retry(found, choice) for choice in itertools.count())
    return list(itertools.takewhile(lambda turn: turn is not None, choices))  # type: ignore[arg-type]


def replay(ask: Ask, turns: list[Turn]) -> bytes:
    """The answer as the client would have got it, whole or as one event a choice."""
    chat = ask.dialect == "chat"
    kind = "chat.completion" if chat else "text_completion"
    head: dict[str, Any] = {
        "id": f"replay-{turns[0].turn_id}",
        "object": f"{kind}.chunk" if ask.stream and chat else kind,
        "created": int(turns[0].started),
        "model": ask.model,
    }
    choices = [_choice(turn, chat, ask.stream) for turn in turns]
    n_sampled = sum(turn.n_sampled for turn in turns)
    usage = {
        "prompt_tokens": turns[0].n_prompt,
        "completion_tokens": n_sampled,
        "total_tokens": turns[0].n_prompt + n_sampled,
    }
    if not ask.stream:
        return encode({**head, "choices": choices, "usage": usage})
    events = [encode({**head, "choices": [choice]}) for choice in choices]
    return b"".join(b"data: %b\n\n" % event for event in [*events, b"[DONE]"])


def _choice(turn: Turn, chat: bool, stream: bool) -> dict[str, Any]:
    message = msgspec.json.decode(turn.response)
    choice = {"index": turn.choice, "logprobs": None, "finish_reason": turn.finish_reason}
    if not chat:
        return {**choice, "text": message.get("content") or ""}
    if stream and message.get("tool_calls"):
        calls = [{"index": i, **call} for i, call in enumerate(message["tool_calls"])]
        message = {**message, "tool_calls": calls}
    return {**choice, "delta" if stream else "message": message}
