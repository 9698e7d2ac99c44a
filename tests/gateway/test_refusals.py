"""What the gateway does not answer with a model's reply, and how it says so."""

from __future__ import annotations

import json
from typing import Any

import fake_vllm
import openai
import pytest

USER = [{"role": "user", "content": "hi"}]
CHAT = {"model": "policy", "messages": USER}


async def post(door: Any, opened: Any, body: Any, path: str = "/chat/completions") -> Any:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with door.http.post(opened["base_url"] + path, data=data) as reply:
        return reply.status, await reply.json(), reply.headers


@pytest.mark.parametrize(
    ("body", "says"),
    [
        pytest.param(b"{", "not valid JSON", id="truncated JSON"),
        pytest.param(b"[]", "JSON object", id="not an object"),
        pytest.param(b"", "not valid JSON", id="no body"),
        pytest.param(
            b'{"model": "policy", "messages": [{"role": "user", "content": "\xff"}]}',
            "not valid JSON",
            id="not UTF-8",
        ),
        pytest.param({"model": "policy"}, "'messages' is missing", id="no messages"),
        pytest.param({**CHAT, "messages": "hi"}, "must be a list", id="messages not a list"),
        pytest.param({**CHAT, "messages": []}, "at least one object", id="messages empty"),
        pytest.param({**CHAT, "messages": ["x"]}, "at least one object", id="message not object"),
        pytest.param({**CHAT, "n": 0}, "between 1 and", id="n zero"),
        pytest.param({**CHAT, "n": "2"}, "must be an integer", id="n a string"),
        pytest.param({**CHAT, "stream": "yes"}, "true or false", id="stream a string"),
        pytest.param({**CHAT, "best_of": 4}, "not supported", id="best_of"),
        pytest.param({**CHAT, "use_beam_search": True}, "not supported", id="beam search"),
        pytest.param({**CHAT, "modalities": ["audio"]}, "not supported", id="audio"),
        pytest.param({**CHAT, "kv_transfer_params": {"a": 1}}, "not supported", id="kv transfer"),
    ],
)
async def test_bad_requests_get_a_clear_400(door: Any, engine: Any, body: Any, says: str) -> None:
    opened = await door.open()
    status, answer, headers = await post(door, opened, body)
    assert status == 400
    assert says in answer["error"]["message"]
    assert answer["error"]["type"] == "invalid_request_error"
    assert headers["x-should-retry"] == "false"
    assert engine.requests == []


async def test_nulls_are_tolerated_and_left_out(door: Any, engine: Any) -> None:
    opened = await door.open()
    nulls = {"temperature": None, "n": None, "stream": None, "stop": None, "best_of": None}
    status, _, _ = await post(door, opened, {**CHAT, **nulls, "modalities": ["text"]})
    assert status == 200
    assert not nulls.keys() & engine.requests[0].keys()


