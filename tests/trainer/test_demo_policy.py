"""The shipped demo policy fits the math agent as it is now, starts imperfect, and learns."""

from __future__ import annotations

import asyncio
import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

POLICY = Path(__file__).parents[2] / "examples" / "demo_policy"
MODULES = ("calculator", "conversation", "play", "problems")


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a module of the example, which lives in no package."""
    monkeypatch.syspath_prepend(str(POLICY))
    for name in MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module


@pytest.fixture
def tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(POLICY / "model")


def test_the_policy_was_made_for_the_agent_as_it_is() -> None:
    """When this fails the agent's prompt or tool has changed: make the policy again."""
    code = "import json, capture_request as c; print(json.dumps(c.capture()))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=POLICY, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    captured = json.loads(done.stdout.splitlines()[-1])
    kept = (POLICY / "request.json").read_text()
    assert json.dumps(captured, indent=1) + "\n" == kept, "run the scripts in examples/demo_policy"


def test_prompts_are_short_and_the_chat_template_writes_what_the_renderer_writes(
    demo: Any, tokenizer: Any
) -> None:
    conversation = demo("conversation")
    renderer = conversation.make_renderer(tokenizer)
    tools = conversation.agent_request()["tools"]
    messages = conversation.opening("Ada has 12 apples, buys 3 more and gives 4 away. How many?")
    first = renderer.render_ids(messages, tools=tools, add_generation_prompt=True)
    assert len(first) < 40
    function = {"name": "calculator", "arguments": '{"expression": "12 + 3 - 4"}'}
    call = {"id": "1", "type": "function", "function": function}
    messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
    messages.append(conversation.tool_result("11"))
    ids = renderer.render_ids(messages, tools=tools, add_generation_prompt=True)
    text = tokenizer.apply_chat_template(
        messages, tools=tools, add_generation_prompt=True, tokenize=False
    )
    assert tokenizer.decode(ids) == text
    assert ids[: len(first)] == first


def test_calls_are_parsed_and_bridged_to_the_next_turn(demo: Any, tokenizer: Any) -> None:
    conversation = demo("conversation")
    renderer = conversation.make_renderer(tokenizer)
    tools = conversation.agent_request()["tools"]
    prompt = renderer.render_ids(
        conversation.opening("Any?"), tools=tools, add_generation_prompt=True
    )
    said = f"<tool_call>{conversation.call_text('(7 + 5) / 5')}</tool_call><|im_end|>"
    sampled = tokenizer.encode(said, add_special_tokens=False)
    parsed = renderer.parse_response(sampled, tools=tools)
    assert [(c.name, c.arguments) for c in parsed.tool_calls] == [
        ("calculator", {"expression": "(7 + 5) / 5"})
    ]
    bridged = renderer.bridge_to_next_turn(
        prompt, sampled, [conversation.tool_result("2.4")], tools=tools
    )
    assert bridged.token_ids[: len(prompt) + len(sampled)] == prompt + sampled
    rest = tokenizer.decode(bridged.token_ids[len(prompt) + len(sampled) :])
    assert rest == (
        "\n<|im_start|>user\n<tool_response>\n2.4\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_any_text_encodes_and_decodes(tokenizer: Any) -> None:
    text = "Grüße, 你好! \t 3.14 <b>\r\n"
    assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


def test_problems_are_right_reproducible_and_split_by_their_numbers(demo: Any) -> None:
    problems = demo("problems").problems
    train, test = list(problems(600, 1)), list(problems(300, 1, "test"))
    assert train == list(problems(600, 1))
    assert train != list(problems(600, 2))
    assert not {p.numbers for p in train} & {p.numbers for p in test}
    assert len({p.story for p in test[:12]}) == 12
    demo("play")
    calculate = demo("calculator").calculate
    for problem in (*train, *test):
        assert calculate(problem.expression) == problem.answer >= 0


def learn(demo: Any, tokenizer: Any, steps: int) -> tuple[float, float]:
    from agentcore_rl_toolkit.engine import Engine, load_model, twin
    from agentcore_rl_toolkit.trainer import Trainer, TrainSetting

    play, problems = demo("play"), demo("problems").problems
    renderer = demo("conversation").make_renderer(tokenizer)
    setting = TrainSetting(steps=80, lr=8e-4, warmup_steps=3, minibatches=2, schedule="linear")
    trainer = Trainer(load_model(POLICY / "model", device="cpu"), setting)
    held_out, tasks = list(problems(128, 1, "test")), problems(8 * max(1, steps), 3)

    async def run() -> tuple[float, float]:
        with Engine(twin(trainer.model), max_rows=128) as engine:
            before = play.success(await play.play_groups(engine, renderer, held_out, 1, "before"))
            for step in range(steps):
                batch = [next(tasks) for _ in range(8)]
                rows = await play.play_groups(engine, renderer, batch, 8, f"step-{step}")
                await asyncio.to_thread(trainer.step, rows, changing=engine.updating)
            after = play.success(await play.play_groups(engine, renderer, held_out, 1, "after"))
        return before, after

    return asyncio.run(run())


def test_the_shipped_policy_starts_clearly_imperfect(demo: Any, tokenizer: Any) -> None:
    before, _ = learn(demo, tokenizer, 0)
    assert 0.2 < before < 0.5


@pytest.mark.slow
def test_engine_and_trainer_alone_raise_held_out_success(demo: Any, tokenizer: Any) -> None:
    before, after = learn(demo, tokenizer, 15)
    assert after > before + 0.15
