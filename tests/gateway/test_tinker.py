"""The Tinker engine, against a stand-in with the SDK's signatures and against its real types."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import openai
import pytest
from fake_tokens import FakeTokenizer

from agentcore_rl_toolkit.errors import MissingExtraError
from agentcore_rl_toolkit.gateway import ModelSpec
from agentcore_rl_toolkit.gateway.engines.tinker import TinkerEngine
from agentcore_rl_toolkit.gateway.text.render import Renderer

USER = [{"role": "user", "content": "hi"}]
END = 2
TOP_K = {"top_k": 3}


@dataclass
class Sequence:
    tokens: list[int]
    logprobs: list[float] | None
    stop_reason: str = "stop"


@dataclass
class Sampler:
    """``tinker.SamplingClient``, as far as it is used."""

    sequences: list[Sequence]
    error: Exception | None = None
    calls: list[Any] = field(default_factory=list)

    async def sample_async(
        self,
        prompt: Any,
        num_samples: int,
        sampling_params: Any,
        include_prompt_logprobs: bool = False,
        topk_prompt_logprobs: int = 0,
    ) -> Any:
        self.calls.append((prompt, num_samples, sampling_params))
        if self.error is not None:
            raise self.error
        return SimpleNamespace(sequences=self.sequences)


TYPES = SimpleNamespace(
    ModelInput=SimpleNamespace(from_ints=lambda tokens: tokens),
    SamplingParams=lambda **params: params,
)


def ids(text: str) -> list[int]:
    return [*map(ord, text), END]


def answer(text: str) -> Sequence:
    return Sequence(ids(text), [-0.5] * len(ids(text)))


@pytest.fixture
async def tinker(make_door: Any) -> Any:
    spec = ModelSpec(
        "policy", ("tinker:http://127.0.0.1:9#base",), tokenizer=Renderer(FakeTokenizer())
    )
    pool = spec.pool()
    (slot,) = pool.slots.values()
    assert isinstance(slot.engine, TinkerEngine)
    sampler = Sampler([answer("hello")])
    slot.engine.sdk.types = TYPES
    slot.engine.use(sampler, "7")
    door = await make_door([pool])
    door.sampler, door.engine = sampler, slot.engine
    return door


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_ids_go_in_and_ids_with_logprobs_come_out(tinker: Any, stream: bool) -> None:
    opened = await tinker.open()
    reply = await tinker.client(opened).chat.completions.create(
        model="policy",
        messages=USER,
        max_tokens=9,
        temperature=0.5,
        extra_body=TOP_K,
        stream=stream,
    )
    if stream:
        chunks = [chunk async for chunk in reply]
        text = "".join(choice.delta.content or "" for c in chunks for choice in c.choices)
    else:
        text = reply.choices[0].message.content
    assert text == "hello"
    prompt, samples, params = tinker.sampler.calls[0]
    assert FakeTokenizer().decode(prompt).endswith("assistant\n")
    assert samples == 1
    assert params == {"max_tokens": 9, "temperature": 0.5, "top_k": 3, "stop": [END]}
    (row,) = (await tinker.finish(opened))["rows"]
    assert row["token_ids"] == prompt + ids("hello")
    assert [lp for lp, m in zip(row["logprobs"], row["loss_mask"], strict=True) if m] == [-0.5] * 6
    assert row["weight_versions"] == [["7", len(prompt), len(prompt) + 6]]


async def test_several_choices_are_one_call(tinker: Any) -> None:
    tinker.sampler.sequences = [answer("a"), answer("b")]
    client = tinker.client(await tinker.open())
    reply = await client.chat.completions.create(model="policy", messages=USER, n=2, max_tokens=5)
    assert [choice.message.content for choice in reply.choices] == ["a", "b"]


async def test_missing_logprobs_are_an_error(tinker: Any) -> None:
    tinker.sampler.sequences = [Sequence(ids("a"), None)]
    with pytest.raises(openai.InternalServerError, match="never zero"):
        await tinker.client(await tinker.open()).chat.completions.create(
            model="policy", messages=USER, max_tokens=5
        )


async def test_a_failure_of_the_sdk_is_told(tinker: Any) -> None:
    tinker.sampler.error = RuntimeError("no capacity")
    with pytest.raises(openai.InternalServerError, match="no capacity"):
        await tinker.client(await tinker.open()).chat.completions.create(
            model="policy", messages=USER, max_tokens=5
        )


async def test_what_tinker_cannot_do_is_refused(tinker: Any) -> None:
    client = tinker.client(await tinker.open())
    for extra in ({"stop": "x"}, {"presence_penalty": 1.0}, {"extra_body": {"min_p": 0.1}}):
        with pytest.raises(openai.BadRequestError, match="cannot be honoured by a tinker engine"):
            await client.chat.completions.create(
                model="policy", messages=USER, max_tokens=5, **extra
            )
    assert tinker.sampler.calls == []


async def test_new_weights_are_another_sampler(tinker: Any) -> None:
    opened = await tinker.open()
    client = tinker.client(opened)
    await client.chat.completions.create(model="policy", messages=USER, max_tokens=5)
    tinker.engine.use(Sampler([answer("new")]), "8")
    await client.chat.completions.create(model="policy", messages=USER, max_tokens=5)
    turns = tinker.gateway.sessions.by_id(opened["session_id"]).graph.turns()
    assert [turn.versions[0][0] for turn in turns] == ["7", "8"]


@pytest.mark.skipif(
    importlib.util.find_spec("tinker") is not None, reason="the tinker extra is installed here"
)
async def test_without_the_sdk_the_extra_is_named() -> None:
    engine = TinkerEngine("http://127.0.0.1:9", model="base")
    with pytest.raises(MissingExtraError, match="'tinker' extra"):
        await engine.probe()


SCRIPT = """
import inspect, json, sys
from tinker import SamplingClient, types
call = json.loads(sys.argv[1])
prompt = types.ModelInput.from_ints(call["prompt"])
params = types.SamplingParams(**call["sampling_params"])
inspect.signature(SamplingClient.sample_async).bind(
    None, prompt=prompt, num_samples=call["num_samples"], sampling_params=params)
