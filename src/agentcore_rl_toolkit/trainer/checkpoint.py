"""Checkpoints that are whole or absent, and from which training goes on exactly.

A checkpoint is a folder ``step-000012`` with the model as ``save_pretrained`` writes it (an
adapter when LoRA is used), the optimiser, the random state and whatever the caller must remember
(the order of the data). It is written beside its place under another name, forced to disk, and
renamed: a crash or a full disk leaves the last good one as it was. Old ones go only after that.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from ..errors import ConfigError, ToolkitError
from .step import Trainer

PREFIX = "step-"
PARTIAL = ".partial-"
STATE = "trainer.json"
TENSORS = "trainer.pt"
FORMAT = 1


class CheckpointError(ToolkitError):
    """It could not be written; the last good one is whole."""


def save(
    trainer: Trainer,
    folder: str | Path,
    *,
    extra: dict[str, Any] | None = None,
    tokenizer: Any = None,
    keep: int = 2,
) -> Path:
    """Writes the trainer's state; ``extra`` is JSON. Returns the checkpoint's folder."""
    root = Path(folder)
    final = root / f"{PREFIX}{trainer.steps:06d}"
    partial = root / f"{PARTIAL}{final.name}"
    try:
        root.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        _write(trainer, partial, extra or {}, tokenizer)
        _to_disk(partial)
        if final.exists():
            shutil.rmtree(final)
        partial.rename(final)
        _sync(root)
    except Exception as error:
        shutil.rmtree(partial, ignore_errors=True)
        last = latest(root)
        raise CheckpointError(
            f"the checkpoint of step {trainer.steps} could not be written to {root}: {error}. "
            f"Make room or choose another folder; the last good one is {last or 'none yet'}"
        ) from error
    for old in _all(root)[: -max(1, keep)]:
        shutil.rmtree(old, ignore_errors=True)
    return final


def load(trainer: Trainer, checkpoint: str | Path) -> dict[str, Any]:
    """Puts a trainer made with the same model and settings where it was; returns ``extra``."""
    path = Path(checkpoint)
    if not (path / STATE).is_file():
        raise ConfigError(f"{path} is no checkpoint: it has no {STATE}")
    state = json.loads((path / STATE).read_text())
    if state["format"] != FORMAT:
        raise ConfigError(f"{path} was written by another version of the toolkit: start anew")
    tensors = torch.load(path / TENSORS, map_location="cpu", weights_only=True)
    _load_weights(trainer.model, tensors["model"])
    trainer.optimiser.load_state(tensors["optimiser"])
    trainer.rng.bit_generator.state = state["rng"]
    torch.set_rng_state(tensors["torch_rng"])
    if tensors["cuda_rng"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(tensors["cuda_rng"])
    trainer.steps, trainer.version = state["steps"], state["version"]
    extra: dict[str, Any] = state["extra"]
    return extra


def latest(folder: str | Path) -> Path | None:
    found = _all(Path(folder))
    return found[-1] if found else None


def _all(root: Path) -> list[Path]:
    """Whole checkpoints, oldest first."""
    found = [path for path in root.glob(f"{PREFIX}*") if (path / STATE).is_file()]
    return sorted(found, key=lambda path: path.name)


def _write(trainer: Trainer, folder: Path, extra: dict[str, Any], tokenizer: Any) -> None:
    trainer.model.save_pretrained(folder)
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else None
    tensors = {
        # the trained weights once more: save_pretrained renames and ties, this is for us
        "model": {n: p.detach() for n, p in trainer.model.named_parameters() if p.requires_grad},
        "optimiser": trainer.optimiser.state(),
        "torch_rng": torch.get_rng_state(),
        "cuda_rng": cuda,
    }
    torch.save(tensors, folder / TENSORS)
    state = {
        "format": FORMAT,
        "steps": trainer.steps,
        "version": trainer.version,
        "rng": trainer.rng.bit_generator.state,
        "extra": extra,
    }
    (folder / STATE).write_text(json.dumps(state))


def _load_weights(model: Any, saved: dict[str, torch.Tensor]) -> None:
    own = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if own.keys() != saved.keys():
        missing = sorted(own.keys() ^ saved.keys())[:3]
        raise ConfigError(
            f"the checkpoint is of another model or other LoRA settings: {', '.join(missing)} …"
        )
    with torch.no_grad():
        # in place: an engine may be serving these tensors
        for name, parameter in own.items():
            parameter.copy_(saved[name])


def _to_disk(folder: Path) -> None:
    for path in _files(folder):
        _sync(path)
    _sync(folder)


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
