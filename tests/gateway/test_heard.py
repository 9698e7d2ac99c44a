"""Requests that begin as an earlier one: what is read of them is what a whole read gives."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcore_rl_toolkit.gateway.dialects.chat import CHAT
from agentcore_rl_toolkit.gateway.fault import Refusal
from agentcore_rl_toolkit.gateway.memory.heard import Heard
from agentcore_rl_toolkit.gateway.normal import normalise

LONG = {"role": "user", "content": "q" * 20_000}


def read(heard: Heard, body: bytes) -> Any:
    ask = heard.read(CHAT, body)
    normalise(ask)
    heard.learn(ask)
    return ask


def seen(ask: Any) -> tuple[Any, ...]:
    fields = {name: bytes(value) for name, value in ask.fields.items()}
    return fields, list(fields), ask.messages, ask.body, ask.model, ask.stream, ask.edits


def whole(body: bytes) -> Any:
    ask = CHAT.parse(body)
    normalise(ask)
    return ask


def message(rng: random.Random) -> dict[str, Any]:
    content = rng.choice(["", "x]},{", "é\u2028\\", '"messages":[', "cache_control", " "])
    made: dict[str, Any] = {"role": rng.choice(["user", "assistant", "system"]), "content": content}
    if rng.random() < 0.2:
        made["cache_control"] = {"type": "ephemeral"}
    return made


@given(seed=st.integers(0, 100_000))
def test_what_is_read_of_a_conversation_is_what_a_whole_read_gives(seed: int) -> None:
    rng, heard = random.Random(seed), Heard()
    messages = [dict(LONG)]
    before = rng.choice([{}, {"model": "m"}, {"model": "m", "tools": [{"messages": [1]}]}])
    after = rng.choice([{}, {"stream": True}, {"model": "n", "stop": ["]"], "top_p": None}])
    separators = rng.choice([(",", ":"), (", ", ": "), (" , ", " : ")])
    for _ in range(6):
        body = {**before, "messages": messages, **after}
        body.setdefault("model", "policy")
        data = json.dumps(body, separators=separators, ensure_ascii=rng.random() < 0.5).encode()
        assert seen(read(heard, data)) == seen(whole(data))
        kind = rng.random()
        if kind < 0.15:
            messages = [dict(LONG), message(rng)]
        elif kind < 0.3:
            messages = [*messages[:-1], message(rng)]
        messages = [*messages, *(message(rng) for _ in range(rng.randrange(3)))]


def test_a_growing_conversation_is_read_from_where_it_goes_on() -> None:
    heard, messages = Heard(), [dict(LONG)]
    first = read(heard, json.dumps({"model": "m", "messages": messages}).encode())
    messages += [{"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}]
    ask = read(
        heard, json.dumps({"model": "m", "messages": messages}).encode().replace(b", {", b",{")
    )
    assert len(ask.fresh) < 1000
    assert ask.messages[0] is first.messages[0], "one copy in memory"
    again = read(heard, json.dumps({"model": "m", "messages": messages}).encode())
    assert again.messages == ask.messages
    assert len(heard._known) <= 2


@pytest.mark.parametrize("rest", [b"]", b",]}", b',3],"model":"m"}', b',{}],"model":"m"} x'])
def test_what_goes_on_badly_is_refused_as_ever(rest: bytes) -> None:
    heard = Heard()
    body = json.dumps({"messages": [LONG], "model": "m"}, separators=(",", ":")).encode()
    read(heard, body)
    broken = body[: body.index(b'],"model"')] + rest
    with pytest.raises(Refusal) as told:
        heard.read(CHAT, broken)
    with pytest.raises(Refusal) as wanted:
        CHAT.parse(broken)
    assert told.value.status == wanted.value.status == 400
