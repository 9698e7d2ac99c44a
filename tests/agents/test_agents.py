"""The example and test agents, each against the scripted model."""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import json
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import aiohttp
import pytest

HERE = Path(__file__).parent
EXAMPLE = HERE.parent.parent / "examples" / "strands_math_agent"
SIBLINGS = ("calculator", "reward", "make_data")
AGENTS = {
    "strands": (EXAMPLE, "invoke"),
    "openai": (HERE / "openai_agent", "solve"),
    "langgraph": (HERE / "langgraph_agent", "solve"),
}


def load(folder: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"{folder.name}_{name}", folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def example_on_path(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    yield
    for name in SIBLINGS:
        sys.modules.pop(name, None)


@pytest.fixture
async def model() -> AsyncIterator[Any]:
    running = await load(EXAMPLE, "scripted_model").start(error_rate=0.0, seed=7)
    yield running
    await running.close()


async def call(handler: Any, payload: dict[str, Any]) -> Any:
    """As the app does it: in a thread, so that the model's loop stays free."""
    if inspect.iscoroutinefunction(handler):
        return await handler(payload)
    box: list[Any] = []
    thread = threading.Thread(target=lambda: box.append(handler(payload)))
    thread.start()
    while thread.is_alive():
        await asyncio.sleep(0.005)
    assert box, "the handler raised"
    return box[0]


@pytest.mark.parametrize("name", AGENTS)
async def test_an_agent_solves_a_problem_with_one_tool_call(name: str, model: Any) -> None:
    folder, function = AGENTS[name]
    handler = getattr(load(folder, "rl_app"), function)
    [row] = load(EXAMPLE, "make_data").problems(1, seed=3)
    block = {
        "base_url": model.url,
        "model_id": "scripted",
        "sampling_params": {"temperature": 1.0},
    }
    result = await call(handler, {**row, "_rollout": block})
    assert result["rewards"] == 1.0
    assert result["response"].strip() == f"#### {row['answer']}"
    assert model.script.requests == 2


@pytest.mark.parametrize("name", AGENTS)
async def test_a_model_that_errs_gets_no_reward(name: str, model: Any) -> None:
    model.script.error_rate = 1.0
    folder, function = AGENTS[name]
    handler = getattr(load(folder, "rl_app"), function)
    block = {"base_url": model.url, "model_id": "scripted"}
    result = await call(handler, {"prompt": "What is 2 + 3?", "answer": "5", "_rollout": block})
    assert result["rewards"] == 0.0


async def test_the_production_agent_answers_with_the_model_of_its_environment(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODEL_URL", model.url)
    monkeypatch.setenv("MODEL_KEY", "EMPTY")
    monkeypatch.setenv("MODEL_ID", "scripted")
    handler = load(EXAMPLE, "basic_app").invoke
    assert (await call(handler, {"prompt": "What is 6 * 7?"}))["response"].strip() == "#### 42"


async def test_the_scripted_model_errs_at_its_rate_and_the_same_way_again() -> None:
    module = load(EXAMPLE, "scripted_model")

    def answers() -> list[str]:
        script = module.Script(error_rate=0.3, seed=5)
        turn = [{"role": "user", "content": "2 + 3"}, {"role": "tool", "content": "5"}]
        return [script.reply({"messages": turn})["content"] for _ in range(500)]

    first = answers()
    assert first == answers()
    assert 100 < sum(answer != "#### 5" for answer in first) < 200


async def test_the_scripted_model_streams_what_it_answers_whole(model: Any) -> None:
    function = {"name": "calc", "parameters": {"type": "object"}}
    request = {
        "messages": [{"role": "user", "content": "What is (12 + 3) * -4?"}],
        "tools": [{"type": "function", "function": function}],
    }
    async with aiohttp.ClientSession() as http:
        url = f"{model.url}/chat/completions"
        async with http.post(url, json=request) as reply:
            [whole] = (await reply.json())["choices"]
        options = {"stream": True, "stream_options": {"include_usage": True}}
        async with http.post(url, json={**request, **options}) as reply:
            lines = [line for line in (await reply.text()).split("\n\n") if line]
        async with http.post(url, data=b"no json") as reply:
            assert reply.status == 400
    assert json.loads(whole["message"]["tool_calls"][0]["function"]["arguments"]) == {
        "expression": "(12 + 3) * -4"
    }
    assert lines.pop() == "data: [DONE]"
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines]
    assert chunks[-1]["usage"]["total_tokens"] == 15
    deltas = [c["choices"][0]["delta"] for c in chunks if c["choices"]]
    calls = [d["tool_calls"][0]["function"] for d in deltas if "tool_calls" in d]
    assert "".join(c["arguments"] for c in calls) == json.dumps({"expression": "(12 + 3) * -4"})
    assert chunks[-2]["choices"][0]["finish_reason"] == whole["finish_reason"] == "tool_calls"


def test_the_data_is_the_same_for_the_same_seed_and_its_answers_are_right() -> None:
    problems = load(EXAMPLE, "make_data").problems
    rows = list(problems(50, seed=1))
    assert rows == list(problems(50, seed=1))
    assert rows != list(problems(50, seed=2))
    for row in rows:
        expression = row["prompt"].removeprefix("What is ").removesuffix("?")
        assert set(expression) <= set("0123456789+-* ()")
        assert str(eval(expression)) == row["answer"]


@pytest.mark.parametrize(
    "expression",
    ["__import__('os')", "2 ** 9", "1/0", "9" * 300, "a", "", "(" * 100 + "1", "1e999", "True"],
)
def test_the_calculator_refuses_what_is_not_arithmetic(expression: str) -> None:
    assert load(EXAMPLE, "calculator").calculator(expression).startswith("error: ")


def test_the_calculator_computes() -> None:
    calculator = load(EXAMPLE, "calculator").calculator
    assert [calculator(x) for x in ("12 * (3 + 4)", "-7 // 2", "1 / 4", "6 / 3")] == [
        "84",
        "-4",
        "0.25",
        "2",
    ]


def test_the_scripted_model_says_that_its_port_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        command = [sys.executable, str(EXAMPLE / "scripted_model.py"), "--port"]
        command.append(str(taken.getsockname()[1]))
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "choose another port with --port" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_scripted_model_prints_its_url() -> None:
    command = [sys.executable, str(EXAMPLE / "scripted_model.py"), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline().startswith("http://127.0.0.1:")
        finally:
            child.terminate()
