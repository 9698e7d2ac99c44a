"""The gateway's engine inside verl: its own token-in/token-out server client.

verl balances, retries and, in its asynchronous modes, resumes what a weight update cut off; a
session is pinned to the server that holds its prefix by giving its id as request id. The client
answers whole, so a streamed call is one event. verl says only that an answer is complete: whether
it ended by itself or at its limit is read off its length and last id.
"""

from __future__ import annotations

import asyncio
import io
from typing import Any, Protocol

import msgspec
import numpy as np

from ...gateway.dialects.base import Ask
from ...gateway.engines.answer import Tokens
from ...gateway.engines.base import Capabilities
from ...gateway.engines.tinker import SdkReply
from ...gateway.engines.tokens import TokenEngine
from ...gateway.upstream import Reply, Upstream, UpstreamError

HERE = "http://verl.invalid"
"""Engines have an address; this one is reached without."""
ROUTING = "x-smg-routing-key: "


class ServerClient(Protocol):
    """The slice of verl's ``LLMServerClient`` that is used."""

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]
    ) -> Any: ...


class _Call(msgspec.Struct):
    prompt: list[int]
    n: int
    sampling: dict[str, Any]
    stream: bool = False
    experts_from: int | None = None
    """First id whose experts are wanted; None: none are."""


class _Choice(msgspec.Struct):
    index: int
    ids: list[int]
    logprobs: list[float]
    finish_reason: str
    versions: list[tuple[str, int, int]] = []
    experts: bytes | None = None


encode = msgspec.json.Encoder().encode
_call = msgspec.json.Decoder(_Call)
_choices = msgspec.json.Decoder(list[_Choice])


class VerlEngine(TokenEngine):
    kind = "verl"
    path = "/generate"

    def __init__(self, client: ServerClient, *, max_tokens: int) -> None:
        super().__init__(HERE)
        self.http.close()
        self.http = Link(client)
        self.capabilities = Capabilities(max_tokens=max_tokens)

    async def healthy(self) -> bool:
        return True  # verl watches its servers itself

    async def probe(self) -> Capabilities:
        return self.capabilities

    def request(self, ask: Ask, ids: list[int], sampling: dict[str, Any]) -> dict[str, Any]:
        return {
            "prompt": ids,
            "n": ask.n,
            "sampling": sampling,
            "stream": ask.stream,
            "experts_from": ask.known if self.experts else None,
        }

    def answers(self, body: bytes) -> list[Tokens]:
        return [
            Tokens(one.index, one.ids, one.logprobs, one.finish_reason, one.versions, one.experts)
            for one in _choices.decode(body)
        ]


class Link(Upstream):
    """verl's client in the place of a connection pool."""

    def __init__(self, client: ServerClient) -> None:
        super().__init__(HERE)
        self._client = client

    async def send(
        self, method: str, path: str, body: bytes = b"", headers: str = "", **_: Any
    ) -> Reply:
        call = _call.decode(body)
        session_id = headers.partition(ROUTING)[2].partition("\r\n")[0]
        try:
            outputs = await asyncio.gather(
                *(self._generate(session_id, call) for _ in range(call.n))
            )
        except Exception as error:  # Ray hands on whatever the server raised
            raise UpstreamError(f"verl: {type(error).__name__}: {error}") from error
        written = encode([choice_of(at, call, output) for at, output in enumerate(outputs)])
        return SdkReply(b"data: %b\n\n" % written if call.stream else written)

    async def _generate(self, session_id: str, call: _Call) -> Any:
        # a copy: verl takes parameters out of the dict that it is given
        sampling = {**call.sampling, "logprobs": True}
        return await self._client.generate(
            session_id, prompt_ids=call.prompt, sampling_params=sampling
        )


def choice_of(index: int, call: _Call, output: Any) -> _Choice:
    ids = [int(i) for i in output.token_ids]
    return _Choice(
        index,
        ids,
        [float(p) for p in output.log_probs or ()],
        finish_reason(ids, call.sampling, output.stop_reason),
        versions(output.extra_fields, len(ids)),
        None if call.experts_from is None else experts(output, call.experts_from),
    )


def finish_reason(ids: list[int], sampling: dict[str, Any], said: str | None) -> str:
    if said == "aborted":
        return "abort"
    ended = bool(ids) and ids[-1] in (sampling.get("stop_token_ids") or ())
    return "length" if not ended and len(ids) >= sampling["max_tokens"] else "stop"


def versions(said: dict[str, Any], n: int) -> list[tuple[str, int, int]]:
    """Of an answer that a weight update interrupted only its two ends are known."""
    first, last = said.get("min_global_steps"), said.get("max_global_steps")
    if first is None or last is None or not n:
        return []
    if first == last:
        return [(str(first), 0, n)]
    return [(str(first), 0, 1), *([(str(last), n - 1, n)] if n > 1 else [])]


def experts(output: Any, start: int) -> bytes | None:
    """As a ``.npy`` file, from the first id that is new in this turn."""
    if output.routed_experts is None:
        return None
    file = io.BytesIO()
    np.save(file, np.asarray(output.routed_experts)[start:], allow_pickle=False)
    return file.getvalue()
