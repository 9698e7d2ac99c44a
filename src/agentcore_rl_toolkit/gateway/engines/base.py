"""The seam between the gateway and what samples.

An engine turns an ``Ask`` into its own request and its reply into two things at once: the bytes
that the client may see, and the exact ids and log-probabilities of every choice. It owns its
connections; it never sees sessions, journals or graphs. Missing log-probabilities or ids are a
``Refusal``, never zeros.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec
from msgspec import Raw

from ...trajectory.strand import Prompt
from ...trajectory.turn import Span
from ..dialects.base import Ask, encode
from ..dialects.chat import CHAT
from ..fault import Refusal, bad_request, engine_fault
from ..upstream import Upstream
from ..wire import IdText

PROBE_PROMPT = (1).to_bytes(4, "little")
"""One id that every vocabulary has."""
PROBE_S = 60.0

_error_shape = msgspec.json.Decoder(dict[str, Raw])


class Sampled(msgspec.Struct):
    """One choice, captured."""

    index: int
    sampled: bytes = b""
    """Packed int32."""
    logprobs: bytes | None = None
    """Packed float32; None when the model is not trained."""
    prompt_text: IdText | None = None
    """Prompt ids as the engine wrote them, ``1,2,3``."""
    prompt: bytes | Prompt | None = None
    """Packed prompt ids, when the gateway made them itself or has packed them."""
    finish_reason: str = "stop"
    message: bytes = b""
    versions: list[Span] = []
    routed_experts: bytes | None = None
    entropies: bytes | None = None
    """Packed float32, where the engine tells them."""
    flags: list[str] = []
    stop: str | None = None
    """The stop sequence that ended it, where the engine or its text says so."""


class Answer(msgspec.Struct):
    body: bytes
    """What the client gets."""
    choices: list[Sampled]


class Prepared(msgspec.Struct):
    path: str
    body: bytes
    headers: str = ""


class Stream(abc.ABC):
    """Reads one streamed reply, event by event."""

    finished: bool = False
    """Every choice has its finish reason: nothing that will be captured comes any more."""
    tokens: int = 0
    """Events with sampled tokens so far."""
    held: int = 0
    """Characters that one of the next events may make it read at once."""

    @abc.abstractmethod
    def feed(self, events: list[bytes]) -> tuple[bytes, bytes]:
        """Client bytes to relay now, and client bytes to hold until the turn is durable."""

    @abc.abstractmethod
    def result(self) -> list[Sampled]:
        """All choices; Refusal when something that capture needs was missing."""

    @abc.abstractmethod
    def partial(self) -> list[Sampled]:
        """What was sampled before a stream was cut: recorded, never trained."""


class Capabilities(msgspec.Struct):
    """What a probe saw; shown by the admin API."""

    models: list[str] = []
    version: str | None = None
    max_tokens: int | None = None
    token_ids: bool | None = None
    """None: not probed, see ``probe_sampling``."""
    logprobs: bool | None = None
    problem: str | None = None


class Engine(abc.ABC):
    kind: ClassVar[str]
    exact: ClassVar[bool] = True
    """Gives ids and log-probabilities, so that its turns can be trained."""
    takes_ids: ClassVar[bool] = False
    """Wants the prompt as ids, rendered by the gateway."""
    dialects: ClassVar[frozenset[str]] = frozenset({"chat", "completions"})

    def __init__(
        self, url: str, *, model: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        self.model = model
        """Name that the engine serves; None: the name that the client used, or the only one."""
        self.http = Upstream(self.url, headers)
        self.capabilities = Capabilities()

    @property
    def name(self) -> str:
        return self.url.partition("//")[2].rpartition("@")[2]

    @abc.abstractmethod
    def prepare(self, ask: Ask, session_id: str) -> Prepared: ...

    @abc.abstractmethod
    def read(self, ask: Ask, body: bytes) -> Answer: ...

    @abc.abstractmethod
    def stream(self, ask: Ask) -> Stream: ...

    async def healthy(self) -> bool:
        status, _ = await self.http.ask("GET", "/health", timeout=5.0)
        return status == 200

    async def probe(self) -> Capabilities:
        """Looks without sampling; subclasses add what they need."""
        self.capabilities = seen = Capabilities()
        try:
            status, body = await self.http.ask("GET", "/v1/models")
            models = _models.decode(body).data if status == 200 else []
            seen.models = [model.id for model in models]
            seen.max_tokens = next((m.max_model_len for m in models if m.max_model_len), None)
            if status != 200:
                seen.problem = f"/v1/models answered {status}"
        except (OSError, TimeoutError, msgspec.DecodeError) as error:
            seen.problem = f"{type(error).__name__}: {error}"
        if self.model is None and len(seen.models) == 1:
            self.model = seen.models[0]
        return seen

    async def probe_sampling(self) -> Capabilities:
        """Samples one token the way every call does: ids and log-probabilities come, or not."""
        seen = self.capabilities
        if not self.exact or seen.problem is not None:
            return seen
        model = self.model or (seen.models[0] if seen.models else "")
        messages = [{"role": "user", "content": "."}]
        ask = CHAT.parse(encode({"model": model, "messages": messages, "max_tokens": 1}))
        ask.prompt = PROBE_PROMPT if self.takes_ids else None
        prepared = self.prepare(ask, "probe")
        try:
            status, body = await self.http.ask("POST", prepared.path, prepared.body, PROBE_S)
            if status != 200:
                raise engine_fault(f"a call was answered with {status}: {body[:200]!r}")
            self.read(ask, body)
            seen.token_ids = seen.logprobs = True
        except Refusal as refusal:
            seen.token_ids = seen.logprobs = False
            seen.problem = refusal.message
        except (OSError, TimeoutError) as error:
            seen.problem = f"a call failed: {type(error).__name__}: {error}"
        return seen

    async def control(self, path: str, body: Mapping[str, Any] | None = None) -> None:
        """A management call; GatewayError as Refusal when the engine does not accept it."""
        payload = msgspec.json.encode(body) if body is not None else b""
        status, answer = await self.http.ask("POST", path, payload, timeout=120.0)
        if status >= 400:
            text = answer[:300].decode("utf-8", "replace")
            raise engine_fault(f"{self.name}{path} answered {status}: {text}", retry=False)

    async def pause(self, mode: str = "keep") -> None:
        raise bad_request(f"{self.kind} engines cannot be paused")

    async def resume(self) -> None:
        raise bad_request(f"{self.kind} engines cannot be resumed")

    async def set_version(self, version: str) -> None:
        """Tells the engine its weight version, where it keeps one."""
        return

    def close(self) -> None:
        self.http.close()


class _Model(msgspec.Struct):
    id: str
    max_model_len: int | None = None


class _Models(msgspec.Struct):
    data: list[_Model] = []


_models = msgspec.json.Decoder(_Models)


def error_of(status: int, headers: Mapping[str, str], body: bytes, engine: str) -> Refusal:
    """An engine's error reply, passed on in its own words where they are in the API's shape."""
    passed = {name: headers[name] for name in ("retry-after", "retry-after-ms") if name in headers}
    try:
        shaped = "error" in _error_shape.decode(body)
    except msgspec.DecodeError:
        shaped = False
    if status < 400:
        status, shaped = 502, False
    text = body[:500].decode("utf-8", "replace").strip() or "(empty body)"
    return Refusal(
        status,
        f"the engine {engine} answered {status}: {text}",
        code="engine_error",
        retry=status in (408, 409, 429) or status >= 500,
        headers=passed,
        body=body if shaped else None,
    )


def apply_sampling(fields: dict[str, Raw], sampling: Mapping[str, Raw], *, overwrite: bool) -> None:
    """A session's sampling parameters: defaults, or the last word with ``overwrite``."""
    limits = ("max_tokens", "max_completion_tokens")
    for name, raw in sampling.items():
        same = limits if name in limits else (name,)
        if overwrite:
            for other in same:
                fields.pop(other, None)
        elif any(other in fields for other in same):
            continue
        fields[name] = raw