import numpy as np
one = types.SampledSequence(stop_reason="stop", tokens_np=np.array([1, 2], np.int32),
                            logprobs_np=np.array([-0.5, -0.25], np.float32))
answer = types.SampleResponse(sequences=[one])
print(json.dumps({"prompt": prompt.to_ints(), "stop": list(params.stop), "top_k": params.top_k,
                  "answer": [[list(s.tokens), list(s.logprobs), str(s.stop_reason)]
                             for s in answer.sequences]}))
"""


async def test_the_sdks_own_types_take_what_is_sent(tinker: Any) -> None:
    home = Path(__file__).resolve().parents[1] / "backends" / "environment.py"
    spec = importlib.util.spec_from_file_location("backend_environment", home)
    assert spec is not None
    assert spec.loader is not None
    environment: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(environment)
    python = environment.python_of("tinker")
    if python is None:
        pytest.skip("the SDK is not there: python tests/backends/environment.py tinker")
    client = tinker.client(await tinker.open())
    await client.chat.completions.create(
        model="policy", messages=USER, max_tokens=5, extra_body=TOP_K
    )
    prompt, samples, params = tinker.sampler.calls[0]
    call = {"prompt": prompt, "num_samples": samples, "sampling_params": params}
    process = await asyncio.create_subprocess_exec(
        str(python), "-c", SCRIPT, json.dumps(call), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    seen = json.loads(out)
    assert (seen["prompt"], seen["stop"], seen["top_k"]) == (prompt, [END], 3)
    assert seen["answer"] == [[[1, 2], [-0.5, -0.25], "stop"]]
