"""What samples: one file an engine, chosen by ``kind:url``."""

from __future__ import annotations

from collections.abc import Mapping

from ...errors import ConfigError
from .base import Answer, Capabilities, Engine, Sampled, Stream
from .chat import ChatEngine
from .generate import GenerateEngine
from .recording import RecordingEngine
from .sglang import SGLangEngine
from .tinker import TinkerEngine
from .vllm import VLLMEngine

KINDS: dict[str, type[Engine]] = {
    engine.kind: engine
    for engine in (VLLMEngine, GenerateEngine, SGLangEngine, TinkerEngine, ChatEngine)
}


def make_engine(
    spec: str, *, model: str | None = None, headers: Mapping[str, str] | None = None
) -> Engine:
    """``vllm:http://host:8000``; the part after ``#`` is the model's name at the engine.

    ``replay:RUN_FOLDER#SESSION`` gives recorded answers; without a session, those of all.
    """
    kind, _, url = spec.partition(":")
    url, _, fragment = url.partition("#")
    if kind == RecordingEngine.kind and url:
        return RecordingEngine(url, model=fragment or None)
    if kind not in KINDS or not url.startswith(("http://", "https://")):
        raise ConfigError(
            f"{spec!r} is not an engine: write one of {', '.join(KINDS)}, a colon and its URL, "
            "such as vllm:http://127.0.0.1:8000"
        )
    return KINDS[kind](url, model=fragment or model, headers=headers)


__all__ = ["KINDS", "Answer", "Capabilities", "Engine", "Sampled", "Stream", "make_engine"]
