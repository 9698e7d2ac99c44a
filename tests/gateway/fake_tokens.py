"""A tokenizer whose text does not re-tokenise to what was sampled, and engines that take ids."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import re
from typing import Any

import numpy as np
from aiohttp import web

START, END = "<|im_start|>", "<|im_end|>"
SPECIAL = {START: 1, END: 2}
MERGES = {"ab": 3, "</": 4, "ello": 5}


class FakeTokenizer:
    """Characters, two special tokens and greedy merges: ``ab`` is one id unless sampled as two."""

    eos_token = END

    def apply_chat_template(self, conversation: Any, **options: Any) -> str:
        out = f"{START}tools\n{json.dumps(options['tools'])}{END}\n" if options.get("tools") else ""
        for m in conversation:
            text = m["content"]
            for call in m.get("tool_calls") or ():
                function = call["function"]
                body = json.dumps({"name": function["name"], "arguments": function["arguments"]})
                text += f"<tool_call>\n{body}\n</tool_call>"
            out += f"{START}{m['role']}\n{text}{END}\n"
        return out + (f"{START}assistant\n" if options.get("add_generation_prompt") else "")

    def encode(self, text: str, **options: Any) -> list[int]:
        pattern = "|".join(map(re.escape, [*SPECIAL, *MERGES]))
        ids: list[int] = []
        for part in re.split(f"({pattern})", text):
            known = SPECIAL.get(part) or MERGES.get(part)
            ids += [known] if known else [ord(c) for c in part]
        return ids

    def decode(self, token_ids: Any, **options: Any) -> str:
        names = {v: k for k, v in {**SPECIAL, **MERGES}.items()}
        return "".join(names.get(int(i)) or chr(int(i)) for i in token_ids)


class FakeTokens:
    """SGLang's ``/generate`` and vLLM's ``/inference/v1/generate``."""

    def __init__(self) -> None:
        self.sampled: list[int] = []
        self.finish = "stop"
        self.versions: list[str] = []
        self.requests: list[dict[str, Any]] = []
        self.cumulative = False
        self.drop_logprobs = False
        self.gates: list[int] = []
        """Events before which a stream waits for ``gate``."""
        self.gate = asyncio.Event()
        self.experts: Any = None
        """Array of the experts used, (tokens, layers, top k)."""

    async def __aenter__(self) -> FakeTokens:
        app = web.Application()
        app.router.add_post("/generate", self._sglang)
        app.router.add_post("/inference/v1/generate", self._vllm)
        app.router.add_get("/health", self._health)
        app.router.add_get("/v1/models", self._models)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response()

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "tiny", "max_model_len": 4096}]})

    def logprobs(self) -> list[float]:
        return [-1 - i / 8 for i in range(len(self.sampled))]

    async def _sglang(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests.append(body)
        pairs: list[Any] = [
            [None if self.drop_logprobs else lp, i, None]
            for lp, i in zip(self.logprobs(), self.sampled, strict=True)
        ]

        def reply(start: int, end: int, last: bool) -> dict[str, Any]:
            version = self.versions[min(end, len(self.versions)) - 1] if self.versions else None
            meta: dict[str, Any] = {
                "output_token_logprobs": pairs[start:end],
                "finish_reason": {"type": self.finish} if last else None,
                "completion_tokens": end,
                "weight_version": version,
            }
            if last and body.get("return_routed_experts"):
                raw = self.experts.astype("int32").tobytes()
                meta["routed_experts"] = base64.b64encode(raw).decode()
            return {"text": "", "output_ids": self.sampled[start:end], "meta_info": meta}

        n = len(pairs)
        if not body["stream"]:
            return web.json_response(reply(0, n, True))
        steps = [(0 if self.cumulative else i, i + 1, i + 1 == n) for i in range(n)]
        return await self._stream(request, [reply(*step) for step in steps])

    def _npy(self) -> str:
        file = io.BytesIO()
        np.save(file, self.experts.astype("uint8"))
        return base64.b64encode(file.getvalue()).decode()

    async def _vllm(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if "token_ids" not in body:
            return web.json_response({"error": {"message": "token_ids is missing"}}, status=422)
        self.requests.append(body)

        def reply(start: int, end: int, last: bool) -> dict[str, Any]:
            content = [{"token_id": 0, "logprob": lp} for lp in self.logprobs()[start:end]]
            choice: dict[str, Any] = {
                "index": 0,
                "token_ids": self.sampled[start:end],
                "logprobs": {"content": content},
                "finish_reason": self.finish if last else None,
                "routed_experts": self._npy() if last and self.experts is not None else None,
            }
            if last and self.versions:
                choice["weight_versions"] = [
                    {"version": v, "start": i, "end": i + 1} for i, v in enumerate(self.versions)
                ]
            return {"request_id": "g", "choices": [choice]}

        n = len(self.sampled)
        if not body["stream"]:
            return web.json_response(reply(0, n, True))
        return await self._stream(request, [reply(i, i + 1, i + 1 == n) for i in range(n)])

    async def _stream(self, request: web.Request, events: list[Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for at, event in enumerate(events):
            if at in self.gates:
                await self.gate.wait()
            await response.write(f"data: {json.dumps(event)}\n\n".encode())
            await asyncio.sleep(0)
        await response.write(b"data: [DONE]\n\n")
        return response
