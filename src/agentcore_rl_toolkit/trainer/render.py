"""The gateway's renderer for a model whose family ``renderers`` knows.

A conversation that goes on is bridged as that package does it, id by id: a policy may have been
trained on exactly those ids. Families that it does not know keep the template-based way.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..gateway.render import Messages, Renderer
from ..trajectory.turn import Ids, pack_ids


class FamilyRenderer(Renderer):
    def __init__(self, tokenizer: Any, family: Any) -> None:
        super().__init__(tokenizer)
        self._family = family

    def bridge(
        self, held: Ids, messages: Messages, n_held: int, tools: Any = None, options: Any = None
    ) -> bytes | None:
        ids = held.tolist()
        rest = [dict(message) for message in messages[n_held:]]
        bridged = self._family.bridge_to_next_turn(ids[:-1], ids[-1:], rest, tools=tools)
        if bridged is None or options:
            return super().bridge(held, messages, n_held, tools, options)
        found = np.asarray(bridged.token_ids, np.int32)
        if not np.array_equal(found[: held.size], held):
            return super().bridge(held, messages, n_held, tools, options)
        return pack_ids(found)


def make_renderer(tokenizer: Any, model_type: str) -> Renderer:
    try:
        from renderers import config_from_name, create_renderer  # type: ignore[import-untyped]

        family = create_renderer(tokenizer, config_from_name(model_type))
    except (ImportError, ValueError, KeyError):
        return Renderer(tokenizer)
    return FamilyRenderer(tokenizer, family)
