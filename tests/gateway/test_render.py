"""Prompts by a chat template: only what is new, in the template's own words."""

from __future__ import annotations

import threading
from typing import Any

import golden_make as make
import numpy as np
import pytest

from agentcore_rl_toolkit.gateway.dialects.chat import CHAT
from agentcore_rl_toolkit.gateway.fault import Refusal
from agentcore_rl_toolkit.gateway.text.render import INLINE_BYTES, Renderer, Talk, render_prompt

TALK = [
    {"role": "user", "content": "one"},
    {"role": "assistant", "content": "two"},
    {"role": "user", "content": "three"},
]
NUMBERED = (
    "{%- for m in messages -%}{{- loop.index | string + m.role + m.content + '<|im_end|>' -}}"
    "{%- endfor -%}{%- if add_generation_prompt -%}{{- 'assistant' -}}{%- endif -%}"
)
FORGETFUL = (
    "{%- for m in messages -%}{%- if m.role != 'assistant' or loop.last -%}"
    "{{- m.content + '<|im_end|>' -}}{%- endif -%}{%- endfor -%}"
)


def renderer_of(template: str) -> Renderer:
    tokenizer = make.make_tokenizer(make.FAMILIES["hermes"])
    tokenizer.chat_template = template
    return Renderer(tokenizer)


def bridged(renderer: Renderer, messages: list[dict[str, Any]]) -> str | None:
    """What is appended to an answer of two odd ids that ended as it should."""
    end = renderer.tokenizer.encode("<|im_end|>")
    held = np.asarray([70, 71, *end], np.int32)
    found = renderer.bridge(held, 1, Talk.of(messages), len(messages) - 1)
    if found is None:
        return None
    ids = np.frombuffer(found, np.int32)
    assert ids[:3].tolist() == held.tolist()
    return renderer.decode(ids[3:].tolist())


def test_a_template_that_appends_is_given_the_new_messages_only() -> None:
    renderer = renderer_of(make.CHATML)
    seen: list[int] = []
    original = renderer.tokenizer.apply_chat_template

    def spy(conversation: Any, **options: Any) -> Any:
        seen.append(len(conversation))
        return original(conversation, **options)

    renderer.tokenizer.apply_chat_template = spy  # type: ignore[method-assign]
    long = [*TALK[:2] * 50, *TALK]
    first = bridged(renderer, long)
    seen.clear()
    assert bridged(renderer, long) == first
    assert first == "\n<|im_start|>user\nthree<|im_end|>\n<|im_start|>assistant\n"
    assert max(seen) == 3


def test_a_template_that_counts_messages_is_given_them_all() -> None:
    renderer = renderer_of(NUMBERED)
    assert bridged(renderer, TALK) == "3userthree<|im_end|>assistant"
    assert bridged(renderer, [*TALK[:2], *TALK]) == "5userthree<|im_end|>assistant"


def test_a_template_that_rewrites_history_cannot_be_bridged() -> None:
    assert bridged(renderer_of(FORGETFUL), TALK) is None


async def test_a_template_that_refuses_is_the_clients_error() -> None:
    renderer = renderer_of("{{ raise_exception('no such role') }}")
    ask = CHAT.parse(b'{"model": "m", "messages": [{"role": "user", "content": "x"}]}')
    with pytest.raises(Refusal, match="no such role") as raised:
        await render_prompt(renderer, ask)
    assert raised.value.status == 400


@pytest.mark.parametrize(
    ("template", "word"),
    [(make.CHATML, "system"), (make.CHATML + "{# 'developer' #}", "developer")],
)
async def test_developer_is_system_unless_the_template_has_its_own_word(
    template: str, word: str
) -> None:
    renderer = renderer_of(template)
    ask = CHAT.parse(b'{"model": "m", "messages": [{"role": "developer", "content": "x"}]}')
    ids = np.frombuffer(await render_prompt(renderer, ask), np.int32)
    assert f"<|im_start|>{word}\nx" in renderer.decode(ids.tolist())


async def test_an_unknown_role_is_the_clients_error() -> None:
    ask = CHAT.parse(b'{"model": "m", "messages": [{"role": "usr", "content": "x"}]}')
    with pytest.raises(Refusal, match="the role 'usr' is not known"):
        await render_prompt(renderer_of(make.CHATML), ask)


@pytest.mark.parametrize("size", [10, 2 * INLINE_BYTES], ids=["small", "large"])
async def test_large_prompts_are_rendered_off_the_loop(size: int) -> None:
    renderer = renderer_of(make.CHATML)
    threads: list[threading.Thread] = []
    original = renderer.encode

    def spy(text: str) -> bytes:
        threads.append(threading.current_thread())
        return original(text)

    renderer.encode = spy  # type: ignore[method-assign]
    body = b'{"model": "m", "messages": [{"role": "user", "content": "%b"}]}' % (b"x" * size)
    await render_prompt(renderer, CHAT.parse(body))
    on_loop = threads == [threading.main_thread()]
    assert on_loop == (size < INLINE_BYTES)
