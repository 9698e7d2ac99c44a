"""Exact tokens: turns as they were served, the graph they form, and the rows that are trained.

Imports nothing of the toolkit but its errors; needs msgspec and numpy (the ``gateway`` extra).
"""

from .drift import Drift, DriftCount, ForkKind
from .graph import SessionGraph, rebuild
from .path import Left, SessionCount
from .placement import Placement
from .row import Row, RowStatus, TurnSpan, assign_rewards, trained_turns
from .turn import Turn, pack_ids, pack_logprobs, unpack_ids, unpack_logprobs

__all__ = [
    "Drift",
    "DriftCount",
    "ForkKind",
    "Left",
    "Placement",
    "Row",
    "RowStatus",
    "SessionCount",
    "SessionGraph",
    "Turn",
    "TurnSpan",
    "assign_rewards",
    "pack_ids",
    "pack_logprobs",
    "rebuild",
    "trained_turns",
    "unpack_ids",
    "unpack_logprobs",
]
