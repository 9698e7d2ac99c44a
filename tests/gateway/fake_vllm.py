"""A scripted engine that speaks vLLM's HTTP: exact JSON shapes, no model.

Its tokenizer is one id per character, and its template writes ``<role>text</role>`` for every
message, so a replayed answer has the ids that were sampled. A script decides the answers; faults
are switched on by attribute.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from aiohttp import web


def encode(text: str) -> list[int]:
    return [ord(c) for c in text]


def decode(ids: list[int]) -> str:
    return "".join(chr(i) for i in ids)


def text_of(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, list):
        content = "".join(part.get("text", "") for part in content)
    return content + "".join(call_text(call) for call in message.get("tool_calls") or ())


def call_text(call: dict[str, Any]) -> str:
    """Like a template: from the parsed arguments, whatever order the client wrote."""
    function = call["function"]
    arguments = json.loads(function["arguments"])
    return json.dumps({"name": function["name"], "arguments": arguments}, sort_keys=True)


def render(messages: list[dict[str, Any]]) -> list[int]:
    return encode("".join(f"<{m['role']}>{text_of(m)}</>" for m in messages) + "<assistant>")


def logprob(index: int) -> float:
    return -0.5 - index / 64


class FakeVLLM:
    """``async with FakeVLLM() as engine: engine.url``"""

    def __init__(self) -> None:
        self.answer: Callable[[dict[str, Any], int], str] = lambda body, choice: f"ok{choice}"
        self.tool_call: dict[str, Any] | None = None
        self.stop_reason: str | int | None = None
        self.reasoning: str | None = None
        self.requests: list[dict[str, Any]] = []
        self.cancelled = 0
        self.hold: asyncio.Event | None = None
        """Set: answers wait for it; a stream waits after its first token."""
        self.hangs: Callable[[dict[str, Any]], bool] = lambda body: False
        """Requests that never get (the rest of) their answer."""
        self.leave_out: set[str] = set()
        self.fail: list[tuple[int, str, dict[str, str]]] = []
        """Replies given before any answer: status, body, headers."""
        self.cut_after: int | None = None
        """Streams lose their connection after so many tokens."""
        self.spaced = True
        self.healthy = True
        self.control: list[tuple[str, Any]] = []

    async def __aenter__(self) -> FakeVLLM:
        app = web.Application(client_max_size=1 << 28)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/v1/completions", self._completions)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/health", self._health)
        for path in ("pause", "resume", "update_weight_version"):
            app.router.add_post(f"/{path}", self._control)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.hold is not None:
            self.hold.set()
        await self._runner.cleanup()

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response(
            {"object": "list", "data": [{"id": "tiny", "object": "model", "max_model_len": 2048}]}
        )

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response(status=200 if self.healthy else 503)

    async def _control(self, request: web.Request) -> web.Response:
        text = await request.text()
        self.control.append((request.path_qs, json.loads(text) if text else None))
        return web.json_response({})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        return await self._serve(request, body, render(body["messages"]), chat=True)

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        prompt = body["prompt"]
        ids = encode(prompt) if isinstance(prompt, str) else prompt
        return await self._serve(request, body, ids, chat=False)

    async def _serve(
        self, request: web.Request, body: dict[str, Any], prompt: list[int], chat: bool
    ) -> web.StreamResponse:
        self.requests.append(body)
        if self.fail:
            status, text, headers = self.fail.pop(0)
            return web.Response(status=status, text=text, headers=headers)
        try:
            if body.get("stream"):
                return await self._stream(request, body, prompt, chat)
            if self.hold is not None:
                await self.hold.wait()
            if self.hangs(body):
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        choices = [self._choice(body, prompt, i, chat) for i in range(body.get("n", 1))]
        answer = {
            "id": "chatcmpl-1",
            "object": "chat.completion" if chat else "text_completion",
            "created": 1794709685,
            "model": body["model"],
            "choices": choices,
            "usage": {"prompt_tokens": len(prompt), "completion_tokens": 1, "total_tokens": 1},
            "prompt_logprobs": None,
            "kv_transfer_params": None,
        }
        if chat and body.get("return_token_ids") and "prompt" not in self.leave_out:
            answer["prompt_token_ids"] = prompt
        text = json.dumps(answer, ensure_ascii=False, separators=(",", ":"))
        return web.Response(text=text, content_type="application/json")

    def _sampled(self, body: dict[str, Any], choice: int) -> str:
        if self.tool_call is not None:
            return call_text(self.tool_call)
        return self.answer(body, choice)

    def _logprobs(self, text: str, start: int, chat: bool) -> Any:
        if "logprobs" in self.leave_out:
            return None
        values = [logprob(start + i) for i in range(len(text))]
        if not chat:
            return {"token_logprobs": values, "tokens": list(text), "top_logprobs": []}
        return {
            "content": [
                {"token": c, "logprob": v, "bytes": list(c.encode()), "top_logprobs": []}
                for c, v in zip(text, values, strict=True)
            ]
        }

    def _choice(
        self, body: dict[str, Any], prompt: list[int], index: int, chat: bool
    ) -> dict[str, Any]:
        text = self._sampled(body, index)
        choice: dict[str, Any] = {
            "index": index,
            "logprobs": self._logprobs(text, 0, chat) if body.get("logprobs") is not None else None,
            "finish_reason": "tool_calls" if self.tool_call else "stop",
            "stop_reason": self.stop_reason,
        }
        if chat:
            message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
            if self.tool_call:
                message |= {"content": None, "tool_calls": [self.tool_call]}
            if self.reasoning and body.get("include_reasoning", True):
                message["reasoning"] = self.reasoning
            choice["message"] = message
        else:
            choice["text"] = text
        if body.get("return_token_ids") and "ids" not in self.leave_out:
            choice["token_ids"] = encode(text)
            if not chat:
                choice["prompt_token_ids"] = prompt
        return choice

    async def _stream(
        self, request: web.Request, body: dict[str, Any], prompt: list[int], chat: bool
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        texts = [self._sampled(body, i) for i in range(body.get("n", 1))]
        if chat:
            for i in range(len(texts)):
                first = self._event(body, i, {"role": "assistant", "content": ""}, chat)
                if i == 0 and "prompt" not in self.leave_out:
                    first["prompt_token_ids"] = prompt
                await self._send(response, first)
        for at in range(max(map(len, texts))):
            for i, text in enumerate(texts):
                if at < len(text):
                    await self._send(response, self._token(body, i, text, at, prompt, chat))
            if at + 1 == self.cut_after and request.transport is not None:
                request.transport.abort()
                return response
            if at == 0 and self.hold is not None:
                await self.hold.wait()
            if at == 0 and self.hangs(body):
                await asyncio.Event().wait()
        if (body.get("stream_options") or {}).get("include_usage"):
            usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
            await self._send(response, {"id": "c", "choices": [], "usage": usage})
        await response.write(b"data: [DONE]\n\n")
        return response

    def _event(self, body: dict[str, Any], index: int, part: Any, chat: bool) -> dict[str, Any]:
        choice = {"index": index, "delta" if chat else "text": part, "finish_reason": None}
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk" if chat else "text_completion",
            "created": 1,
            "model": body["model"],
            "choices": [{**choice, "logprobs": None}],
        }

    def _token(
        self, body: dict[str, Any], index: int, text: str, at: int, prompt: list[int], chat: bool
    ) -> dict[str, Any]:
        char = text[at]
        part: Any = {"content": char} if chat else char
        if self.tool_call is not None and chat:
            call = self.tool_call
            arguments = call["function"]["arguments"]
            step = -(-len(arguments) // len(text))
            function: dict[str, Any] = {"arguments": arguments[at * step : (at + 1) * step]}
            tool: dict[str, Any] = {"index": 0, "function": function}
            if at == 0:
                tool |= {"id": call["id"], "type": "function"}
                function["name"] = call["function"]["name"]
            part = {"tool_calls": [tool]}
        event = self._event(body, index, part, chat)
        choice = event["choices"][0]
        choice["logprobs"] = self._logprobs(char, at, chat)
        if "ids" not in self.leave_out:
            choice["token_ids"] = encode(char)
        if not chat:
            choice["prompt_token_ids"] = prompt if at == 0 else None
        if at + 1 == len(text):
            choice["finish_reason"] = "tool_calls" if self.tool_call else "stop"
            choice["stop_reason"] = self.stop_reason
        return event

    async def _send(self, response: web.StreamResponse, event: dict[str, Any]) -> None:
        data = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
        await response.write(f"data:{' ' if self.spaced else ''}{data}\n\n".encode())
