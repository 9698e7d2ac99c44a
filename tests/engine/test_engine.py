from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import pytest
import torch

from agentcore_rl_toolkit.engine import Engine, EngineError, Sampling, twin
from agentcore_rl_toolkit.errors import ConfigError

from .conftest import END, VOCABULARY, make_model

EXACT = 1e-5


def forward_logprobs(
    model: Any, prompt: list[int], sampled: list[int], temperature: float = 1.0
) -> list[float]:
    with torch.no_grad():
        logits = model(torch.tensor([prompt + sampled])).logits[0].float() / temperature
    rows = logits.log_softmax(-1)[len(prompt) - 1 : -1]
    return [rows[i, token].item() for i, token in enumerate(sampled)]


def prompts(count: int, longest: int = 60, seed: int = 0) -> list[list[int]]:
    rng = random.Random(seed)
    return [
        [rng.randrange(2, VOCABULARY) for _ in range(rng.randrange(1, longest))]
        for _ in range(count)
    ]


def agree(model: Any, prompt: list[int], done: Any, temperature: float = 1.0) -> None:
    expected = forward_logprobs(model, prompt, done.token_ids, temperature)
    assert len(done.entropies) == len(done.token_ids)
    assert done.logprobs == pytest.approx(expected, abs=EXACT)


async def test_logprobs_equal_a_forward_pass_whatever_shares_the_batch(model: Any) -> None:
    asked = prompts(40)
    asked += [asked[3], asked[3], asked[17]]  # a group of equal prompts is prefilled once
    with Engine(model, max_rows=16, prefill_tokens=128) as engine:
        limits = [1 + i % 30 for i in range(len(asked))]
        done = await asyncio.gather(
            *(
                engine.generate(p, Sampling(max_tokens=n))
                for p, n in zip(asked, limits, strict=True)
            )
        )
    for prompt, completion, limit in zip(asked, done, limits, strict=True):
        assert 1 <= len(completion.token_ids) <= limit
        assert (completion.finish_reason == "stop") == (completion.token_ids[-1] == END)
        assert len(completion.token_ids) == limit or completion.finish_reason == "stop"
        agree(model, prompt, completion)


async def test_long_prompts_are_prefilled_in_chunks(model: Any) -> None:
    prompt = prompts(1, 200, seed=5)[0] * 3
    prompt = prompt[:150]
    with Engine(model, prefill_tokens=16) as engine:
        done = await engine.generate(prompt, Sampling(max_tokens=8, ignore_eos=True))
    agree(model, prompt, done)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"tie_word_embeddings": False}, id="untied embeddings"),
        pytest.param(
            {
                "use_sliding_window": True,
                "sliding_window": 7,
                "layer_types": ["full_attention", "sliding_attention"],
                "max_window_layers": 1,
            },
            id="a sliding window in one layer",
        ),
    ],
)
async def test_other_models_are_exact_too(changes: dict[str, Any]) -> None:
    model = make_model(3, **changes)
    with Engine(model) as engine:
        for prompt in prompts(3, seed=2):
            done = await engine.generate(prompt, Sampling(max_tokens=20, ignore_eos=True))
            agree(model, prompt, done)


async def test_temperature_is_in_the_logprobs(model: Any) -> None:
    prompt = prompts(1)[0]
    with Engine(model) as engine:
        hot, cold = await asyncio.gather(
            engine.generate(prompt, Sampling(temperature=1.7, max_tokens=12, ignore_eos=True)),
            engine.generate(prompt, Sampling(temperature=0.6, max_tokens=12, ignore_eos=True)),
        )
    agree(model, prompt, hot, 1.7)
    agree(model, prompt, cold, 0.6)


async def test_greedy_takes_the_most_likely_id(model: Any) -> None:
    prompt = prompts(1)[0]
    with Engine(model) as engine:
        done = await engine.generate(
            prompt, Sampling(temperature=0, max_tokens=10, ignore_eos=True)
        )
    with torch.no_grad():
        rows = model(torch.tensor([prompt + done.token_ids])).logits[0, len(prompt) - 1 : -1]
    assert done.token_ids == rows.argmax(-1).tolist()
    agree(model, prompt, done)


