"""Tinker's sampling client: ids in, ids and log-probabilities out.

The SDK has its own connections, retries and back-pressure, so this engine brings its own ``http``:
a call is one ``sample_async`` and its reply one JSON body or one event. Tinker does not stream.
Written as ``tinker:URL#MODEL``, where the model is a base model's name or a ``tinker://`` path of
saved weights; the API key is the model's, else ``TINKER_API_KEY``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

import msgspec

from ...errors import MissingExtraError
from ..dialects.base import Ask
from ..fault import bad_request
from ..upstream import Reply, Upstream, UpstreamError
from .answer import Tokens
from .base import Capabilities
from .tokens import TokenEngine

encode = msgspec.json.Encoder().encode

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "min_p": (0,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "logit_bias": ({},),
    "ignore_eos": (False,),
    "min_tokens": (0,),
    "stop": ([], ""),
}
"""Parameters that Tinker does not have, accepted where they change nothing."""


class SamplerLike(Protocol):
    """The slice of ``tinker.SamplingClient`` that is used."""

    async def sample_async(self, prompt: Any, num_samples: int, sampling_params: Any) -> Any: ...


class _Choice(msgspec.Struct):
    index: int
    tokens: list[int]
    logprobs: list[float]
    stop_reason: str
    version: str | None = None


class _Call(msgspec.Struct):
    prompt: list[int]
    num_samples: int
    sampling_params: dict[str, Any]
    stream: bool = False


_choices = msgspec.json.Decoder(list[_Choice])
_call = msgspec.json.Decoder(_Call)


class TinkerEngine(TokenEngine):
    kind = "tinker"
    path = "/sample"
    renames: ClassVar[dict[str, str]] = {"stop_token_ids": "stop"}

    def __init__(
        self, url: str, *, model: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(url, model=model)
        key = (headers or {}).get("authorization", "").removeprefix("Bearer ")
        self.sdk = Sdk(self.url, model, key or None)
        self.http.close()
        self.http = self.sdk

    def use(self, sampler: SamplerLike, version: str | None = None) -> None:
        """Samples from now on with another client, such as that of weights just saved."""
        self.sdk.sampler, self.sdk.version = sampler, version

    def request(self, ask: Ask, ids: list[int], sampling: dict[str, Any]) -> dict[str, Any]:
        for name, neutral in NEUTRAL.items():
            if name in ask.fields and msgspec.json.decode(ask.fields[name]) not in neutral:
                raise bad_request(f"{name!r} cannot be honoured by a tinker engine", name)
        # the SDK does not stop at a model's end of turn by itself
        stop = sorted({*(sampling.get("stop") or ()), *self.renderer.end_ids})
        params = {k: v for k, v in sampling.items() if k not in NEUTRAL}
        return {
            "prompt": ids,
            "num_samples": ask.n,
            "sampling_params": {**params, "stop": stop},
            "stream": ask.stream,
        }

    def answers(self, body: bytes) -> list[Tokens]:
        return [
            Tokens(one.index, one.tokens, one.logprobs, one.stop_reason, version=one.version)
            for one in _choices.decode(body)
        ]

    async def healthy(self) -> bool:
        return await self.sdk.ready() is None

    async def probe(self) -> Capabilities:
        problem = await self.sdk.ready()
        models = [self.model] if self.model and problem is None else []
        self.capabilities = Capabilities(models=models, problem=problem)
        return self.capabilities

    async def set_version(self, version: str) -> None:
        self.sdk.version = version


class Sdk(Upstream):
    """The SDK in the place of a connection pool."""

    def __init__(self, url: str, model: str | None, api_key: str | None) -> None:
        super().__init__(url)
        self._base_url, self._model, self._api_key = url, model, api_key
        self.sampler: SamplerLike | None = None
        self.version: str | None = None
        self.types: Any = None
        self._making = asyncio.Lock()

    async def ready(self) -> str | None:
        """What is in the way of sampling, if something is."""
        try:
            await self._sampler()
        except MissingExtraError:
            raise
        except Exception as error:  # noqa: BLE001 the SDK raises its own and httpx's
            return f"{type(error).__name__}: {error}"
        return None

    async def _sampler(self) -> SamplerLike:
        async with self._making:
            if self.types is None:
                self.types = _import().types
            if self.sampler is None:
                self.sampler = await asyncio.to_thread(self._make)
            return self.sampler

    def _make(self) -> SamplerLike:
        if self._model is None:
            raise ValueError("name the model: tinker:URL#BASE_MODEL or #tinker://PATH")
        service = _import().ServiceClient(base_url=self._base_url, api_key=self._api_key)
        saved = self._model.startswith("tinker://")
        sampler: SamplerLike = service.create_sampling_client(
            **{"model_path" if saved else "base_model": self._model}
        )
        return sampler

    async def send(
        self, method: str, path: str, body: bytes = b"", headers: str = "", **_: Any
    ) -> Reply:
        call = _call.decode(body)
        try:
            sampler, version = await self._sampler(), self.version
            answer = await sampler.sample_async(
                prompt=self.types.ModelInput.from_ints(call.prompt),
                num_samples=call.num_samples,
                sampling_params=self.types.SamplingParams(**call.sampling_params),
            )
        except MissingExtraError:
            raise
        except Exception as error:  # the SDK raises its own and httpx's
            raise UpstreamError(f"tinker: {type(error).__name__}: {error}") from error
        choices = [
            _Choice(at, list(one.tokens), list(one.logprobs or ()), str(one.stop_reason), version)
            for at, one in enumerate(answer.sequences)
        ]
        written = encode(choices)
        return SdkReply(b"data: %b\n\n" % written if call.stream else written)

    async def ask(
        self, method: str, path: str, body: bytes = b"", timeout: float = 10.0
    ) -> tuple[int, bytes]:
        async with asyncio.timeout(timeout):
            reply = await self.send(method, path, body)
        return reply.status, await reply.read()


class SdkReply(Reply):
    """An answer that is all there."""

    def __init__(self, body: bytes) -> None:
        self.status, self.headers, self._body = 200, {}, body

    async def read(self, limit: int = 0) -> bytes:
        body, self._body = self._body, b""
        return body

    async def next_chunk(self) -> bytes | None:
        return await self.read() or None

    def close(self) -> None:
        return


def _import() -> Any:
    try:
        import tinker  # type: ignore[import-not-found]
    except ImportError:
        raise MissingExtraError("tinker", "a tinker engine") from None
    return tinker
