"""Where a prompt hangs by its ids: on which turn, how much of it is shared, and which fork that is.

Pure decisions over the nodes of one model in one session. Ids win over messages; what the messages
said decides only where ids leave it open.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

from .drift import Drift, ForkKind, drift_of
from .path import Node
from .placement import Placement
from .strand import Prompt, TokenStore
from .turn import Turn


def hang(
    store: TokenStore,
    nodes: list[Node],
    by_id: Mapping[str, Node],
    placement: Placement,
    prompt: Prompt,
) -> tuple[ForkKind | None, Node | None, int]:
    """(fork, parent, shared ids); ``nodes`` are those of the placement's model, by slot."""
    if (same := store.same_prompt(prompt)) is not None:
        kind = ForkKind.RETRY if placement.retry_of else ForkKind.CHOICE
        return kind, nodes[same], nodes[same].n_prompt
    claimed = by_id.get(placement.continues or "")
    node = _continued(store, nodes, claimed, prompt)
    if node is not None and (claimed is None or claimed.n_total <= node.n_total):
        gone_on = placement.retry_of is None and bool(node.children)
        fork = ForkKind.RETRY if placement.retry_of else None
        return ForkKind.REWRITE if gone_on else fork, node, node.n_total
    best = store.best_common(prompt)
    parent, shared = (nodes[best[0]], best[1]) if best else (None, 0)
    if placement.continues and placement.fork in (None, ForkKind.REWRITE):
        claimed = by_id[placement.continues]
        if claimed.model == placement.model and claimed.slot is not None:
            return ForkKind.DRIFT, *_nearer(claimed, parent, shared, store, prompt)
    if placement.chain:
        return placement.fork or ForkKind.SUBAGENT, parent, shared
    return _fork_by_ids(placement, parent, shared, prompt), parent, shared


def _continued(
    store: TokenStore, nodes: list[Node], claimed: Node | None, prompt: Prompt
) -> Node | None:
    """The longest turn that the prompt begins with. Of several with the same ids: the claimed one,
    or else what ``preferred`` says."""
    found = (nodes[slot] for slot in store.longest_prefixes(prompt))
    latest = next(found, None)
    if latest is None:
        return None
    if claimed is not None and claimed.slot is not None:
        same = claimed.model == latest.model and claimed.n_total == latest.n_total
        if same and store.begins(claimed.slot, claimed.n_total, prompt):
            return claimed
    return preferred(itertools.chain((latest,), found))


def preferred(nodes: Iterable[Node]) -> Node:
    """Of turns with equal content, the latest first: the latest that was delivered, if any was."""
    latest: Node | None = None
    for node in nodes:
        if node.delivered:
            return node
        latest = latest or node
    assert latest is not None, "asked of no turn"
    return latest


def drift_by_turn(turn: Turn, parent: Node | None) -> tuple[Drift, int]:
    """What a committed turn adds to the count of drift."""
    fork = ForkKind(turn.fork) if turn.fork else None
    kind = drift_of(fork, parent is not None)
    repeats = parent is None or fork in (ForkKind.RETRY, ForkKind.CHOICE)
    lost = 0 if parent is None or repeats else parent.n_total - turn.prompt_shared
    return kind, turn.prompt_shared if kind is Drift.CLEAN else lost


def _nearer(
    claimed: Node, parent: Node | None, shared: int, store: TokenStore, prompt: Prompt
) -> tuple[Node | None, int]:
    """The claimed turn as parent unless another shares more ids."""
    common = store.common(claimed.slot, prompt) if claimed.slot is not None else 0
    return (claimed, common) if common >= shared else (parent, shared)


def _fork_by_ids(
    placement: Placement, parent: Node | None, shared: int, prompt: Prompt
) -> ForkKind:
    """Without messages: what differs in a first prompt is another conversation."""
    if placement.retry_of:
        return ForkKind.RETRY
    if parent is None:
        return ForkKind.SUBAGENT
    first = parent
    while first.path_parent is not None:
        first = first.path_parent
    if shared < first.n_prompt:
        return ForkKind.SUBAGENT
    tip = parent
    while tip.children:
        tip = tip.children[-1]
    shorter = prompt.n_ids < tip.n_total
    return ForkKind.COMPACTION if shorter else ForkKind.REWRITE
