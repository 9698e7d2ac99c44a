"""A model call before the fork, so that no session pays for the first one.

openai builds its types and pydantic its validators at first use, and Strands likewise: 30 ms of a
rollout's CPU, in every session anew. Here the packages that an agent has imported make one call of
each kind, with answers from a transport that opens nothing. That leaves no thread, no descriptor
and no log line, and the agent's random numbers as they were.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

URL = "http://127.0.0.1/v1"
NAME = "rehearse"
CALL = {"id": "0", "type": "function", "function": {"name": NAME, "arguments": '{"text": "x"}'}}
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TOOL = {"type": "function", "function": {"name": NAME, "description": NAME, "parameters": SCHEMA}}
USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}

Act = Callable[[Any, bool], Coroutine[Any, Any, None]]


def rehearse() -> None:
    """Whatever another release makes of this, the agent is served all the same."""
    act = _act()
    if act is None:
        return
    with _unnoticed():
        loop = asyncio.new_event_loop()
        try:
            for stream in (False, True):
                loop.run_until_complete(_perform(act, stream))
        except Exception as error:  # noqa: BLE001  (the session does it for itself)
            problem = repr(error)
        else:
            problem = ""
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()
    if problem:
        logging.getLogger(__name__).debug("error=<%s> | no rehearsal", problem)


def _act() -> Act | None:
    """Through Strands where it is used: that includes what openai does."""
    if "strands.models.openai" in sys.modules:
        from opentelemetry import trace

        # nothing may be told of it to whoever collects the agent's spans
        if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
            return _strands
    return _openai if "openai" in sys.modules else None


async def _perform(act: Act, stream: bool) -> None:
    import httpx
    import openai

    pretended = httpx.AsyncClient(transport=httpx.MockTransport(_answer))
    async with openai.AsyncOpenAI(base_url=URL, api_key="x", http_client=pretended) as client:
        await act(client, stream)


async def _openai(client: Any, stream: bool) -> None:
    messages: list[Any] = [
        {"role": "system", "content": "x"},
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "0", "content": "x"},
    ]
    for given in (messages[:2], messages):
        answer = await client.chat.completions.create(
            model="x", messages=given, tools=[TOOL], temperature=1.0, max_tokens=1, stream=stream
        )
        if stream:
            async for _ in answer:
                pass


async def _strands(client: Any, stream: bool) -> None:
    from strands import Agent, tool
    from strands.models.openai import OpenAIModel

    def rehearse(text: str) -> str:
        """Says it again."""
        return text

    params = {"temperature": 1.0, "max_tokens": 1}
    model = OpenAIModel(client=client, model_id="x", params=params, stream=stream)
    agent = Agent(model, tools=[tool(rehearse)], system_prompt="x", callback_handler=None)
    await agent.invoke_async("x")


def _answer(request: Any) -> Any:
    """A tool call, and after its result a text."""
    import httpx

    asked = json.loads(request.content)
    called = asked["messages"][-1]["role"] == "tool"
    said = {"content": "x"} if called else {"content": None, "tool_calls": [{"index": 0, **CALL}]}
    end = "stop" if called else "tool_calls"
    body = {"id": "x", "created": 1, "model": "x"}
    message = {"role": "assistant", **said}
    if not asked.get("stream"):
        choice = {"index": 0, "finish_reason": end, "message": message}
        whole = {**body, "object": "chat.completion", "choices": [choice], "usage": USAGE}
        return httpx.Response(200, json=whole)
    choices: list[Any] = [
        [{"index": 0, "delta": message, "finish_reason": None}],
        [{"index": 0, "delta": {}, "finish_reason": end}],
        [],
    ]
    chunk = {**body, "object": "chat.completion.chunk"}
    parts = [{**chunk, "choices": c, "usage": None if c else USAGE} for c in choices]
    text = "".join(f"data: {json.dumps(part)}\n\n" for part in parts) + "data: [DONE]\n\n"
    return httpx.Response(200, text=text, headers={"content-type": "text/event-stream"})


@contextmanager
def _unnoticed() -> Iterator[None]:
    state, level = random.getstate(), logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(level)
        random.setstate(state)
