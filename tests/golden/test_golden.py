"""Ids of whole conversations, family by family, against those on file."""

from __future__ import annotations

import importlib.util
import itertools
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentcore_rl_toolkit.errors import ConfigError
from agentcore_rl_toolkit.gateway.text.family import choose_renderer
from agentcore_rl_toolkit.gateway.text.render import Talk

HERE = Path(__file__).resolve().parent
_spec = importlib.util.spec_from_file_location("golden_make", HERE / "make.py")
assert _spec is not None
assert _spec.loader is not None
make: Any = importlib.util.module_from_spec(_spec)
sys.modules["golden_make"] = make
_spec.loader.exec_module(make)

FAMILIES = sorted(make.FAMILIES)
needs_vocabulary = pytest.mark.skipif(
    make.harmony_vocabulary() is None,
    reason="litellm is not installed, whose copy of the vocabulary of gpt-oss is used",
)
every_family = pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=needs_vocabulary) if n == "gpt-oss" else n for n in FAMILIES],
)


@every_family
def test_ids_are_those_on_file(name: str) -> None:
    golden = json.loads((HERE / f"{name}.json").read_text())
    assert make.play(make.FAMILIES[name]) == golden


@every_family
def test_each_prompt_begins_with_the_ids_of_the_turn_before(name: str) -> None:
    turns = json.loads((HERE / f"{name}.json").read_text())[:-1]
    for before, turn in itertools.pairwise(turns):
        held = before["prompt"] + before["sampled"]
        assert turn["prompt"][: len(held)] == held
        assert len(turn["prompt"]) > len(held)


@every_family
def test_sampled_ids_are_not_what_the_tokenizer_would_give(name: str) -> None:
    """Else these files could not tell carried ids from ids tokenised again."""
    tokenizer = make.make_tokenizer(make.FAMILIES[name])
    turns = json.loads((HERE / f"{name}.json").read_text())[:-1]
    retokenised = [
        tokenizer.encode(tokenizer.decode(turn["sampled"]), add_special_tokens=False)
        for turn in turns
    ]
    assert retokenised != [turn["sampled"] for turn in turns]


@every_family
def test_calls_and_reasoning_are_understood(name: str) -> None:
    family = make.FAMILIES[name]
    message = json.loads((HERE / f"{name}.json").read_text())[0]["message"]
    (call,) = message["tool_calls"]
    assert call["function"]["name"] == "weather"
    assert json.loads(call["function"]["arguments"]) == make.ARGUMENTS
    assert message.get("reasoning_content") == family.reasoning
    assert (message["content"] or "") == family.content


@every_family
@pytest.mark.parametrize("step", [1, 7], ids=["id by id", "seven at a time"])
def test_streamed_answers_are_the_whole_ones(name: str, step: int) -> None:
    family = make.FAMILIES[name]
    renderer = make.make_renderer(family)
    for turn in json.loads((HERE / f"{name}.json").read_text())[:-1]:
        answer = make.read_answer(renderer, turn["prompt"], turn["sampled"], step)
        assert answer.message == turn["message"]


@pytest.mark.parametrize("name", [n for n in FAMILIES if n not in ("hermes", "gpt-oss")])
def test_the_familys_own_parser_agrees(name: str) -> None:
    family = make.FAMILIES[name]
    renderer = make.make_renderer(family)
    for turn in json.loads((HERE / f"{name}.json").read_text())[:-1]:
        ids = renderer.trim(turn["sampled"])
        parsed = renderer.parse_whole(ids, make.TOOLS, turn["prompt"], "call").message()
        ours = turn["message"]
        assert parsed.get("tool_calls") == ours.get("tool_calls")
        assert (parsed["content"] or "").strip() == (ours["content"] or "").strip()
        thought = (parsed.get("reasoning_content") or "").strip()
        assert thought == (ours.get("reasoning_content") or "")


@every_family
def test_prompts_close_an_answer_that_was_cut(name: str) -> None:
    family = make.FAMILIES[name]
    renderer = make.make_renderer(family)
    messages = [{"role": "user", "content": "Hi"}]
    prompt = np.frombuffer(renderer.render(Talk.of(messages)), np.int32)
    cut = make.sampled(family, renderer.tokenizer, family.last, "")
    held = np.concatenate([prompt, np.asarray(cut, np.int32)])
    talk = Talk.of([*messages, {"role": "assistant", "content": "x"}, messages[0]])
    bridged = renderer.bridge(held, prompt.size, talk, 2)
    assert bridged is not None
    ids = np.frombuffer(bridged, np.int32).tolist()
    assert ids[: held.size] == held.tolist()
    closing = family.closes or family.end
    ends = renderer.tokenizer.encode(closing, add_special_tokens=False)
    assert ids[held.size] in (ends if family.closes else renderer.stop_ids or ends)


def test_a_family_is_chosen_by_what_the_template_writes() -> None:
    demo = HERE.parents[1] / "examples" / "demo_policy" / "model" / "chat_template.jinja"
    tokenizer = make.make_tokenizer(make.FAMILIES["qwen3"])
    tokenizer.chat_template = demo.read_text()
    assert choose_renderer(tokenizer).name == "qwen3"
    tokenizer.chat_template = demo.read_text().replace("<tool_response>", "<result>")
    assert choose_renderer(tokenizer, model_type="qwen3").name == "template"


def test_a_renderer_that_does_not_fit_is_refused() -> None:
    tokenizer = make.make_tokenizer(make.FAMILIES["qwen3"])
    with pytest.raises(ConfigError, match="does not fit the tokenizer"):
        choose_renderer(tokenizer, name="llama-3")
    with pytest.raises(ConfigError, match="is not known; known: template, "):
        choose_renderer(tokenizer, name="qwen33")
