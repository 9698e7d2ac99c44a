"""Prefix killers: taken out of what the engine sees, recorded so that they can be put back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentcore_rl_toolkit.errors import ConfigError
from agentcore_rl_toolkit.gateway import GatewaySettings
from agentcore_rl_toolkit.gateway.dialects import CHAT
from agentcore_rl_toolkit.gateway.normal import DEFAULT_RULES, RULES, apply, normalise, revert

BILLING = "x-anthropic-billing-header: cc_version=2.1; cch={};\n\nYou are careful."
MARK = {"cache_control": {"type": "ephemeral"}}


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {}}, **more}


def parse(*messages: dict[str, Any], **fields: Any) -> Any:
    body = {"model": "policy", "messages": list(messages), **fields}
    return CHAT.parse(json.dumps(body).encode())


def system(text: Any) -> dict[str, Any]:
    return {"role": "system", "content": text}


USER = {"role": "user", "content": "hello at 2026-11-15 09:00:00"}
CASES = {
    "a billing line as text": ("billing", [system(BILLING.format("a1")), USER], {}),
    "a billing line as a part of its own": (
        "billing",
        [system([{"type": "text", "text": BILLING.format(1)[:48]}, {"type": "text", "text": "x"}])],
        {},
    ),
    "cache marks in messages and tools": (
        "cache_marks",
        [USER, {"role": "user", "content": [{"type": "text", "text": "x", **MARK}]}],
        {"tools": [tool("b", **MARK), tool("a")]},
    ),
    "a time of day": ("clock", [system("It is 2026-11-15T09:17:33.120Z now."), USER], {}),
    "tools in another order": ("tool_order", [USER], {"tools": [tool("b"), tool("a")]}),
}


@pytest.mark.parametrize(("rule", "messages", "fields"), CASES.values(), ids=CASES)
def test_edits_lead_from_what_was_sent_to_what_is_seen_and_back(
    rule: str, messages: list[Any], fields: dict[str, Any]
) -> None:
    sent, ask = parse(*messages, **fields), parse(*messages, **fields)
    normalise(ask, {rule})
    assert {edit.rule for edit in ask.edits} == {rule}
    seen = apply(ask.edits, sent.messages, sent.raw("tools"))
    assert (seen.messages, seen.tools) == (ask.messages, ask.raw("tools"))
    assert json.loads(bytes(ask.fields["messages"])) == [json.loads(one) for one in ask.messages]
    assert revert(ask.edits, *seen) == (sent.messages, sent.raw("tools"))


def test_each_rule_takes_out_what_it_is_for() -> None:
    every = set(RULES)
    ask = parse(system(BILLING.format("a1")), USER)
    normalise(ask, every)
    assert json.loads(ask.messages[0])["content"] == "You are careful."
    assert json.loads(ask.messages[1]) == USER, "what the user says is left alone"
    ask = parse(system("It is 2026-11-15 09:17 UTC."), tools=[tool("b", **MARK), tool("a")])
    normalise(ask, every)
    assert json.loads(ask.messages[0])["content"] == "It is 2026-11-15."
    assert json.loads(ask.raw("tools")) == [tool("a"), tool("b")]


def test_a_request_without_prefix_killers_is_not_touched() -> None:
    ask = parse(system("plain"), USER, tools=[tool("a"), tool("b")])
    before = (list(ask.messages), ask.fields["messages"], ask.raw("tools"))
    normalise(ask, set(RULES))
    assert (ask.messages, ask.fields["messages"], ask.raw("tools")) == before
    assert ask.edits == []


def test_unknown_rules_are_refused_by_name() -> None:
    assert {"billing", "cache_marks"} == DEFAULT_RULES
    with pytest.raises(ConfigError, match="billing, cache_marks"):
        GatewaySettings(normalise=frozenset({"dates"}))


async def _converse(door: Any) -> dict[str, Any]:
    """Two turns whose system prompt begins differently each time."""
    opened = await door.open()
    messages: list[Any] = [{"role": "user", "content": "a"}]
    for number in range(2):
        history = [system(BILLING.format(number)), *messages]
        reply = await door.client(opened).chat.completions.create(model="policy", messages=history)
        messages += [{"role": "assistant", "content": reply.choices[0].message.content}]
        messages += [{"role": "user", "content": "b"}]
    return dict(await door.finish(opened))


async def test_a_changing_billing_line_no_longer_breaks_the_row(door: Any, engine: Any) -> None:
    finished = await _converse(door)
    assert len(finished["rows"]) == 1
    assert engine.requests[0]["messages"][0] == system("You are careful.")
    session = door.gateway.sessions.by_id(finished["session_id"])
    for number, turn in enumerate(session.graph.turns()):
        recorded = json.loads(turn.request)["messages"]
        assert recorded[0] == system(BILLING.format(number)), "the request is kept as received"
        seen = apply(turn.edits, [json.dumps(one).encode() for one in recorded], None)
        assert turn.edits[0].before.startswith(b"x-anthropic-billing-header")
        assert b"billing" not in seen.messages[0]


async def test_with_the_rule_off_the_engine_sees_the_request_as_sent(
    make_door: Any, engine: Any
) -> None:
    door = await make_door(normalise=frozenset())
    finished = await _converse(door)
    assert len(finished["rows"]) == 2
    assert engine.requests[0]["messages"][0] == system(BILLING.format(0))


async def test_drift_is_counted_over_all_sessions_and_alarms(make_door: Any, engine: Any) -> None:
    """An engine that tokenises the history in another way than it was sampled."""
    serve = engine._serve

    async def otherwise(request: Any, body: Any, prompt: list[int], chat: bool) -> Any:
        return await serve(request, body, [len(engine.requests), *prompt], chat)

    engine._serve = otherwise
    door = await make_door(drift_share=0.5)
    opened = await door.open()
    messages: list[Any] = [{"role": "user", "content": "q"}]
    for _ in range(6):
        client = door.client(opened)
        reply = await client.chat.completions.create(model="policy", messages=messages)
        messages += [{"role": "assistant", "content": reply.choices[0].message.content}]
        messages += [{"role": "user", "content": "more"}]
    finished = await door.finish(opened)
    assert "token-in/token-out" in finished["alarm"]
    async with door.http.get(
        door.gateway.url + "/metrics",
        headers={"authorization": f"Bearer {door.gateway.settings.admin_token}"},
    ) as reply:
        text = await reply.text()
    assert "art_gateway_drift_stitched_total 5" in text
    assert "art_gateway_sessions_alarmed 1" in text
