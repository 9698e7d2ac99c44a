"""The tokens of a rollout's rows, as columns: what the trainer saw at each position.

Columns as long as the row, spans where values repeat; text once for each distinct id. The page
colours and explains, it computes nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..trajectory.row import Row
from ..trajectory.turn import unpack_logprobs
from .rollout import RolloutView
from .run import in_words
from .text import find_tokenizer, texts_of

DIGITS = 4


def token_answer(view: RolloutView, row_number: int) -> dict[str, Any]:
    """One row in full, the others by their size."""
    rows = view.rows()
    brief = [
        {
            "tokens": row.n_tokens,
            "trained": row.n_trained,
            "status": row.status.value,
            "fork": row.metadata.get("fork"),
            "model": row.metadata.get("model"),
        }
        for row in rows
    ]
    chosen = rows[row_number] if 0 <= row_number < len(rows) else None
    return {
        **view.run.line(view.n),
        "rows_of": brief,
        "row": row_number,
        "columns": None if chosen is None else _columns(view, chosen),
        "problems": in_words(view.problems),
    }


def _columns(view: RolloutView, row: Row) -> dict[str, Any]:
    path = find_tokenizer(view.run.folder.path, view.run.config())
    ids = row.token_ids.tolist()
    texts = texts_of(path, sorted(set(ids)))
    worth = view.worth([row])
    logprobs = np.round(row.logprobs.astype(np.float64), DIGITS)
    return {
        "ids": ids,
        "texts": {str(token): text for token, text in texts.items()},
        "tokenizer": path is not None and bool(texts),
        "mask": row.loss_mask.tolist(),
        "logprobs": logprobs.tolist(),
        "entropies": _entropies(view, row),
        "turns": [
            {
                "number": span.number,
                "turn_id": span.turn_id,
                "start": span.start,
                "end": span.end,
                "finish_reason": span.finish_reason,
                "reward": row.turn_rewards[i] if row.turn_rewards else row.reward,
                "advantage": worth.get(span.turn_id),
            }
            for i, span in enumerate(row.turns)
        ],
        "versions": [list(span) for span in row.weight_versions],
        "pieces": _pieces(view, row),
    }


def _entropies(view: RolloutView, row: Row) -> list[float | None] | None:
    """By position; None where no turn of the row has them."""
    assert view.session is not None
    known = {t.turn_id: t.entropies for t in view.session.turns if t.entropies is not None}
    out: list[float | None] = [None] * row.n_tokens
    for span in row.turns:
        values = unpack_logprobs(known.get(span.turn_id, b"")).astype(np.float64)
        if len(values) == span.end - span.start:
            out[span.start : span.end] = np.round(values, DIGITS).tolist()
    return out if any(value is not None for value in out) else None


def _pieces(view: RolloutView, row: Row) -> list[dict[str, Any]]:
    """The row cut where turns begin and end, each with the turn that brought it, and its mark."""
    assert view.graph is not None
    cuts: list[dict[str, Any]] = []
    at = 0
    for span in row.turns:
        head = view.graph.head(span.turn_id)
        if at < span.start:
            piece = {"start": at, "end": span.start, "kind": "context", "turn_id": span.turn_id}
            # where the prompt parts from the ids of the turn that it says it continues
            if head.fork is not None:
                piece |= {"fork": head.fork, "parts_at": head.prompt_shared}
            cuts.append(piece)
        cuts.append(
            {"start": span.start, "end": span.end, "kind": "sampled", "turn_id": span.turn_id}
        )
        at = span.end
    if at < row.n_tokens:
        cuts.append({"start": at, "end": row.n_tokens, "kind": "context", "turn_id": None})
    return cuts
