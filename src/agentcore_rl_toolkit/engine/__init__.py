"""The embedded inference engine: token ids in, token ids and log-probabilities out.

``Engine`` runs any Hugging Face causal language model in a thread of this process, on the very
tensors that a trainer updates; ``serve`` puts it behind HTTP, in the shape of vLLM's
``/inference/v1/generate``.
"""

from __future__ import annotations

from ..errors import MissingExtraError

try:
    import torch as _torch  # noqa: F401
    import transformers as _transformers  # noqa: F401
except ImportError as error:
    raise MissingExtraError("train", "the embedded engine") from error

from .call import EngineError
from .engine import Engine, PauseMode
from .model import load_model, stop_ids, twin
from .request import Completion, Piece, Sampling
from .server import make_app, serve, serving

__all__ = [
    "Completion",
    "Engine",
    "EngineError",
    "PauseMode",
    "Piece",
    "Sampling",
    "load_model",
    "make_app",
    "serve",
    "serving",
    "stop_ids",
    "twin",
]
