"""One token sequence that a trainer consumes: a path through a session's graph.

Invariants, checked by ``Row.check``: the four arrays are as long as each other; ``loss_mask`` is 1
exactly on sampled ids that this row trains; a position with mask 0 has log-probability 0.0 and turn
index -1; turn spans and weight versions cover masked-in positions only. Across the rows of a
rollout every trained turn is in exactly one row, and all rows share ``rollout_id``, so that a
rollout which splits into more rows does not weigh more (divide by rollout, not by row).
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from ..errors import ContractError
from .turn import Ids, Logprobs, Span

Mask: TypeAlias = npt.NDArray[np.uint8]


class RowStatus(enum.StrEnum):
    COMPLETED = "completed"  # its last turn ended by itself
    TRUNCATED = "truncated"  # its last turn hit a token limit (finish_reason "length")
    ABORTED = "aborted"  # its last turn was cut off by the engine, and what there was, delivered
    FAILED = "failed"  # set by the collector when the rollout failed after these turns


class TurnSpan(NamedTuple):
    """A turn that this row trains, and where."""

    number: int
    """Place among the trained turns of the rollout, by order of commit."""
    turn_id: str
    start: int
    end: int
    finish_reason: str


class Row(msgspec.Struct, kw_only=True):
    token_ids: Ids
    loss_mask: Mask
    logprobs: Logprobs
    """Of the served policy at masked-in positions, 0.0 elsewhere."""
    turn_index: Ids
    """Per token: ``TurnSpan.number`` where mask is 1, else -1."""
    turns: list[TurnSpan]
    rollout_id: str
    session_id: str
    group_id: str | None = None
    reward: float | None = None
    """Of the rollout, the same on all its rows; the sum when rewards are per turn."""
    turn_rewards: list[float] | None = None
    """One for each of ``turns``, or None when the reward is one scalar."""
    weight_versions: list[Span] = []
    """Over ``token_ids``; positions that no span covers are of unknown version."""
    status: RowStatus = RowStatus.COMPLETED
    routed_experts: list[tuple[int, int, bytes]] = []
    """(start, end, bytes as the engine gave them) over ``token_ids``, for turns that have them."""
    metadata: dict[str, Any] = {}

    @property
    def n_tokens(self) -> int:
        return int(self.token_ids.size)

    @property
    def n_trained(self) -> int:
        return int(self.loss_mask.sum())

    @property
    def prompt_length(self) -> int:
        """Ids before the first trained one: what trainers call the prompt."""
        return self.turns[0].start if self.turns else self.n_tokens

    def token_rewards(self) -> Logprobs:
        """Reward of each trained token's turn, 0.0 elsewhere."""
        out = np.zeros(self.n_tokens, np.float32)
        for i, span in enumerate(self.turns):
            value = self.turn_rewards[i] if self.turn_rewards is not None else self.reward
            out[span.start : span.end] = value or 0.0
        return out

    def check(self) -> Row:
        """ContractError when an invariant is broken; returns itself."""
        n = self.n_tokens
        _ensure(self, n > 0, "it has no tokens")
        for name in ("loss_mask", "logprobs", "turn_index"):
            _ensure(self, getattr(self, name).size == n, f"{name} is not as long as token_ids")
        mask = self.loss_mask.astype(bool)
        _ensure(self, bool((self.loss_mask <= 1).all()), "loss_mask holds more than 0 and 1")
        _ensure(self, not self.logprobs[~mask].any(), "a masked position has a log-probability")
        _ensure(self, bool(np.isfinite(self.logprobs).all()), "a log-probability is not finite")
        _ensure(self, bool((self.turn_index[~mask] == -1).all()), "a masked position has a turn")
        expected = np.full(n, -1, np.int32)
        end = 0
        for span in self.turns:
            _ensure(self, end <= span.start < span.end <= n, f"turn {span.turn_id} is misplaced")
            expected[span.start : span.end] = span.number
            end = span.end
        _ensure(self, bool((expected == self.turn_index).all()), "turn_index and turns differ")
        _ensure(self, bool(((expected >= 0) == mask).all()), "loss_mask and turns differ")
        for version, start, stop in self.weight_versions:
            covered = 0 <= start < stop <= n and bool(mask[start:stop].all())
            _ensure(self, covered, f"weight version {version!r} covers untrained positions")
        rewards = self.turn_rewards
        _ensure(self, rewards is None or len(rewards) == len(self.turns), "turn_rewards is uneven")
        return self


def _ensure(row: Row, holds: bool, message: str) -> None:
    if not holds:
        raise ContractError(f"row of session {row.session_id}: {message}")


def trained_turns(rows: Iterable[Row]) -> int:
    return len({span.number for row in rows for span in row.turns})


def rewards_of(result: Mapping[str, Any]) -> float | list[float]:
    """What an agent's result gives the rollout; ContractError when no trainer could use it."""
    if "rewards" not in result:
        raise ContractError(
            "the agent's result has no 'rewards': return "
            '{"rewards": <number>} from the rollout entrypoint'
        )
    return _reward_list(result["rewards"])


def reward_total(rewards: float | list[float]) -> float:
    """Of a rollout whose turns are not known: rewards per turn count by their sum."""
    return math.fsum(rewards) if isinstance(rewards, list) else rewards


def assign_rewards(rows: Sequence[Row], rewards: object) -> Sequence[Row]:
    """Sets the rewards of one rollout's rows, in place, from what the agent returned.

    A scalar is the rollout's reward; a list as long as the trained turns is one reward per turn, in
    order; a list of one is a scalar; anything else is a ContractError.
    """
    values = _reward_list(rewards)
    n_turns = trained_turns(rows)
    per_turn = isinstance(values, list) and len(values) == n_turns and n_turns > 1
    if isinstance(values, list) and not per_turn and len(values) != 1 and len(values) != n_turns:
        raise ContractError(
            f"the agent returned {len(values)} rewards but {n_turns} turns were trained: return "
            "one number, or a list with one number for each model turn"
        )
    total = reward_total(values)
    for row in rows:
        row.reward = total
        if per_turn and isinstance(values, list):
            row.turn_rewards = [values[span.number] for span in row.turns]
        else:
            row.turn_rewards = None
    return rows


def _reward_list(rewards: object) -> float | list[float]:
    """The agent's value as numbers; numpy values are recognised by shape."""
    to_list = getattr(rewards, "tolist", None)
    if callable(to_list):
        rewards = to_list()
    if isinstance(rewards, list | tuple):
        return [_number(value, f"rewards[{i}]") for i, value in enumerate(rewards)]
    return _number(rewards, "rewards")


def _number(value: object, where: str) -> float:
    to_list = getattr(value, "tolist", None)
    if callable(to_list):
        value = to_list()
    if not isinstance(value, bool | int | float) or not math.isfinite(value):
        raise ContractError(
            f"{where} is {value!r}: the agent must return a finite number, or a list of them, "
            'as {"rewards": …}'
        )
    return float(value)
