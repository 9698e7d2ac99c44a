"""The engine behind HTTP, in the shape of vLLM's token-in/token-out API.

Routes: ``POST /inference/v1/generate`` (also as server-sent events), ``GET /health``, ``/load``,
``/metrics``, ``/v1/models``, ``/is_paused``, ``/weight_info``, ``POST /pause`` (``?mode=`` wait,
keep or abort), ``/resume``, ``/abort_requests``, ``/update_weight_version``. A client that
disconnects aborts its request. Whatever the engine cannot do is a 400 that says so.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from ..errors import ConfigError, ToolkitError
from ..trajectory.turn import Span
from .engine import Engine
from .request import MAX_CHOICES, Completion, Piece, Sampling

logger = logging.getLogger(__name__)

MAX_BODY_BYTES = 64 * 1024 * 1024

ENGINE: web.AppKey[Engine] = web.AppKey("engine", Engine)
NAME: web.AppKey[str] = web.AppKey("name", str)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class GenerateRequest(msgspec.Struct):
    token_ids: list[int]
    sampling_params: dict[str, Any] = {}
    model: str | None = None
    stream: bool = False
    return_token_ids: bool = False
    request_id: str | None = None
    stream_options: dict[str, Any] | None = None


def make_app(engine: Engine, name: str) -> web.Application:
    app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[_errors])
    app[ENGINE], app[NAME] = engine, name
    app.router.add_post("/inference/v1/generate", _generate)
    app.router.add_get("/v1/models", _models)
    app.router.add_get("/health", _health)
    app.router.add_get("/load", _load)
    app.router.add_get("/metrics", _metrics)
    app.router.add_get("/is_paused", _is_paused)
    app.router.add_get("/weight_info", _weight_info)
    app.router.add_post("/pause", _pause)
    app.router.add_post("/resume", _resume)
    app.router.add_post("/abort_requests", _abort)
    app.router.add_post("/update_weight_version", _update_weight_version)
    return app


@asynccontextmanager
async def serving(
    engine: Engine, *, name: str = "policy", host: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[str]:
    """Serves a started engine; gives its URL."""
    # a handler whose client went away is cancelled, which aborts its request
    runner = web.AppRunner(make_app(engine, name), access_log=None, handler_cancellation=True)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        bound = runner.addresses[0][1]
        yield f"http://{host}:{bound}"
    finally:
        await runner.cleanup()


async def serve(
    model_dir: str | Path,
    port: int = 0,
    *,
    host: str = "127.0.0.1",
    name: str | None = None,
    ready: Callable[[str], None] | None = None,
    **options: Any,
) -> None:
    """Serves the model of a folder until cancelled. ``ready`` is called with the URL."""
    folder = Path(model_dir).expanduser()
    engine = await asyncio.to_thread(lambda: Engine.from_folder(folder, **options))
    with engine:
        async with serving(engine, name=name or folder.name, host=host, port=port) as url:
            logger.info("url=<%s> model=<%s> | engine serves", url, folder)
            if ready is not None:
                ready(url)
            await asyncio.Event().wait()


# --- generate ---------------------------------------------------------------------------------


async def _generate(request: web.Request) -> web.StreamResponse:
    engine = request.app[ENGINE]
    body = _decode(await request.read())
    if body.model not in (None, request.app[NAME]):
        raise ConfigError(f"model {body.model!r} is not served here: use {request.app[NAME]!r}")
    params = dict(body.sampling_params)
    choices = params.pop("n", None) or 1
    if not isinstance(choices, int) or not 1 <= choices <= MAX_CHOICES:
        raise ConfigError(f"sampling_params.n must be 1 to {MAX_CHOICES}")
    with_logprobs = params.get("logprobs") is not None
    sampling = Sampling.parse(params)
    if body.stream:
        if choices > 1:
            raise ConfigError("sampling_params.n > 1 cannot be streamed by this engine")
        return await _stream(request, engine, body, sampling, with_logprobs)
    name = body.request_id
    calls = [
        engine.generate(
            body.token_ids,
            sampling,
            request_id=name if choices == 1 or name is None else f"{name}-{index}",
        )
        for index in range(choices)
    ]
    done = await asyncio.gather(*calls)
    return _json(_answer(body, done, with_logprobs))


def _answer(
    body: GenerateRequest, done: Sequence[Completion], with_logprobs: bool
) -> dict[str, Any]:
    sampled = sum(len(c.token_ids) for c in done)
    return {
        "request_id": body.request_id or done[0].request_id,
        "usage": _usage(len(body.token_ids), sampled),
        "prompt_token_ids": body.token_ids if body.return_token_ids else None,
        "output_mode": "tokens",
        "choices": [
            {
                "index": index,
                "finish_reason": c.finish_reason,
                "stop_reason": c.stop_id,
                "token_ids": c.token_ids,
                "routed_experts": None,
                "weight_versions": _versions(c.versions),
                "logprobs": _logprobs(c) if with_logprobs else None,
            }
            for index, c in enumerate(done)
        ],
    }


async def _stream(
    request: web.Request,
    engine: Engine,
    body: GenerateRequest,
    sampling: Sampling,
    with_logprobs: bool,
) -> web.StreamResponse:
    name = body.request_id or f"generate-tokens-{uuid.uuid4().hex}"
    sampled = 0
    async with aclosing(engine.stream(body.token_ids, sampling, request_id=name)) as pieces:
        # the first piece before the headers: a request that is refused is then still a 400
        piece = await anext(pieces)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        while True:
            sampled += len(piece.token_ids)
            await _send(response, {"request_id": name, "choices": [_choice(piece, with_logprobs)]})
            if piece.finish_reason is not None:
                break
            piece = await anext(pieces)
    if (body.stream_options or {}).get("include_usage"):
        usage = _usage(len(body.token_ids), sampled)
        await _send(response, {"request_id": name, "choices": [], "usage": usage})
    await response.write(b"data: [DONE]\n\n")
    await response.write_eof()
    return response


def _choice(piece: Piece, with_logprobs: bool) -> dict[str, Any]:
    return {
        "index": 0,
        "token_ids": piece.token_ids,
        "finish_reason": piece.finish_reason,
        "weight_versions": _versions(piece.versions),
        "logprobs": _logprobs(piece) if with_logprobs else None,
    }


async def _send(response: web.StreamResponse, event: dict[str, Any]) -> None:
    await response.write(b"data: " + msgspec.json.encode(event) + b"\n\n")


def _logprobs(got: Piece | Completion) -> dict[str, Any]:
    """In vLLM's shape, and the entropy of what each id was drawn from."""
    tops = got.top_logprobs or [[] for _ in got.token_ids]
    columns = zip(got.token_ids, got.logprobs, got.entropies, tops, strict=True)
    content = [
        {
            "token_id": token_id,
            "logprob": logprob,
            "entropy": entropy,
            "top_logprobs": [{"token_id": t, "logprob": p} for t, p in top],
        }
        for token_id, logprob, entropy, top in columns
    ]
    return {"content": content}


