"""Enough of AgentCore and S3 to say what AWS says, on demand: refusals, slowness, death.

It runs in a thread of its own and is driven through real boto3. A payload steers its rollout:
``cold`` seconds before the acceptance, ``sleep`` seconds before the result, ``result`` what is
saved, ``vanish`` nothing is ever saved. ``script`` holds answers that are given first.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, unquote
from xml.sax.saxutils import escape

from aiohttp import web

SESSION = "X-Amzn-Bedrock-AgentCore-Runtime-Session-Id"
ARN = "arn:aws:bedrock-agentcore:us-west-2:123456789012:runtime/agent-AbCdEf0123"
BUCKET = "results"


class FakeAws:
    def __init__(self) -> None:
        self.script: deque[tuple[int, str, str] | str] = deque()
        """(status, error type, message), or a word: close, half, hang, plain."""
        self.stop_script: deque[tuple[int, str, str]] = deque()
        self.headers: dict[str, str] = {}
        self.answer: dict[str, Any] | None = None
        self.status: Callable[[str], dict[str, Any]] = lambda session: {"status": "running"}
        self.max_sessions = 10**6
        self.objects: dict[str, bytes] = {}
        self.s3_faults = self.s3_halves = 0
        self.list_denied = self.head_denied = False
        self.page_size = 1000
        self.live: set[str] = set()
        self.peak = 0
        self.started: list[str] = []
        self.stopped: list[str] = []
        self.invoked_at: list[float] = []
        self.payloads: list[dict[str, Any]] = []
        self.count: Counter[str] = Counter()
        self.url = ""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._ready = threading.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> FakeAws:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(10)
        self._loop.close()

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        self._end = asyncio.Event()
        app = web.Application(client_max_size=1 << 28)
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
        self.url = f"http://127.0.0.1:{port}"
        self._ready.set()
        await self._end.wait()
        for task in self._tasks:
            task.cancel()
        await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if re.fullmatch(r"/runtimes/.+/invocations", request.path):
            return await self._invoke(request)
        if re.fullmatch(r"/runtimes/.+/stopruntimesession", request.path):
            return self._stop(request)
        return self._s3(request)

    # --- AgentCore ----------------------------------------------------------------------------

    async def _invoke(self, request: web.Request) -> web.StreamResponse:
        session, body = request.headers[SESSION], await request.json()
        self.count["invoke"] += 1
        self.invoked_at.append(time.monotonic())
        if body["_rollout"].get("action") == "status":
            self.count["status"] += 1
            return web.json_response(self.status(session), headers={SESSION: session})
        self.payloads.append(body)
        if self.script:
            said = self.script.popleft()
            if not isinstance(said, str):
                return self._refuse(*said)
            if said == "close":
                assert request.transport is not None
                request.transport.close()
                return web.Response()
            if said == "half":
                self._begin(session)
                self._spawn(self._work(body))
                return half_head(request)
            if said == "plain":
                self._begin(session)
                return web.json_response({"answer": 42})
            if said == "hang":
                self._begin(session)
                self._spawn(self._work(body))
                await asyncio.sleep(30)
        if len(self.live) >= self.max_sessions:
            return self._refuse(402, "ServiceQuotaExceededException", "maxVms limit exceeded")
        self._begin(session)
        await asyncio.sleep(body.get("cold", 0))
        self._spawn(self._work(body))
        block = body["_rollout"]
        answer = self.answer or {
            "status": "processing",
            "s3_bucket": block["s3_bucket"],
            "result_key": key_of(body),
        }
        return web.json_response(answer, headers={SESSION: session})

    def _begin(self, session: str) -> None:
        self.live.add(session)
        self.peak = max(self.peak, len(self.live))
        self.started.append(session)

    def _spawn(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _work(self, body: dict[str, Any]) -> None:
        await asyncio.sleep(body.get("sleep", 0))
        if not body.get("vanish"):
            result = body.get("result", {"rewards": 1.0, "status_code": 200})
            self.objects[key_of(body)] = json.dumps(result).encode()

    def _stop(self, request: web.Request) -> web.Response:
        self.count["stop"] += 1
        if self.stop_script:
            return self._refuse(*self.stop_script.popleft())
        session = request.headers[SESSION]
        self.live.discard(session)
        self.stopped.append(session)
        return web.json_response({}, headers={SESSION: session})

    def _refuse(self, status: int, kind: str, message: str) -> web.Response:
        headers = {"x-amzn-ErrorType": kind, **self.headers}
        return web.json_response({"message": message}, status=status, headers=headers)

    # --- S3 -----------------------------------------------------------------------------------

    def _s3(self, request: web.Request) -> web.Response:
        bucket, _, key = unquote(request.raw_path.split("?")[0]).lstrip("/").partition("/")
        op = "list" if not key else request.method.lower()
        self.count[op] += 1
        if self.s3_halves > 0:
            self.s3_halves -= 1
            return half_head(request)
        if self.s3_faults > 0:
            self.s3_faults -= 1
            return _xml(503, "SlowDown", request)
        if bucket != BUCKET:
            return _xml(404, "NoSuchBucket", request)
        if not key:
            return _xml(403, "AccessDenied", request) if self.list_denied else self._list(request)
        if key not in self.objects:
            denied = self.head_denied
            return _xml(403 if denied else 404, "AccessDenied" if denied else "NoSuchKey", request)
        return web.Response(body=self.objects[key], content_type="application/json")

    def _list(self, request: web.Request) -> web.Response:
        query = request.query
        after = query.get("continuation-token") or query.get("start-after") or ""
        keys = sorted(k for k in self.objects if k.startswith(query["prefix"]) and k > after)
        page, more = keys[: self.page_size], len(keys) > self.page_size
        entries = "".join(
            f"<Contents><Key>{quote(key)}</Key><Size>1</Size></Contents>" for key in page
        )
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
        text = (
            f"<ListBucketResult><EncodingType>url</EncodingType><KeyCount>{len(page)}</KeyCount>"
            f"<IsTruncated>{str(more).lower()}</IsTruncated>{token}{entries}</ListBucketResult>"
        )
        return web.Response(text=text, content_type="application/xml")


def half_head(request: web.Request) -> web.Response:
    """The connection ends inside the head of the answer."""
    assert request.transport is not None
    request.transport.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Amzn-Be")
    request.transport.close()
    return web.Response()


def key_of(body: dict[str, Any]) -> str:
    block = body["_rollout"]
    return f"{block['exp_id']}/{block['input_id']}/{block['session_id']}.json"


def _xml(status: int, code: str, request: web.Request) -> web.Response:
    text = f"<Error><Code>{code}</Code><Message>{code}</Message></Error>"
    body = None if request.method == "HEAD" else text.encode()
    return web.Response(status=status, body=body, content_type="application/xml")
