from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from agentcore_rl_toolkit.engine import Engine, serve, serving

from .conftest import make_model


@pytest.fixture
async def http(model: Any) -> AsyncIterator[tuple[aiohttp.ClientSession, Engine]]:
    with Engine(model, version="v3") as engine:
        async with serving(engine, name="tiny") as url, aiohttp.ClientSession(url) as client:
            yield client, engine


async def test_generate_answers_in_vllms_shape(http: Any) -> None:
    client, _ = http
    body = {
        "model": "tiny",
        "token_ids": [4, 5, 6],
        "sampling_params": {"max_tokens": 4, "logprobs": 1, "ignore_eos": True, "n": 2},
        "return_token_ids": True,
        "request_id": "mine",
    }
    async with client.post("/inference/v1/generate", json=body) as response:
        answer = await response.json()
    assert response.status == 200
    assert answer["request_id"] == "mine"
    assert answer["prompt_token_ids"] == [4, 5, 6]
    assert answer["usage"] == {"prompt_tokens": 3, "completion_tokens": 8, "total_tokens": 11}
    for index, choice in enumerate(answer["choices"]):
        assert choice["index"] == index
        assert choice["finish_reason"] == "length"
        assert choice["weight_versions"] == [{"version": "v3", "start": 0, "end": 4}]
        content = choice["logprobs"]["content"]
        assert [c["token_id"] for c in content] == choice["token_ids"]
        assert all(c["logprob"] <= 0 and len(c["top_logprobs"]) == 1 for c in content)


async def test_stream_sends_deltas_and_ends_with_done(http: Any) -> None:
    client, _ = http
    params = {"max_tokens": 6, "logprobs": 0, "ignore_eos": True, "seed": 5}
    body: dict[str, Any] = {"token_ids": [4, 5, 6], "sampling_params": params}
    async with client.post("/inference/v1/generate", json=body) as response:
        whole = (await response.json())["choices"][0]
    body |= {"stream": True, "stream_options": {"include_usage": True}}
    async with client.post("/inference/v1/generate", json=body) as response:
        assert response.content_type == "text/event-stream"
        events = (await response.read()).split(b"\n\n")
    assert events[-2:] == [b"data: [DONE]", b""]
    chunks = [json.loads(event.removeprefix(b"data: ")) for event in events[:-2]]
    assert chunks.pop()["usage"]["completion_tokens"] == 6
    choices = [chunk["choices"][0] for chunk in chunks]
    assert [t for c in choices for t in c["token_ids"]] == whole["token_ids"]
    assert sum(len(c["logprobs"]["content"]) for c in choices) == 6
    assert [c["finish_reason"] for c in choices][-2:] == [None, "length"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param("nonsense", "not understood", id="no JSON"),
        pytest.param({"sampling_params": {}}, "token_ids", id="no ids"),
        pytest.param({"token_ids": [99999]}, "tokenizer", id="foreign ids"),
        pytest.param({"token_ids": [99999], "stream": True}, "tokenizer", id="foreign, streamed"),
        pytest.param({"token_ids": [4], "model": "other"}, "'tiny'", id="another model"),
        pytest.param(
            {"token_ids": [4], "sampling_params": {"min_p": 0.1}}, "min_p", id="unsupported"
        ),
    ],
)
async def test_bad_requests_get_a_400_that_says_why(http: Any, body: Any, message: str) -> None:
    client, _ = http
    data = body if isinstance(body, str) else json.dumps(body)
    async with client.post("/inference/v1/generate", data=data) as response:
        assert response.status == 400
        assert message in (await response.json())["error"]["message"]


async def test_a_client_that_disconnects_aborts_its_request(model: Any) -> None:
    with Engine(model, max_tokens=100_000, stop_token_ids=()) as engine:
        async with serving(engine) as url, aiohttp.ClientSession(url) as client:
            for stream in (False, True):
                call = asyncio.create_task(_post(client, {"token_ids": [3], "stream": stream}))
                while not engine.load()["running"]:
                    await asyncio.sleep(0.001)
                call.cancel()
                while engine.load()["running"]:
                    await asyncio.sleep(0.001)
    assert engine.counts.aborted == 2


async def _post(client: aiohttp.ClientSession, body: dict[str, Any]) -> bytes:
    async with client.post("/inference/v1/generate", json=body) as response:
        return await response.read()


async def test_state_can_be_read_and_changed(http: Any) -> None:
    client, engine = http

    async def get(path: str) -> Any:
        async with client.get(path) as response:
            assert response.status == 200
            return await response.json()

    assert (await get("/health"))["status"] == "ok"
    assert (await get("/v1/models"))["data"][0]["id"] == "tiny"
    assert (await get("/load"))["server_load"] == 0
    await _ok(client, "/pause?mode=keep")
    assert (await get("/is_paused"))["is_paused"]
    await _ok(client, "/update_weight_version", {"weight_version": "v4"})
    await _ok(client, "/resume")
    assert (await get("/weight_info"))["weight_version"] == "v4"
    await _ok(client, "/abort_requests", {})
    async with client.get("/metrics") as response:
        assert "art_engine_requests_total 0" in await response.text()
    async with client.post("/pause?mode=later") as response:
        assert response.status == 400
    assert not engine.paused


async def _ok(client: aiohttp.ClientSession, path: str, body: Any = None) -> None:
    async with client.post(path, json=body) as response:
        assert response.status == 200


async def test_browsers_are_refused(http: Any) -> None:
    client, _ = http
    async with client.get("/health", headers={"Origin": "http://evil.example"}) as response:
        assert response.status == 403


async def test_a_model_folder_is_served_stand_alone(tmp_path: Path) -> None:
    make_model().save_pretrained(tmp_path)
    url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    server = asyncio.create_task(serve(tmp_path, 0, ready=url.set_result, device="cpu"))
    try:
        async with aiohttp.ClientSession(await url) as client:
            answer = json.loads(
                await _post(client, {"token_ids": [3], "sampling_params": {"max_tokens": 2}})
            )
        assert answer["choices"][0]["token_ids"]
    finally:
        server.cancel()
        with pytest.raises(asyncio.CancelledError):
            await server


async def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"config\.json"):
        await serve(tmp_path)


async def test_a_device_that_is_not_there_is_refused(tmp_path: Path) -> None:
    make_model().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="does not go onto device 'cudaa'"):
        await serve(tmp_path, device="cudaa")
