"""A gateway in another process, as the collector uses it: over HTTP, with patience.

A broken connection and a 5xx are tried again until ``PATIENCE_S`` is over. An opening whose answer
was lost may have happened: then the session is in the way, is removed, and is opened again.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import aiohttp
import msgspec
import numpy as np

from agentcore_rl_toolkit.gateway.admin import Finished, Opened
from agentcore_rl_toolkit.gateway.fault import Refusal
from agentcore_rl_toolkit.gateway.session import OpenSession
from agentcore_rl_toolkit.trajectory.path import SessionCount
from agentcore_rl_toolkit.trajectory.row import Row, RowStatus, TurnSpan

PATIENCE_S = 45.0
CALL_S = 30.0
ARRAYS: dict[str, Any] = {
    "token_ids": np.int32,
    "loss_mask": np.uint8,
    "logprobs": np.float32,
    "turn_index": np.int32,
}


class RemoteGateway:
    def __init__(self, http: aiohttp.ClientSession, url: str, token: str) -> None:
        self._http, self._url = http, url
        self._headers = {"authorization": f"Bearer {token}"}
        self.broken = 0
        """Calls that had to be made again."""

    async def open_session(self, spec: OpenSession) -> Opened:
        body = msgspec.to_builtins(spec)
        try:
            answer = await self._call("POST", "/sessions", body)
        except Refusal as refusal:
            if refusal.status != 409:
                raise
            await self._call("DELETE", f"/sessions/{spec.session_id}")
            answer = await self._call("POST", "/sessions", body)
        return msgspec.convert(answer, Opened)

    async def finish_session(
        self,
        session_id: str,
        metadata: dict[str, Any] | None = None,
        timeout_s: float | None = None,
    ) -> Finished:
        body = {"metadata": metadata or {}, "timeout_s": timeout_s}
        answer = await self._call("POST", f"/sessions/{session_id}/finish", body)
        count = msgspec.convert(answer.pop("count"), SessionCount)
        rows = [read_row(row) for row in answer.pop("rows")]
        return Finished(answer, count, rows, count.model_s)

    async def _call(self, method: str, path: str, body: Any = None) -> Any:
        deadline = time.monotonic() + PATIENCE_S
        pause = 0.1
        while True:
            try:
                return await self._once(method, path, body)
            except (aiohttp.ClientError, TimeoutError, OSError, Refusal) as error:
                if isinstance(error, Refusal) and error.status < 500:
                    raise
                if time.monotonic() > deadline:
                    raise Refusal(503, f"the gateway was not reached: {error!r}") from error
                self.broken += 1
                await asyncio.sleep(pause)
                pause = min(2.0, pause * 2)

    async def _once(self, method: str, path: str, body: Any) -> Any:
        timeout = aiohttp.ClientTimeout(total=CALL_S)
        async with self._http.request(
            method, self._url + path, json=body, headers=self._headers, timeout=timeout
        ) as reply:
            text = await reply.text()
            if reply.status >= 400:
                raise Refusal(reply.status, text[:500])
            return json.loads(text)


def read_row(value: dict[str, Any]) -> Row:
    given = dict(value)
    for name, kind in ARRAYS.items():
        given[name] = np.array(given[name], kind)
    given["turns"] = [TurnSpan(*span) for span in given["turns"]]
    given["weight_versions"] = [tuple(span) for span in given["weight_versions"]]
    given["status"] = RowStatus(given["status"])
    given["routed_experts"] = []
    return Row(**given)