async def test_a_seed_gives_the_same_ids_whatever_else_runs(model: Any) -> None:
    prompt, sampling = prompts(1)[0], Sampling(seed=7, max_tokens=20, ignore_eos=True)
    with Engine(model, seed=1) as engine:
        alone = await engine.generate(prompt, sampling)
        others = [engine.generate(p, Sampling(max_tokens=9)) for p in prompts(10, seed=4)]
        crowded, *_ = await asyncio.gather(engine.generate(prompt, sampling), *others)
        again = await engine.generate(prompt, Sampling(seed=8, max_tokens=20, ignore_eos=True))
    assert alone.token_ids == crowded.token_ids
    assert alone.token_ids != again.token_ids


async def test_ids_are_drawn_from_the_distribution_that_is_reported(model: Any) -> None:
    prompt, n = prompts(1)[0], 1500
    with Engine(model, max_rows=64) as engine:
        done = await asyncio.gather(
            *(engine.generate(prompt, Sampling(max_tokens=1)) for _ in range(n))
        )
    with torch.no_grad():
        expected = model(torch.tensor([prompt])).logits[0, -1].softmax(-1)
    seen = Counter(c.token_ids[0] for c in done)
    distance = sum(abs(seen[i] / n - float(p)) for i, p in enumerate(expected)) / 2
    assert distance < 0.12


async def test_top_p_and_top_k_leave_only_the_likely_ids(model: Any) -> None:
    prompt = prompts(1)[0]
    with torch.no_grad():
        probabilities = model(torch.tensor([prompt])).logits[0, -1].softmax(-1)
    order = probabilities.argsort(descending=True).tolist()
    mass, nucleus = 0.0, []
    for token in order:
        nucleus.append(token)
        mass += float(probabilities[token])
        if mass >= 0.5:
            break
    with Engine(model) as engine:
        for sampling, allowed in (
            (Sampling(top_p=0.5, max_tokens=1), nucleus),
            (Sampling(top_k=3, max_tokens=1), order[:3]),
        ):
            done = await asyncio.gather(*(engine.generate(prompt, sampling) for _ in range(200)))
            total = sum(float(probabilities[t]) for t in allowed)
            assert {c.token_ids[0] for c in done} == set(allowed)
            for c in done:
                expected = probabilities[c.token_ids[0]] / total
                assert c.logprobs[0] == pytest.approx(float(expected.log()), abs=EXACT)
            left = (probabilities[allowed] / total).double()
            spread = float(-(left * left.log()).sum())
            assert done[0].entropies == pytest.approx([spread], abs=EXACT)


async def test_stop_ids_of_the_request_end_it_and_are_kept(model: Any) -> None:
    every = tuple(range(VOCABULARY))
    with Engine(model) as engine:
        done = await engine.generate([5, 6], Sampling(stop_token_ids=every, ignore_eos=True))
    assert done.finish_reason == "stop"
    assert done.token_ids == [done.stop_id]


async def test_alternatives_are_the_most_likely_ids(model: Any) -> None:
    prompt = prompts(1)[0]
    with Engine(model) as engine:
        done = await engine.generate(prompt, Sampling(logprobs=4, max_tokens=2, ignore_eos=True))
    with torch.no_grad():
        row = model(torch.tensor([prompt])).logits[0, -1].log_softmax(-1)
    assert done.top_logprobs is not None
    assert [t for t, _ in done.top_logprobs[0]] == row.topk(4).indices.tolist()
    assert [p for _, p in done.top_logprobs[0]] == pytest.approx(
        row.topk(4).values.tolist(), abs=EXACT
    )


