"""A stand-in for vLLM whose ids are true: a replayed answer has the ids that were sampled.

    python honest_engine.py PORT

One id a character, chat only, whole or streamed. Slow, and not what is measured.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from aiohttp import web

ANSWER = "The quick brown fox jumps over the lazy dog, then rests a while."
IDS = [ord(c) for c in ANSWER]


def render(messages: list[dict[str, Any]]) -> str:
    parts = []
    for message in messages:
        content = message.get("content") or ""
        if isinstance(content, list):
            content = "".join(part.get("text", "") for part in content)
        parts.append(f"<{message['role']}>{content}</>")
    return "".join(parts) + "<assistant>"


async def chat(request: web.Request) -> web.StreamResponse:
    body = await request.json()
    prompt = ",".join(map(str, render(body["messages"]).encode("latin-1")))
    head = '"id":"c","created":1,"model":"fake-model"'
    if not body.get("stream"):
        logprobs = {"content": [{"token": c, "logprob": -0.5} for c in ANSWER]}
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": ANSWER},
            "logprobs": logprobs,
            "finish_reason": "stop",
            "token_ids": IDS,
        }
        usage = '"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}'
        text = f'{{{head},"object":"chat.completion","choices":[{json.dumps(choice)}],{usage}'
        return web.Response(
            text=f'{text},"prompt_token_ids":[{prompt}]}}', content_type="application/json"
        )
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    head += ',"object":"chat.completion.chunk"'
    first = '"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]'
    out = [f'data: {{{head},{first},"prompt_token_ids":[{prompt}]}}\n\n']
    for at, char in enumerate(ANSWER):
        last = at + 1 == len(ANSWER)
        choice = {
            "index": 0,
            "delta": {"content": char},
            "logprobs": {"content": [{"token": char, "logprob": -0.5}]},
            "finish_reason": "stop" if last else None,
            "token_ids": [ord(char)],
        }
        out.append(f'data: {{{head},"choices":[{json.dumps(choice)}]}}\n\n')
    out.append(f'data: {{{head},"choices":[],"usage":{{"prompt_tokens":1,"total_tokens":2}}}}\n\n')
    await response.write("".join([*out, "data: [DONE]\n\n"]).encode())
    return response


async def models(request: web.Request) -> web.Response:
    return web.json_response({"object": "list", "data": [{"id": "fake-model"}]})


if __name__ == "__main__":
    app = web.Application(client_max_size=1 << 28)
    app.router.add_post("/v1/chat/completions", chat)
    app.router.add_get("/v1/models", models)
    web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None)
