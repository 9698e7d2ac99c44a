"""An OpenAI-compatible chat server that solves this example's problems by script.

It stands in for a model wherever none is at hand: first it calls the calculator with the
expression of the problem, then it answers ``#### result``. With an error rate some answers are
wrong, so that rewards differ within a group; which ones is decided by the seed, the problem and how
often it was asked.

python scripted_model.py --port 0 --error-rate 0.3
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

MODEL_ID = "scripted"
_EXPRESSION = re.compile(r"[-(]*\d[\d\s.+*/()-]*")


@dataclass
class Script:
    error_rate: float = 0.0
    latency_s: float = 0.0
    seed: int = 0
    asked: Counter[str] = field(default_factory=Counter)
    requests: int = 0

    def reply(self, request: dict[str, Any]) -> dict[str, Any]:
        """The assistant message that follows the messages of a request."""
        messages = request.get("messages") or []
        problem = next((_text(m) for m in reversed(messages) if m.get("role") == "user"), "")
        last = messages[-1] if messages else {}
        if last.get("role") == "tool":
            return {"role": "assistant", "content": f"#### {self._answer(problem, _text(last))}"}
        found = _EXPRESSION.findall(problem)
        if not found:
            return {"role": "assistant", "content": "I see no arithmetic in this problem."}
        expression = max(found, key=len).strip().rstrip(".")
        if not request.get("tools"):
            return {"role": "assistant", "content": f"I would need a calculator for {expression}."}
        function = {
            "name": request["tools"][0]["function"]["name"],
            "arguments": json.dumps({"expression": expression}),
        }
        call = {"id": f"call_{uuid.uuid4().hex[:12]}", "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}

    def _answer(self, problem: str, result: str) -> str:
        self.asked[problem] += 1
        chance = random.Random(f"{self.seed}/{problem}/{self.asked[problem]}").random()
        return f"{result}1" if chance < self.error_rate else result


def _text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content.strip()
    return " ".join(part.get("text", "") for part in content).strip()


def _completion(request: dict[str, Any], message: dict[str, Any]) -> dict[str, Any]:
    finish = "tool_calls" if message.get("tool_calls") else "stop"
    return {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": request.get("model") or MODEL_ID,
        "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": None}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
    }


def _chunks(request: dict[str, Any], whole: dict[str, Any]) -> Iterator[dict[str, Any]]:
    choice = whole["choices"][0]
    message = choice["message"]
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": piece} for piece in re.findall(r"\S+\s*", message["content"] or "")]
    for index, call in enumerate(message.get("tool_calls") or []):
        arguments = call["function"]["arguments"]
        opening = {**call, "index": index, "function": {**call["function"], "arguments": ""}}
        deltas.append({"tool_calls": [opening]})
        for piece in (arguments[:8], arguments[8:]):
            deltas.append({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    head = {key: whole[key] for key in ("id", "created", "model")}
    head["object"] = "chat.completion.chunk"
    for delta in deltas:
        yield {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    end = {"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}
    yield {**head, "choices": [end]}
    if (request.get("stream_options") or {}).get("include_usage"):
        yield {**head, "choices": [], "usage": whole["usage"]}


async def _chat(http: web.Request) -> web.StreamResponse:
    script: Script = http.app[_SCRIPT]
    try:
        request = await http.json()
    except ValueError:
        return web.json_response({"error": {"message": "the body is not JSON"}}, status=400)
    script.requests += 1
    await asyncio.sleep(script.latency_s)
    whole = _completion(request, script.reply(request))
    if not request.get("stream"):
        return web.json_response(whole)
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(http)
    for chunk in _chunks(request, whole):
        await response.write(f"data: {json.dumps(chunk)}\n\n".encode())
    await response.write(b"data: [DONE]\n\n")
    return response


async def _models(http: web.Request) -> web.Response:
    return web.json_response({"object": "list", "data": [{"id": MODEL_ID, "object": "model"}]})


_SCRIPT: web.AppKey[Script] = web.AppKey("script", Script)


@dataclass
class Running:
    url: str
    """The base URL of an OpenAI client."""
    script: Script
    runner: web.AppRunner

    async def close(self) -> None:
        await self.runner.cleanup()


async def start(
    *,
    port: int = 0,
    host: str = "127.0.0.1",
    error_rate: float = 0.0,
    latency_s: float = 0.0,
    seed: int = 0,
    script: Script | None = None,
) -> Running:
    app = web.Application()
    app[_SCRIPT] = script = script or Script(error_rate, latency_s, seed)
    app.router.add_post("/v1/chat/completions", _chat)
    app.router.add_get("/v1/models", _models)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    return Running(f"http://{host}:{runner.addresses[0][1]}/v1", script, runner)


async def _serve(options: argparse.Namespace) -> None:
    running = await start(**vars(options))
    print(running.url, flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        await running.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--error-rate", type=float, default=0.0)
    parser.add_argument("--latency-s", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    try:
        asyncio.run(_serve(parser.parse_args()))
    except KeyboardInterrupt:
        pass
    except OSError as error:
        sys.exit(f"{error.strerror or error}; choose another port with --port, 0 for any free one")


if __name__ == "__main__":
    main()
