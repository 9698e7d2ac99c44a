"""Text of token ids, where a tokenizer can be found: in the model folder, or in a checkpoint.

Only ``tokenizer.json`` is read: no code of a model folder runs. Without one, ids stay ids.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

FILE = "tokenizer.json"


def find_tokenizer(run: Path, config: dict[str, Any]) -> Path | None:
    """The file, or None."""
    model = config.get("model")
    named = model.get("path") if isinstance(model, dict) else None
    folders = [Path(named).expanduser()] if isinstance(named, str) else []
    folders += sorted(run.glob("checkpoints/*"), reverse=True)[:1]
    return next((f / FILE for f in folders if (f / FILE).is_file()), None)


def texts_of(path: Path | None, ids: Iterable[int]) -> dict[int, str]:
    """Each id by itself; those that are no whole characters show as the tokenizer spells them."""
    tokenizer = None if path is None else _load(path)
    if tokenizer is None:
        return {}
    out: dict[int, str] = {}
    for token in ids:
        text = tokenizer.decode([token], skip_special_tokens=False)
        if not text or "\ufffd" in text:
            text = tokenizer.id_to_token(token) or text
        out[token] = text
    return out


@lru_cache(maxsize=2)
def _load(path: Path) -> Any:
    try:
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(path))
    except Exception as error:  # noqa: BLE001  (the library raises bare Exception)
        logger.warning("tokenizer=<%s> | not read: %s", path, error)
        return None