def _versions(spans: Sequence[Span]) -> list[dict[str, Any]]:
    return [{"version": version, "start": start, "end": end} for version, start, end in spans]


def _usage(prompt: int, sampled: int) -> dict[str, int]:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": sampled,
        "total_tokens": prompt + sampled,
    }


# --- state ------------------------------------------------------------------------------------


async def _models(request: web.Request) -> web.Response:
    card = {
        "id": request.app[NAME],
        "object": "model",
        "created": 0,
        "owned_by": "agentcore-rl-toolkit",
        "max_model_len": request.app[ENGINE].max_tokens,
    }
    return _json({"object": "list", "data": [card]})


async def _health(request: web.Request) -> web.Response:
    healthy = request.app[ENGINE].healthy
    return _json({"status": "ok" if healthy else "stopped"}, 200 if healthy else 503)


async def _load(request: web.Request) -> web.Response:
    load = request.app[ENGINE].load()
    return _json({"server_load": load["running"] + load["waiting"], **load})


async def _metrics(request: web.Request) -> web.Response:
    engine = request.app[ENGINE]
    load, counts = engine.load(), engine.counts
    gauges = {
        "vllm:num_requests_running": load["running"],
        "vllm:num_requests_waiting": load["waiting"],
        "art_engine_rows": load["rows"],
        "art_engine_tokens": load["tokens"],
        "art_engine_cache_bytes": load["cache_bytes"],
        "art_engine_paused": int(engine.paused),
    }
    counters = {
        "art_engine_requests_total": counts.requests,
        "art_engine_aborted_total": counts.aborted,
        "art_engine_failed_total": counts.failed,
        "art_engine_prompt_tokens_total": counts.prompt_tokens,
        "art_engine_reused_tokens_total": engine.reused_tokens,
        "art_engine_sampled_tokens_total": counts.sampled_tokens,
        "art_engine_steps_total": counts.steps,
        "art_engine_busy_seconds_total": round(counts.busy_s, 6),
    }
    lines = [f"# TYPE {name} gauge\n{name} {value}" for name, value in gauges.items()]
    lines += [f"# TYPE {name} counter\n{name} {value}" for name, value in counters.items()]
    return web.Response(text="\n".join(lines) + "\n")


async def _is_paused(request: web.Request) -> web.Response:
    return _json({"is_paused": request.app[ENGINE].paused})


async def _weight_info(request: web.Request) -> web.Response:
    return _json({"weight_version": request.app[ENGINE].version})


async def _pause(request: web.Request) -> web.Response:
    mode: Any = request.query.get("mode", "wait")
    await asyncio.to_thread(request.app[ENGINE].pause, mode)
    return _json({"status": "paused"})


async def _resume(request: web.Request) -> web.Response:
    request.app[ENGINE].resume()
    return _json({"status": "resumed"})


async def _abort(request: web.Request) -> web.Response:
    body = await _object(request)
    ids = body.get("request_ids")
    if ids is not None and not (isinstance(ids, list) and all(isinstance(i, str) for i in ids)):
        raise ConfigError("request_ids must be a list of strings, or left out for all")
    request.app[ENGINE].abort(ids)
    return _json({"status": "ok"})


async def _update_weight_version(request: web.Request) -> web.Response:
    body = await _object(request)
    version = body.get("weight_version", body.get("new_version"))
    if not isinstance(version, str) or not version:
        raise ConfigError('the body must be {"weight_version": "<non-empty string>"}')
    request.app[ENGINE].set_version(version)
    return _json({"weight_version": version})


# --- wire -------------------------------------------------------------------------------------


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    if "Origin" in request.headers:
        return _error(403, "browsers are refused: this engine is for programs on this machine")
    try:
        return await handler(request)
    except ConfigError as error:
        return _error(400, str(error))
    except ToolkitError as error:
        return _error(503, str(error))


def _decode(body: bytes) -> GenerateRequest:
    try:
        return msgspec.json.decode(body, type=GenerateRequest)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"the request body is not understood: {error}") from None


async def _object(request: web.Request) -> dict[str, Any]:
    body = await request.read()
    try:
        return msgspec.json.decode(body or b"{}", type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise ConfigError(f"the request body is not a JSON object: {error}") from None


def _json(value: Any, status: int = 200) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(value), status=status, content_type="application/json"
    )


def _error(status: int, message: str) -> web.Response:
    kind = "invalid_request_error" if status < 500 else "engine_error"
    return _json({"error": {"message": message, "type": kind, "code": status}}, status)
