"""A token engine without a model: ``python -m faults.engine PORT --seed N``.

Speaks vLLM's chat over HTTP, whole or streamed, one id a character, so that a replayed answer has
the ids that were sampled. No two samples are alike: whoever was told a text can find the one turn
it came from. How long an answer takes is drawn from the seed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
from typing import Any

from aiohttp import web

LOGPROB = -0.5
WORDS = ("ash", "birch", "cedar", "elm", "fir", "hazel", "larch", "maple", "oak", "pine", "yew")


def render(messages: list[dict[str, Any]]) -> list[int]:
    text = "".join(f"<{m['role']}>{m.get('content') or ''}</>" for m in messages)
    return [ord(char) for char in text + "<assistant>"]


class Engine:
    def __init__(self, seed: int, delay_s: float, spread: float) -> None:
        self._random = random.Random(seed)
        self._delay_s, self._spread = delay_s, spread
        self._count = 0

    def app(self) -> web.Application:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/health", self._health)
        return app

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response()

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "tiny", "object": "model"}]})

    def _sample(self) -> str:
        self._count += 1
        some = " ".join(self._random.choices(WORDS, k=self._random.randint(2, 12)))
        return f"[{os.getpid()}.{self._count}] {some}"

    def _pause(self) -> float:
        return self._delay_s * (1 + self._spread * (2 * self._random.random() - 1))

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        text, prompt, pause = self._sample(), render(body["messages"]), self._pause()
        if body.get("stream"):
            return await self._stream(request, body, prompt, text, pause)
        await asyncio.sleep(pause)
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": text},
            "logprobs": {"content": _logprobs(text)},
            "finish_reason": "stop",
            "token_ids": [ord(char) for char in text],
        }
        usage = {"prompt_tokens": len(prompt), "completion_tokens": len(text), "total_tokens": 0}
        answer = {**_head(body, "chat.completion"), "choices": [choice], "usage": usage}
        return web.json_response({**answer, "prompt_token_ids": prompt})

    async def _stream(
        self, request: web.Request, body: dict[str, Any], prompt: list[int], text: str, pause: float
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        head = _head(body, "chat.completion.chunk")
        first = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
        await _send(response, {**head, "choices": [first], "prompt_token_ids": prompt})
        pieces = [text[at : at + 6] for at in range(0, len(text), 6)]
        for number, piece in enumerate(pieces):
            await asyncio.sleep(pause / len(pieces))
            choice = {
                "index": 0,
                "delta": {"content": piece},
                "logprobs": {"content": _logprobs(piece)},
                "finish_reason": "stop" if number + 1 == len(pieces) else None,
                "token_ids": [ord(char) for char in piece],
            }
            await _send(response, {**head, "choices": [choice]})
        await response.write(b"data: [DONE]\n\n")
        return response


def _head(body: dict[str, Any], kind: str) -> dict[str, Any]:
    return {"id": "c", "object": kind, "created": 1, "model": body["model"]}


def _logprobs(text: str) -> list[dict[str, Any]]:
    return [{"token": char, "logprob": LOGPROB} for char in text]


async def _send(response: web.StreamResponse, event: dict[str, Any]) -> None:
    await response.write(f"data: {json.dumps(event)}\n\n".encode())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m faults.engine")
    parser.add_argument("port", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--delay", type=float, default=0.1, help="seconds an answer takes")
    parser.add_argument("--spread", type=float, default=1.0, help="share it may differ by")
    given = parser.parse_args()
    engine = Engine(given.seed, given.delay, given.spread)
    web.run_app(engine.app(), host="127.0.0.1", port=given.port, print=None, shutdown_timeout=0.2)


if __name__ == "__main__":
    main()
