"""A scripted engine for agents: each answer has reasoning, text and any number of calls.

Unlike ``fake_vllm`` its template writes reasoning, too, wherever a message still has it: a client
that loses it gets another prompt, and a gateway that cannot carry it shows up as drift.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from fake_vllm import FakeVLLM, call_text, encode, logprob, text_of


@dataclass
class Say:
    """One answer. ``calls`` are names with arguments, as an object or as the model wrote them."""

    text: str = ""
    calls: list[tuple[str, Any]] = field(default_factory=list)
    reasoning: str = ""
    finish: str | None = None
    prompt_tokens: int | None = None
    """What usage claims, to make a client compact its history."""

    def message(self, n: int) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": self.text or None}
        if self.reasoning:
            message["reasoning"] = self.reasoning
        if self.calls:
            message["tool_calls"] = [
                {
                    "id": f"call_{n}_{at}",
                    "type": "function",
                    "function": {
                        "name": name,
                        "arguments": said if isinstance(said, str) else json.dumps(said),
                    },
                }
                for at, (name, said) in enumerate(self.calls)
            ]
        return message


def thought_text(message: dict[str, Any]) -> str:
    thought = message.get("reasoning") or message.get("reasoning_content") or ""
    return f"<think>{thought}</think>" if thought else ""


def safe_call_text(call: dict[str, Any]) -> str:
    try:
        return call_text(call)
    except json.JSONDecodeError:
        return str(call["function"]["arguments"])


def written(message: dict[str, Any]) -> str:
    calls = "".join(map(safe_call_text, message.get("tool_calls") or ()))
    return thought_text(message) + text_of({**message, "tool_calls": None}) + calls


def render(messages: list[dict[str, Any]]) -> list[int]:
    return encode("".join(f"<{m['role']}>{written(m)}</>" for m in messages) + "<assistant>")


class FakeScript(FakeVLLM):
    """``say(body, n)`` gives the n-th answer."""

    def __init__(self, say: Callable[[dict[str, Any], int], Say]) -> None:
        super().__init__()
        self.say = say
        self.said: list[str] = []
        """Sampled text of every answer, one token a character."""

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        prompt = render(body["messages"])
        say = self.say(body, len(self.requests))
        self.requests.append(body)
        message = say.message(len(self.requests))
        self.said.append(written(message))
        finish = say.finish or ("tool_calls" if say.calls else "stop")
        n_prompt = say.prompt_tokens or len(prompt)
        n_said = len(self.said[-1])
        usage = {"prompt_tokens": n_prompt, "completion_tokens": n_said}
        usage["total_tokens"] = n_prompt + n_said  # Strands adds these up and fails without
        if body.get("stream"):
            return await self._streamed(request, prompt, message, finish, usage)
        choice = {
            "index": 0,
            "message": message,
            "finish_reason": finish,
            "logprobs": self._logprobs(self.said[-1], 0, True),
            "token_ids": encode(self.said[-1]),
        }
        answer = {"object": "chat.completion", "created": 1, "model": "tiny"}
        answer["id"] = f"chatcmpl-{len(self.requests)}"
        answer |= {"choices": [choice], "usage": usage, "prompt_token_ids": prompt}
        return web.Response(text=json.dumps(answer), content_type="application/json")

    async def _streamed(
        self,
        request: web.Request,
        prompt: list[int],
        message: dict[str, Any],
        finish: str,
        usage: dict[str, int],
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "tiny"}
        first = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
        await self._send(response, {**head, "choices": [first], "prompt_token_ids": prompt})
        text, at = written(message), 0
        steps = list(deltas(message))
        for number, delta in enumerate(steps):
            last = number + 1 == len(steps)
            upto = len(text) if last else len(text) * (number + 1) // len(steps)
            values = [logprob(i) for i in range(at, upto)]
            choice = {
                "index": 0,
                "delta": delta,
                "finish_reason": finish if last else None,
                "token_ids": encode(text[at:upto]),
                "logprobs": {"content": [{"token": "", "logprob": v} for v in values]},
            }
            await self._send(response, {**head, "choices": [choice]})
            at = upto
        await self._send(response, {**head, "choices": [], "usage": usage})
        await response.write(b"data: [DONE]\n\n")
        return response


def deltas(message: dict[str, Any], step: int = 7) -> Iterator[dict[str, Any]]:
    """A message as a stream's deltas of a few characters each."""
    for name in ("reasoning", "reasoning_content", "content", "refusal"):
        text = message.get(name) or ""
        for at in range(0, len(text), step):
            yield {name: text[at : at + step]}
    for index, call in enumerate(message.get("tool_calls") or ()):
        function = call["function"]
        head = {"name": function["name"], "arguments": ""}
        yield {"tool_calls": [{"index": index, "id": call["id"], "function": head}]}
        for at in range(0, len(function["arguments"]), step):
            part = {"arguments": function["arguments"][at : at + step]}
            yield {"tool_calls": [{"index": index, "function": part}]}