async def test_pieces_add_up_to_the_completion(model: Any) -> None:
    prompt, sampling = prompts(1)[0], Sampling(seed=3, max_tokens=25, ignore_eos=True)
    with Engine(model) as engine:
        whole = await engine.generate(prompt, sampling)
        pieces = [piece async for piece in engine.stream(prompt, sampling)]
    assert [t for p in pieces for t in p.token_ids] == whole.token_ids
    assert [x for p in pieces for x in p.logprobs] == pytest.approx(whole.logprobs, abs=EXACT)
    assert len(pieces) > 1
    assert [p.finish_reason for p in pieces[:-1]] == [None] * (len(pieces) - 1)
    assert pieces[-1].finish_reason == "length"


async def test_abort_ends_a_request_with_what_it_has(model: Any) -> None:
    with Engine(model, max_tokens=100_000, stop_token_ids=()) as engine:
        call = asyncio.create_task(engine.generate([3], request_id="endless"))
        while not engine.counts.sampled_tokens:
            await asyncio.sleep(0.001)
        engine.abort(["endless", "unknown"])
        done = await call
    assert done.finish_reason == "abort"
    assert len(done.token_ids) == len(done.logprobs) > 0


async def test_a_cancelled_call_frees_its_row(model: Any) -> None:
    with Engine(model, max_tokens=100_000, stop_token_ids=()) as engine:
        call = asyncio.create_task(engine.generate([3]))
        while not engine.load()["running"]:
            await asyncio.sleep(0.001)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        while engine.load()["running"]:
            await asyncio.sleep(0.001)
        assert engine.counts.aborted == 1


async def test_weights_that_change_in_mid_answer_are_seen_at_once_and_named() -> None:
    trained = make_model(1)
    prompt = prompts(1)[0]
    before = make_model(1)
    with Engine(twin(trained), version="7", max_tokens=200, stop_token_ids=()) as engine:
        call = asyncio.create_task(engine.generate(prompt))
        while engine.counts.sampled_tokens < 5:
            await asyncio.sleep(0.001)
        with engine.updating("8"), torch.no_grad():
            for parameter in trained.parameters():
                parameter.add_(0.05 * torch.randn_like(parameter))
        done = await call
        assert engine.version == "8"
    (first, a, b), (second, c, d) = done.versions
    assert (first, a, second, d) == ("7", 0, "8", len(done.token_ids))
    assert b == c
    old = forward_logprobs(before, prompt, done.token_ids)
    new = forward_logprobs(trained, prompt, done.token_ids)
    assert done.logprobs[:b] == pytest.approx(old[:b], abs=EXACT)
    assert done.logprobs[b:] == pytest.approx(new[b:], abs=EXACT)
    assert old[b:] != pytest.approx(new[b:], abs=0.01)


async def test_the_next_turn_copies_what_it_shares_and_stays_exact(model: Any) -> None:
    sampling = Sampling(max_tokens=10, ignore_eos=True)
    with Engine(model) as engine:
        conversations = prompts(6, 40, seed=8)
        for turn in range(4):
            done = await asyncio.gather(*(engine.generate(c, sampling) for c in conversations))
            for i, completion in enumerate(done):
                agree(model, conversations[i], completion)
                conversations[i] = conversations[i] + completion.token_ids + [5 + turn] * 4
        asked = engine.counts.prompt_tokens
        assert engine.reused_tokens > asked / 2


async def test_a_prefix_of_older_weights_is_never_reused() -> None:
    trained = make_model(1)
    prompt = prompts(1, 60, seed=9)[0] + [7] * 20
    with Engine(twin(trained), version="1") as engine:
        await engine.generate(prompt, Sampling(max_tokens=8, ignore_eos=True))
        with engine.updating("2"), torch.no_grad():
            for parameter in trained.parameters():
                parameter.add_(0.05 * torch.randn_like(parameter))
        done = await engine.generate(prompt, Sampling(max_tokens=8, ignore_eos=True))
        assert engine.reused_tokens == 0
        agree(trained, prompt, done)
        await engine.generate(prompt, Sampling(max_tokens=1))
        assert engine.reused_tokens > 0