async def test_messages_of_unexpected_shapes_are_captured_by_their_ids(
    door: Any, engine: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(fake_vllm, "render", lambda messages: fake_vllm.encode("odd"))
    opened = await door.open()
    odd = [
        {"role": 5, "content": {"a": 1}, "tool_calls": "x"},
        {"role": "assistant", "content": [1, None, {"type": 3}], "tool_calls": [{"function": 4}]},
        {"role": "user", "content": "x", "tool_calls": {"a": [1]}},
    ]
    for message in odd:
        status, answer, _ = await post(door, opened, {**CHAT, "messages": [message]})
        assert status == 200, answer
    assert (await door.finish(opened))["count"]["trained_turns"] == len(odd)


async def test_unknown_model_is_named_with_those_that_are_served(door: Any) -> None:
    client = door.client(await door.open())
    with pytest.raises(openai.NotFoundError, match="served: policy"):
        await client.chat.completions.create(model="gpt-5", messages=USER)


@pytest.mark.parametrize("prompt", [[-1], [[-1]], [1 << 31]])
async def test_ids_that_no_vocabulary_has_are_a_400(door: Any, prompt: Any) -> None:
    body = {"model": "policy", "prompt": prompt}
    status, answer, _ = await post(door, await door.open(), body, "/completions")
    assert status == 400
    assert "no vocabulary" in answer["error"]["message"]


@pytest.mark.parametrize("left_out", ["logprobs", "ids", "prompt"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_missing_ids_or_logprobs_are_an_error_and_never_zeros(
    door: Any, engine: Any, left_out: str, stream: bool
) -> None:
    engine.leave_out = {left_out}
    opened = await door.open()

    async def ask() -> None:
        reply = await door.client(opened).chat.completions.create(**CHAT, stream=stream)
        if stream:
            [chunk async for chunk in reply]

    with pytest.raises(openai.APIError, match=r"log-probabilities|token ids"):
        await ask()
    finished = await door.finish(opened)
    assert finished["rows"] == []
    assert finished["failed"] == 1


async def test_engine_errors_pass_through_with_retry_after_and_make_no_turn(
    door: Any, engine: Any
) -> None:
    engine.fail = [(429, '{"error": {"message": "busy", "type": "x"}}', {"retry-after": "7"})]
    opened = await door.open()
    status, answer, headers = await post(door, opened, CHAT)
    assert (status, answer["error"]["message"]) == (429, "busy")
    assert headers["retry-after"] == "7"
    engine.fail = [(500, "<html>oops</html>", {})]
    status, answer, headers = await post(door, opened, CHAT)
    assert status == 500
    assert "oops" in answer["error"]["message"]
    assert headers["x-should-retry"] == "true"
    engine.fail = [(200, "not json", {})]
    status, answer, _ = await post(door, opened, CHAT)
    assert status == 502
    assert (await door.finish(opened))["turns"] == 0


async def test_engines_are_retried_before_the_first_byte(door: Any, engine: Any) -> None:
    engine.fail = [(503, "starting", {}), (502, "starting", {})]
    opened = await door.open()
    status, _, _ = await post(door, opened, CHAT)
    assert status == 200
    assert len(engine.requests) == 3
    assert (await door.finish(opened))["turns"] == 1


async def test_cut_stream_is_an_error_and_not_stored_like_a_complete_turn(
    door: Any, engine: Any
) -> None:
    engine.answer = lambda body, choice: "hello"
    engine.cut_after = 3
    opened = await door.open()
    stream = await door.client(opened).chat.completions.create(**CHAT, stream=True)
    with pytest.raises(openai.APIError):
        [chunk async for chunk in stream]
    assert len(engine.requests) == 1, "never retried after the first byte"
    finished = await door.finish(opened)
    assert finished["rows"] == []
    assert finished["turns"] == 1
    assert finished["count"]["left_turns"] == {"failed": 1}


async def test_session_caps_are_enforced(door: Any) -> None:
    opened = await door.open(caps={"turns": 2})
    client = door.client(opened, max_retries=2)
    for i in range(2):
        await client.chat.completions.create(
            model="policy", messages=[{"role": "user", "content": str(i)}]
        )
    with pytest.raises(openai.PermissionDeniedError, match="used its 2 turns"):
        await client.chat.completions.create(**CHAT)
    opened = await door.open(caps={"bytes": 50})
    with pytest.raises(openai.PermissionDeniedError, match="50 bytes"):
        await door.client(opened).chat.completions.create(**CHAT)
    opened = await door.open(caps={"tokens": 3})
    client = door.client(opened)
    await client.chat.completions.create(**CHAT)
    with pytest.raises(openai.PermissionDeniedError, match="3 tokens"):
        await client.chat.completions.create(**CHAT)


async def test_body_over_the_limit_is_413(make_door: Any) -> None:
    door = await make_door(max_body_bytes=2000)
    opened = await door.open()
    status, answer, _ = await post(
        door, opened, {**CHAT, "messages": [{"role": "user", "content": "x" * 3000}]}
    )
    assert status == 413
    assert "2000" in answer["error"]["message"]


async def test_sealed_session_refuses_calls_and_cannot_be_brought_back(
    door: Any, engine: Any
) -> None:
    opened = await door.open()
    client = door.client(opened)
    await client.chat.completions.create(**CHAT)
    await door.finish(opened)
    with pytest.raises(openai.ConflictError, match="finished"):
        await client.chat.completions.create(**CHAT)
    await door.admin("DELETE", f"/sessions/{opened['session_id']}")
    with pytest.raises(openai.AuthenticationError):
        await client.chat.completions.create(**CHAT)
    assert len(door.gateway.sessions) == 0


async def test_session_ids_that_break_paths_are_refused_and_finished_ids_can_be_reused(
    door: Any,
) -> None:
    for bad in ("a/v1/b", "..", "", "a b", "x" * 200):
        async with door.http.post(
            door.gateway.url + "/sessions",
            json={"session_id": bad},
            headers={"authorization": f"Bearer {door.gateway.settings.admin_token}"},
        ) as reply:
            assert (reply.status, bad) == (201 if bad == "" else 400, bad)
    opened = await door.open(session_id="same")
    with pytest.raises(AssertionError, match="exists"):
        await door.open(session_id="same")
    await door.finish(opened)
    again = await door.open(session_id="same")
    assert again["key"] != opened["key"]
    await door.client(again).chat.completions.create(**CHAT)
    assert (await door.finish(again))["turns"] == 1


async def test_sampling_of_a_session_is_a_default_unless_it_overwrites(
    door: Any, engine: Any
) -> None:
    opened = await door.open(sampling={"temperature": 0.7, "max_tokens": 5})
    client = door.client(opened)
    await client.chat.completions.create(**CHAT)
    await client.chat.completions.create(**CHAT, temperature=0.1, max_completion_tokens=9)
    assert (engine.requests[0]["temperature"], engine.requests[0]["max_tokens"]) == (0.7, 5)
    assert engine.requests[1]["temperature"] == 0.1
    assert engine.requests[1]["max_completion_tokens"] == 9
    assert "max_tokens" not in engine.requests[1]
    opened = await door.open(sampling={"temperature": 0.7, "max_tokens": 5}, overwrite=True)
    await door.client(opened).chat.completions.create(
        **CHAT, temperature=0.1, max_completion_tokens=9
    )
    assert engine.requests[2]["temperature"] == 0.7
    assert engine.requests[2]["max_tokens"] == 5
    assert "max_completion_tokens" not in engine.requests[2]


async def test_keys_never_reach_log_or_journal(door: Any, caplog: Any, tmp_path: Any) -> None:
    caplog.set_level("DEBUG")
    opened = await door.open()
    await post(door, opened, b"{")
    await door.client(opened).chat.completions.create(**CHAT)
    await door.finish(opened)
    ours = [r.getMessage() for r in caplog.records if r.name.startswith("agentcore_rl_toolkit")]
    assert not any(opened["key"] in line for line in ours)
    written = b"".join(path.read_bytes() for path in (tmp_path / "run").rglob("*.journal"))
    assert opened["key"].encode() not in written
