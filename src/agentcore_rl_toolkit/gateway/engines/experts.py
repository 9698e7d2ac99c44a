"""Which experts a mixture-of-experts model used at every token, as bytes (experimental).

Engines send them as base64 text: vLLM of a ``.npy`` file, which tells its own shape and type,
SGLang of bare int32 values. The gateway decodes the text and keeps the bytes; as lists of numbers
they would be tens of megabytes a turn. Asked for from the first id that is new in a turn, so a
turn does not carry its history's experts again.
"""

from __future__ import annotations

import base64
import binascii
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..fault import engine_fault

NPY = b"\x93NUMPY"


def decode_experts(text: str | bytes | None) -> bytes | None:
    """The bytes in an engine's text."""
    if not text:
        return None
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise engine_fault(f"the engine's routed experts are not base64: {error}") from error


def load_experts(data: bytes, *, layers: int, top_k: int) -> NDArray[Any]:
    """Shape (tokens, layers, top_k), from either engine's bytes."""
    if data.startswith(NPY):
        found: NDArray[Any] = np.load(io.BytesIO(data), allow_pickle=False)
    else:
        found = np.frombuffer(data, np.int32)
    return found.reshape(-1, layers, top_k)