@pytest.mark.parametrize("resting", [0, 1, 3])
async def test_few_or_no_resting_rows_change_nothing_but_speed(model: Any, resting: int) -> None:
    rng = random.Random(resting)
    with Engine(model, max_rows=4, resting_rows=resting) as engine:

        async def talk(prompt: list[int]) -> None:
            ids = prompt
            for _ in range(4):
                done = await engine.generate(
                    ids, Sampling(max_tokens=rng.randrange(1, 12), ignore_eos=True)
                )
                agree(model, ids, done)
                ids = ids + done.token_ids + [3, 4]

        await asyncio.gather(*(talk(prompt) for prompt in prompts(12, 30, seed=6)))


async def test_pause_wait_lets_running_requests_end_and_holds_new_ones(model: Any) -> None:
    with Engine(model, stop_token_ids=()) as engine:
        running = asyncio.create_task(engine.generate([3], Sampling(max_tokens=60)))
        while not engine.load()["running"]:
            await asyncio.sleep(0.001)
        await asyncio.to_thread(engine.pause, "wait")
        assert len((await running).token_ids) == 60
        held = asyncio.create_task(engine.generate([3], Sampling(max_tokens=2)))
        await asyncio.sleep(0.05)
        assert not held.done()
        assert engine.load()["waiting"] == 1
        engine.resume()
        assert (await held).finish_reason == "length"


async def test_pause_abort_ends_running_requests(model: Any) -> None:
    with Engine(model, max_tokens=100_000, stop_token_ids=()) as engine:
        call = asyncio.create_task(engine.generate([3]))
        while not engine.load()["running"]:
            await asyncio.sleep(0.001)
        await asyncio.to_thread(engine.pause, "abort")
        assert (await call).finish_reason == "abort"


async def test_a_failing_model_fails_its_requests_and_not_the_engine(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Engine(twin(model)) as engine:
        with monkeypatch.context() as patch:
            patch.setattr(engine.model, "forward", lambda **_: 1 / 0)
            with pytest.raises(EngineError, match="ZeroDivisionError"):
                await engine.generate([3])
        assert engine.healthy
        assert (await engine.generate([3], Sampling(max_tokens=1))).token_ids
    with pytest.raises(EngineError, match="not running"):
        await engine.generate([3])


async def test_closing_fails_what_still_runs(model: Any) -> None:
    with Engine(model, max_tokens=100_000, stop_token_ids=()) as engine:
        call = asyncio.create_task(engine.generate([3]))
        while not engine.load()["running"]:
            await asyncio.sleep(0.001)
    with pytest.raises(EngineError, match="closed"):
        await call


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        pytest.param([], "non-empty", id="no ids"),
        pytest.param([VOCABULARY], "tokenizer", id="an id of another tokenizer"),
        pytest.param([-1], "tokenizer", id="a negative id"),
        pytest.param([2] * 256, "shorten", id="a prompt that fills the context"),
    ],
)
async def test_prompts_that_cannot_be_served_are_refused(
    model: Any, ids: list[int], message: str
) -> None:
    with Engine(model) as engine, pytest.raises(ConfigError, match=message):
        await engine.generate(ids)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        pytest.param({"temperature": -1}, "temperature", id="negative temperature"),
        pytest.param({"temperature": "hot"}, "number", id="temperature as text"),
        pytest.param({"top_p": 0}, "top_p", id="empty nucleus"),
        pytest.param({"stop": ["\n"]}, "stop", id="stop strings"),
        pytest.param({"repetition_penalty": 1.1}, "not supported", id="a penalty"),
        pytest.param({"temprature": 1}, "unknown", id="a misspelt name"),
        pytest.param({"max_tokens": True}, "integer", id="a boolean as number"),
    ],
)
def test_sampling_that_would_be_ignored_is_refused(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Sampling.parse(params)


def test_neutral_and_null_sampling_is_accepted() -> None:
    given = {"temperature": None, "n": 1, "top_k": -1, "repetition_penalty": 1.0, "stop": []}
    assert Sampling.parse({**given, "skip_special_tokens": False}) == Sampling()
