"""How far the ids that come back are the ids that were served, counted per session.

A prompt that claims to continue a turn is compared with the ids held for that turn. The answer is
classified first and acted on afterwards, by the graph. Nothing is ever healed: when ids differ the
turn forks into a row of its own, and the sampled ids stay where they were sampled.
"""

from __future__ import annotations

import enum

import msgspec

ALARM_SHARE = 0.05
"""Stitched turns, as a share of the turns that continue another, above which a session alarms."""
ALARM_TURNS = 4
"""Continuing turns below which a share says nothing."""


class ForkKind(enum.StrEnum):
    """Why a turn does not extend an earlier one; how each is recognised stands behind it."""

    SUBAGENT = "subagent"  # another conversation: model, tools or system prompt are new here
    COMPACTION = "compaction"  # same root, history replaced by a shorter one that no turn ends
    REWRITE = "rewrite"  # same root, history edited, or gone back to an earlier point of it
    RETRY = "retry"  # the same call again: its retry key was seen before
    CHOICE = "choice"  # another answer to a prompt that has one: n > 1, or asked twice
    DRIFT = "drift"  # the messages continue a turn, but the engine's prompt ids do not


class Drift(enum.StrEnum):
    NEW = "new"  # continues nothing: the first turn of a conversation
    CLEAN = "clean"  # the prompt extends the ids held exactly; the same row goes on
    STITCHED = (
        "stitched"  # same messages, other ids (tokenised again, or a template that drops text)
    )
    FORKED = "forked"  # the client changed or repeated the history; ids rightly differ


class DriftCount(msgspec.Struct):
    """Numbers of one session. ``*_tokens`` of clean turns are ids held and extended; of the others
    they are ids held beyond the point where the new prompt parts from them."""

    new: int = 0
    clean: int = 0
    clean_tokens: int = 0
    stitched: int = 0
    stitched_tokens: int = 0
    forked: int = 0
    forked_tokens: int = 0

    def add(self, drift: Drift, tokens: int) -> None:
        setattr(self, drift.value, getattr(self, drift.value) + 1)
        if drift is not Drift.NEW:
            name = f"{drift.value}_tokens"
            setattr(self, name, getattr(self, name) + tokens)

    @property
    def stitched_share(self) -> float:
        continuing = self.clean + self.stitched
        return self.stitched / continuing if continuing else 0.0

    def alarm(self, share: float = ALARM_SHARE, turns: int = ALARM_TURNS) -> str | None:
        """A sentence for the user when re-tokenisation splits rows too often, else None."""
        if self.clean + self.stitched < turns or self.stitched_share <= share:
            return None
        return (
            f"{self.stitched} of {self.clean + self.stitched} turns came back with other ids than "
            "were sampled, so each begins a row of its own: serve this model token-in/token-out, "
            "or check that its chat template keeps earlier answers as they were"
        )


def drift_of(fork: ForkKind | None, continues: bool) -> Drift:
    if fork is None:
        return Drift.CLEAN if continues else Drift.NEW
    if fork is ForkKind.DRIFT:
        return Drift.STITCHED
    return Drift.NEW if fork is ForkKind.SUBAGENT else Drift.FORKED
