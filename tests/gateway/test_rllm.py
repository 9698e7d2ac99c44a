"""rllm's protocol on an open gateway."""

from __future__ import annotations

from typing import Any

import fake_vllm
import pytest

CHAT: dict[str, Any] = {"model": "policy", "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
async def rllm(make_door: Any) -> Any:
    return await make_door(open=True)


async def call(door: Any, method: str, path: str, body: Any = None) -> Any:
    async with door.http.request(method, door.gateway.url + path, json=body) as reply:
        assert reply.status < 300, await reply.text()
        return await reply.json()


async def test_session_calls_traces_and_deletion(rllm: Any, engine: Any) -> None:
    opened = await call(
        rllm, "POST", "/sessions", {"session_id": "s-1", "sampling_params": {"max_tokens": 400}}
    )
    assert opened["session_id"] == "s-1"
    await call(rllm, "POST", "/admin/weight_version", {"weight_version": 3})
    client = rllm.client({"base_url": f"{rllm.gateway.url}/sessions/s-1/v1"})
    first = await client.chat.completions.create(**CHAT, max_tokens=12)
    messages = [
        *CHAT["messages"],
        {"role": "assistant", "content": first.choices[0].message.content},
        {"role": "user", "content": "more"},
    ]
    await client.chat.completions.create(model="policy", messages=messages)
    assert engine.requests[0]["max_tokens"] == 400, "rllm's own parameters win"
    await call(rllm, "POST", "/admin/flush")
    traces = await call(rllm, "GET", "/sessions/s-1/traces")
    assert [t["messages"] for t in traces] == [CHAT["messages"], messages]
    assert traces[1]["prompt_token_ids"] == fake_vllm.render(messages)
    assert traces[1]["completion_token_ids"] == fake_vllm.encode("ok0")
    assert traces[1]["logprobs"] == pytest.approx([fake_vllm.logprob(i) for i in range(3)])
    assert traces[1]["response_message"]["content"] == "ok0"
    assert traces[1]["weight_version"] == 3
    assert await call(rllm, "POST", "/traces/query", {"session_ids": ["s-1"]}) == traces
    assert await call(rllm, "GET", f"/traces/{traces[0]['trace_id']}") == traces[0]
    deleted = await call(rllm, "POST", "/sessions/batch_delete", {"session_ids": ["s-1", "no"]})
    assert deleted == {"deleted": 1}
    assert len(rllm.gateway.sessions) == 0


async def test_workers_are_engines(rllm: Any, engine: Any) -> None:
    async with fake_vllm.FakeVLLM() as other:
        added = await call(rllm, "POST", "/admin/workers", {"url": other.url + "/v1"})
        assert added["worker_id"] == other.url.partition("//")[2]
        assert len(await call(rllm, "GET", "/admin/workers")) == 2
        await call(rllm, "DELETE", f"/admin/workers/{added['worker_id']}")
        assert len(await call(rllm, "GET", "/admin/workers")) == 1


async def test_the_protocol_is_not_served_behind_an_admin_token(door: Any) -> None:
    opened = await door.open()
    with pytest.raises(AssertionError):
        await door.admin("GET", f"/sessions/{opened['session_id']}/traces")
