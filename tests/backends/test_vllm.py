"""A real vLLM behind the gateway: what is captured is what a plain forward pass gives."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest
from openai import AsyncOpenAI

from agentcore_rl_toolkit.gateway import Gateway, GatewaySettings, ModelSpec
from agentcore_rl_toolkit.gateway.session import OpenSession

from .conftest import beside

pytestmark = [pytest.mark.backends, pytest.mark.timeout(600)]

TOLERANCE = 1e-4
ASK: dict[str, Any] = {"model": "policy", "max_tokens": 24, "temperature": 1.0}
HELLO = [{"role": "user", "content": "say what the answer is"}]
TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
    },
}
CALL = r'<tool_call>\n\{"name": "add", "arguments": \{"a": [1-9]\}\}\n</tool_call>'


environment, tiny_model = beside("environment"), beside("tiny_model")
vllm_server = beside("vllm_server")


class Engine:
    """A running vLLM and the two checkpoints that it can serve."""

    def __init__(self, url: str, folders: list[Path], models: list[Any]) -> None:
        self.url, self.folders, self.models = url, folders, models
        self.now = 0

    def post(self, path: str, body: dict[str, Any]) -> Any:
        return vllm_server.post(self.url + path, body)

    def load(self, number: int) -> None:
        kwargs = {"weights_path": str(self.folders[number])}
        self.post("/collective_rpc", {"method": "reload_weights", "kwargs": kwargs})
        self.now = number


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    python = environment.python_of("vllm")
    if python is None:
        pytest.skip("no vLLM here: python tests/backends/environment.py vllm")
    base = tmp_path_factory.mktemp("vllm")
    folders = [base / "first", base / "second"]
    models = [tiny_model.save(folder, seed) for seed, folder in enumerate(folders)]
    with vllm_server.serving(python, folders[0], base / "log") as url:
        yield Engine(url, folders, models)


class Door:
    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway

    @contextlib.asynccontextmanager
    async def session(self) -> AsyncIterator[tuple[AsyncOpenAI, str]]:
        opened = await self.gateway.open_session(OpenSession())
        async with AsyncOpenAI(
            base_url=opened.base_url, api_key="EMPTY", max_retries=0, timeout=120
        ) as client:
            yield client, opened.session_id

    async def rows(self, session_id: str) -> list[Any]:
        return (await self.gateway.finish_session(session_id)).rows

    async def weights(self, **change: Any) -> None:
        headers = {"authorization": f"Bearer {self.gateway.settings.admin_token}"}
        async with aiohttp.ClientSession() as http:
            url = f"{self.gateway.url}/admin/weights"
            async with http.post(url, json=change, headers=headers) as reply:
                assert reply.status == 200, await reply.text()


@pytest.fixture(params=["vllm", "vllm-generate"])
async def door(
    request: pytest.FixtureRequest, engine: Engine, tmp_path: Path
) -> AsyncIterator[Door]:
    tokenizer = str(engine.folders[0]) if request.param == "vllm-generate" else None
    spec = ModelSpec("policy", (f"{request.param}:{engine.url}#tiny",), tokenizer=tokenizer)
    async with Gateway(
        [spec], GatewaySettings(run_dir=tmp_path, fsync=False, probe=True)
    ) as gateway:
        yield Door(gateway)


def assert_exact(row: Any, model: Any) -> None:
    """Every trained position has the log-probability that the model itself gives."""
    expected = np.array([0.0, *tiny_model.logprobs(model, row.token_ids.tolist())])
    mask = row.loss_mask.astype(bool)
    assert mask.sum() > 0
    assert np.abs(row.logprobs[mask] - expected[mask]).max() < TOLERANCE


async def say(client: AsyncOpenAI, messages: list[Any], *, stream: bool) -> str:
    if not stream:
        reply = await client.chat.completions.create(messages=messages, **ASK)
        return reply.choices[0].message.content or ""
    parts = [
        chunk.choices[0].delta.content or ""
        async for chunk in await client.chat.completions.create(
            messages=messages, stream=True, **ASK
        )
        if chunk.choices
    ]
    return "".join(parts)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_captured_logprobs_are_those_of_a_forward_pass(
    door: Door, engine: Engine, stream: bool
) -> None:
    async with door.session() as (client, session_id):
        messages: list[Any] = list(HELLO)
        for _ in range(2):
            said = await say(client, messages, stream=stream)
            messages += [{"role": "assistant", "content": said}]
            messages += [{"role": "user", "content": "and now the number"}]
        rows = await door.rows(session_id)
    assert sum(len(row.turns) for row in rows) == 2
    for row in rows:
        assert_exact(row, engine.models[engine.now])


async def test_ids_in_ids_out_keeps_a_conversation_in_one_row(door: Door, engine: Engine) -> None:
    """Random text does not tokenise to itself: only ids that were kept make one row of it."""
    kind = next(iter(door.gateway.models.pools["policy"].slots.values())).engine.kind
    async with door.session() as (client, session_id):
        messages: list[Any] = list(HELLO)
        for _ in range(3):
            said = await say(client, messages, stream=False)
            messages += [{"role": "assistant", "content": said}, {"role": "user", "content": "a"}]
        finished = await door.gateway.finish_session(session_id)
    if kind == "vllm-generate":
        assert len(finished.rows) == 1
        assert finished.status["drift"]["clean"] == 2
    assert finished.count.trained_turns == 3


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_tool_calls_reach_the_client_and_the_row(
    door: Door, engine: Engine, stream: bool
) -> None:
    extra = {"structured_outputs": {"regex": CALL}}
    ask = ASK | {"max_tokens": 80, "tools": [TOOL], "extra_body": extra, "messages": HELLO}
    async with door.session() as (client, session_id):
        if stream:
            chunks = [c async for c in await client.chat.completions.create(stream=True, **ask)]
            deltas = [c.choices[0].delta.tool_calls or [] for c in chunks if c.choices]
            calls = [call.function for delta in deltas for call in delta]
            name = next(call.name for call in calls if call.name)
            arguments = "".join(call.arguments or "" for call in calls)
        else:
            reply = await client.chat.completions.create(**ask)
            (call,) = reply.choices[0].message.tool_calls or []
            name, arguments = call.function.name, call.function.arguments
        (row,) = await door.rows(session_id)
    assert name == "add"
    assert 1 <= json.loads(arguments)["a"] <= 9
    tokenizer = tiny_model.make_tokenizer()
    sampled = row.token_ids[row.loss_mask.astype(bool)]
    assert "<tool_call>" in tokenizer.decode(sampled.tolist())


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_versions_and_logprobs_follow_a_weight_reload(
    door: Door, engine: Engine, stream: bool
) -> None:
    for number in (1, 0):
        await door.weights(action="pause", mode="wait", engines=True)
        engine.load(number)
        await door.weights(action="resume", version=f"step-{number}", engines=True)
        async with door.session() as (client, session_id):
            await say(client, HELLO, stream=stream)
            (row,) = await door.rows(session_id)
        assert_exact(row, engine.models[number])
        (span,) = row.weight_versions
        assert span == (f"step-{number}", row.prompt_length, row.n_tokens)


async def test_a_probe_says_what_the_engine_gives(door: Door) -> None:
    slot = next(iter(door.gateway.models.pools["policy"].slots.values()))
    seen = slot.engine.capabilities
    assert seen.models == ["tiny"]
    assert seen.problem is None
    assert seen.logprobs
    assert seen.token_ids
