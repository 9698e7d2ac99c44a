"""rllm's protocol on an open gateway."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
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
    assert deleted == {"deleted": 2}, "traces, as rllm counts"
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


async def test_sessions_are_listed_and_described_as_rllm_reads_them(rllm: Any) -> None:
    await call(rllm, "POST", "/sessions", {"session_id": "a", "metadata": {"task": 7}})
    await call(rllm, "POST", "/sessions", {"session_id": "b"})
    info = await call(rllm, "GET", "/sessions/a")
    assert (info["trace_count"], info["metadata"]) == (0, {"task": 7})
    listed = await call(rllm, "GET", "/sessions")
    assert {one["session_id"] for one in listed} == {"a", "b"}
    assert len(await call(rllm, "GET", "/sessions?limit=1")) == 1
    assert await call(rllm, "GET", f"/sessions?since={info['created_at'] + 1000}") == []


async def test_what_does_not_exist_is_empty_not_an_error(rllm: Any) -> None:
    assert await call(rllm, "GET", "/sessions/none/traces") == []
    assert await call(rllm, "DELETE", "/sessions/none") == {"deleted": 0}
    assert await call(rllm, "POST", "/traces/query", {"session_ids": ["none"]}) == []


async def test_a_session_that_a_call_has_opened_can_still_be_created(
    rllm: Any, engine: Any
) -> None:
    client = rllm.client({"base_url": f"{rllm.gateway.url}/sessions/early/v1"})
    await client.chat.completions.create(**CHAT)
    body = {"session_id": "early", "sampling_params": {"max_tokens": 7}}
    assert (await call(rllm, "POST", "/sessions", body))["url"] == "/sessions/early/v1"
    await client.chat.completions.create(**CHAT, max_tokens=100)
    assert engine.requests[-1]["max_tokens"] == 7
    assert len(await call(rllm, "GET", "/sessions/early/traces")) == 2
    assert len(await call(rllm, "GET", "/sessions/early/traces?limit=1")) == 1


async def test_health_of_workers(rllm: Any) -> None:
    health = await call(rllm, "GET", "/health/workers")
    assert (health["healthy"], health["total"]) == (1, 1)


SCRIPT = """
import json, sys
from rllm_model_gateway.client import GatewayClient
gateway, engine = sys.argv[1:3]
with GatewayClient(gateway) as client:
    if sys.argv[3] == "open":
        print(json.dumps([client.health()["status"], client.create_session("c-1", {"task": 1}),
                          client.get_session_url("c-1"), client.add_worker(engine + "/v1")]))
    else:
        assert client.flush()
        traces = client.get_session_traces("c-1")
        one = client.get_trace(traces[0].trace_id)
        workers = client.list_workers()
        client.remove_worker(sys.argv[4])
        info = client.get_session_info("c-1")
        listed = [s["session_id"] for s in client.list_sessions(limit=5)]
        print(json.dumps({
            "ids": [t.prompt_token_ids + t.completion_token_ids for t in traces],
            "logprobs": [t.logprobs for t in traces], "same": one == traces[0],
            "workers": len(workers), "count": info["trace_count"], "listed": listed,
            "deleted": client.delete_session("c-1")}))
"""


def rllm_python() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    python = Path(base) / "agentcore-rl-toolkit" / "peers" / "rllm" / "bin" / "python"
    if not python.exists():
        pytest.skip("rllm-model-gateway is not installed: run benchmarks/gateway.py once")
    return python


async def run_client(python: Path, *arguments: str) -> Any:
    process = await asyncio.create_subprocess_exec(
        str(python), "-c", SCRIPT, *arguments, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    return json.loads(out)


async def test_rllms_own_client_works(rllm: Any, engine: Any) -> None:
    python, url = rllm_python(), rllm.gateway.url
    async with fake_vllm.FakeVLLM() as other:
        status, session_id, base_url, worker = await run_client(python, url, other.url, "open")
        assert (status, session_id) == ("ok", "c-1")
        client = rllm.client({"base_url": base_url})
        await client.chat.completions.create(**CHAT)
        seen = await run_client(python, url, other.url, "read", worker)
    assert seen["ids"] == [fake_vllm.render(CHAT["messages"]) + fake_vllm.encode("ok0")]
    assert len(seen["logprobs"][0]) == 3
    assert seen["same"]
    assert (seen["workers"], seen["count"], seen["deleted"]) == (2, 1, 1)
    assert seen["listed"] == ["c-1"]
