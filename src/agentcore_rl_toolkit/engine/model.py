"""Models from a folder, and a second module on the same tensors.

float32 on a CPU (bfloat16 kernels kill the process on some of them), bfloat16 on a GPU.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch

from ..errors import ConfigError


def load_model(
    folder: str | Path, *, device: str | None = None, dtype: torch.dtype | None = None
) -> Any:
    """Any Hugging Face causal language model that was saved with ``save_pretrained``."""
    from transformers import AutoModelForCausalLM

    path = Path(folder).expanduser()
    if not (path / "config.json").is_file():
        raise ConfigError(
            f"{path} is no model folder: it has no config.json. Give a folder that "
            "save_pretrained wrote, or download the model first"
        )
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if dtype is None:
        dtype = torch.float32 if device == "cpu" else torch.bfloat16
    model: Any = AutoModelForCausalLM.from_pretrained(
        path, dtype=dtype, attn_implementation="sdpa", local_files_only=True
    )
    try:
        return model.to(device).eval()
    except (RuntimeError, AssertionError) as error:  # torch raises both
        raise ConfigError(
            f"the model does not go onto device {device!r}: {str(error).splitlines()[0]}"
        ) from error


def twin(model: Any) -> Any:
    """Another module around the very same parameters: an optimiser step on one is seen by both.

    The configuration and the modules' own state (training mode, adapters that are switched off)
    are not shared.
    """
    shared = [*model.parameters(), *model.buffers()]
    return copy.deepcopy(model, {id(tensor): tensor for tensor in shared}).eval()


def stop_ids(model: Any) -> tuple[int, ...]:
    """The model's own end ids, from its generation configuration."""
    for config in (getattr(model, "generation_config", None), model.config):
        found = getattr(config, "eos_token_id", None)
        if found is not None:
            return tuple(found) if isinstance(found, list | tuple) else (int(found),)
    return ()


def max_length(model: Any) -> int:
    found = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return int(found) if found else 4096
