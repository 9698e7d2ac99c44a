"""A stand-in for SGLang behind its router: the HTTP that slime and the gateway use of it.

Answers ``/generate`` with ids of ``answer`` and their log-probabilities; ``version`` is that of
its weights. ``hold`` makes calls wait until they are aborted; ``die`` cuts connections.
"""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web

LOGPROB = -0.25


class FakeSGLang:
    def __init__(self, answer: list[int]) -> None:
        self.answer = answer
        self.version = "1"
        self.calls: list[dict[str, Any]] = []
        self.keys: list[str] = []
        """Routing keys, a call each."""
        self.die = 0
        """Calls that get no answer."""
        self.hold = False
        self.delay_s = 0.0
        self.waiting = 0
        self._aborted = asyncio.Event()
        self.port = 0

    async def __aenter__(self) -> FakeSGLang:
        app = web.Application()
        app.router.add_post("/generate", self._generate)
        app.router.add_get("/workers", self._workers)
        app.router.add_post("/abort_request", self._abort)
        app.router.add_get("/v1/loads", self._loads)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/health", self._health)
        self._runner = web.AppRunner(app, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._aborted.set()
        await self._runner.cleanup()

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.calls.append(body)
        self.keys.append(request.headers.get("X-SMG-Routing-Key", ""))
        if self.die:
            self.die -= 1
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        await asyncio.sleep(self.delay_s)
        finish: dict[str, Any] = {"type": "stop", "matched": self.answer[-1]}
        if self.hold:
            self.waiting += 1
            await self._aborted.wait()
            self.waiting -= 1
            finish = {"type": "abort", "message": "aborted"}
        ids = self.answer[: body["sampling_params"].get("max_new_tokens") or None]
        meta = {
            "id": body.get("rid", "r"),
            "finish_reason": finish,
            "prompt_tokens": len(body["input_ids"]),
            "completion_tokens": len(ids),
            "cached_tokens": 0,
            "weight_version": self.version,
            "output_token_logprobs": [[LOGPROB, token, None] for token in ids],
        }
        return web.json_response({"text": "", "output_ids": ids, "meta_info": meta})

    async def _workers(self, request: web.Request) -> web.Response:
        return web.json_response({"workers": [{"url": f"http://127.0.0.1:{self.port}"}]})

    async def _abort(self, request: web.Request) -> web.Response:
        self._aborted.set()
        return web.json_response({})

    async def _loads(self, request: web.Request) -> web.Response:
        return web.json_response({"loads": [{"num_reqs": self.waiting}]})

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "policy", "max_model_len": 4096}]})

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response()
