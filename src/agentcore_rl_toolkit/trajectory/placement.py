"""Where a request hangs in a session's graph: the contract between the graph and the gateway."""

from __future__ import annotations

import msgspec

from .drift import Drift, ForkKind


class Placement(msgspec.Struct, frozen=True):
    """Where a request hangs in the graph. Made by ``place``; final once it ``has_ids``."""

    model: str
    parent: str | None = None
    """Turn whose ids it shares."""
    shared: int = 0
    """Leading ids shared with the parent's prompt + sampled. By messages alone and with no fork:
    all of the parent's ids, ``graph.ids(parent)``."""
    fork: ForkKind | None = None
    drift: Drift = Drift.NEW
    lost: int = 0
    """Ids held by the turn it claims to continue, beyond ``shared``."""
    n_matched: int = 0
    """Leading messages already held by ``continues``, its answer included: render only the rest."""
    continues: str | None = None
    """Turn that the messages continue, whatever the ids say. Token-in/token-out: send
    ``graph.ids(continues)`` and the rendering of ``messages[n_matched:]``."""
    retry_of: str | None = None
    """Turn that answered the same call before: answer it again rather than sample, if it can be."""
    retry_key: str | None = None
    choice: int = 0
    root: bytes = b""
    chain: bytes = b""
    n_messages: int = 0
    delta: bytes = b""
    """Packed prompt ids from ``shared`` on, when it ``has_ids``."""
    has_ids: bool = False

    @property
    def hangs_on(self) -> str | None:
        """The parent of a turn that is made here."""
        return self.parent if self.has_ids else self.continues
