"""Continuous batching: which sequences run, and the forward passes that advance them.

Running sequences fill the first rows of the cache without a gap: a sequence that ends gives its
row to the last one. A step either prefills some of the waiting or gives every running sequence one
more id. Sequences join and leave at any step; none waits for another to end.

Sequences that have ended rest in further rows for a while: a conversation's next turn copies what
it shares with them and computes the rest only. The samples of a group share their prompt alike.
When the weights change all that is forgotten.

No threads and no clocks here: the engine owns those and calls ``step`` from one thread only.
transformers' own continuous batching was measured first: without flash attention it masks all
sequences in one square, so that 64 sequences of 400 tokens ran at a seventh of the speed of padded
batches on a CPU; it also has neither seeds nor greedy requests beside sampled ones.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections import deque
from collections.abc import Collection, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from ..errors import ConfigError
from ..trajectory.turn import Span
from .cache import Aim, RowCache
from .prefix import BLOCK, PrefixIndex
from .request import Sampling, TopLogprobs, add_span
from .sample import entropy, sample, top

Ints: TypeAlias = npt.NDArray[np.int64]

PREFILL_TOKENS = 4096
"""Prompt tokens, padding included, in one forward pass."""
PATIENCE = 4
"""Steps that a waiting sequence lets pass at most, for others to join its prefill."""
CROWD = 4
"""Prefill at once when this many times the waiting are as many as the running."""


@dataclasses.dataclass(eq=False)
class Job:
    """One request while it runs."""

    request_id: str
    prompt: list[int]
    sampling: Sampling
    stops: Collection[int]
    limit: int
    """Ids it may sample."""
    rng: np.random.Generator
    token_ids: list[int] = dataclasses.field(default_factory=list)
    logprobs: list[float] = dataclasses.field(default_factory=list)
    entropies: list[float] = dataclasses.field(default_factory=list)
    versions: list[Span] = dataclasses.field(default_factory=list)
    top_logprobs: list[TopLogprobs] = dataclasses.field(default_factory=list)
    finish_reason: str | None = None
    stop_id: int | None = None
    row: int = -1
    """In the cache, while it runs."""

    @property
    def length(self) -> int:
        return len(self.prompt) + len(self.token_ids)

    def ids(self) -> list[int]:
        return self.prompt + self.token_ids

    def add(self, token_id: int, logprob: float, entropy: float, version: str) -> None:
        add_span(self.versions, version, len(self.token_ids))
        self.entropies.append(entropy)
        self.token_ids.append(token_id)
        self.logprobs.append(logprob)
        if token_id in self.stops:
            self.finish_reason, self.stop_id = "stop", token_id
        elif len(self.token_ids) >= self.limit:
            self.finish_reason = "length"


@dataclasses.dataclass(eq=False)
class Resting:
    """A sequence that has ended and whose keys are kept."""

    row: int
    known: list[int]

    def ids(self) -> list[int]:
        return self.known


class Batch:
    def __init__(
        self,
        model: torch.nn.Module,
        *,
        max_rows: int,
        resting_rows: int | None = None,
        prefill_tokens: int = PREFILL_TOKENS,
    ) -> None:
        self.model = model
        self.max_rows = max_rows
        self.prefill_tokens = prefill_tokens
        self.running: list[Job] = []
        """The row of a sequence is its index here."""
        self.waiting: deque[Job] = deque()
        self.cache = RowCache()
        self.prefixes = PrefixIndex()
        self.reused_tokens = 0
        self._capacity = max_rows if resting_rows is None else resting_rows
        self._resting: deque[Resting] = deque()
        self._free = list(range(max_rows, max_rows + self._capacity))
        self._patience = PATIENCE
        self.masks = Masks(model)
        parameter = next(model.parameters())
        self.device = parameter.device
        forward = getattr(model, "get_base_model", lambda: model)().forward
        keeps = "logits_to_keep" in inspect.signature(forward).parameters
        self._extra: dict[str, Any] = {"logits_to_keep": 1} if keeps else {}

    def __len__(self) -> int:
        return len(self.running) + len(self.waiting)

    def request_ids(self) -> set[str]:
        return {job.request_id for job in (*self.running, *self.waiting)}

    def step(self, version: str) -> list[Job]:
        """Advances; returns the sequences that got an id. The finished ones have left."""
        if self._prefill_now():
            touched = self._prefill(version)
        else:
            touched = self._decode(version) if self.running else []
        self._leave([job for job in touched if job.finish_reason is not None], rest=True)
        return touched

    def remove(self, request_ids: Collection[str]) -> list[Job]:
        waiting = [job for job in self.waiting if job.request_id in request_ids]
        self.waiting = deque(job for job in self.waiting if job.request_id not in request_ids)
        running = [job for job in self.running if job.request_id in request_ids]
        self._leave(running, rest=False)
        return waiting + running

    def restart(self) -> None:
        """Weights have changed: running sequences are prefilled anew, so none reads old keys."""
        self.waiting.extendleft(reversed(self.running))
        self.running.clear()
        self._forget()

    def clear(self) -> None:
        self.running.clear()
        self.waiting.clear()
        self._forget()
        self.cache.clear()

    def _forget(self) -> None:
        self.prefixes.clear()
        self._free += [resting.row for resting in self._resting]
        self._resting.clear()

    def _prefill_now(self) -> bool:
        """Waiting for a few more is worth a step or two: a pass costs much the same for all."""
        if not self.waiting or len(self.running) == self.max_rows:
            return False
        self._patience -= 1
        if self._patience > 0 and len(self.waiting) * CROWD < len(self.running):
            return False
        self._patience = PATIENCE
        return True

    def _leave(self, gone: list[Job], *, rest: bool) -> None:
        if not gone:
            return
        for job in gone:
            self.prefixes.drop(job)
        if rest:
            self._put_to_rest(gone)
        left = [job for job in self.running if job not in gone]
        holes = sorted(job.row for job in gone if job.row < len(left))
        movers = [job for job in left if job.row >= len(left)]
        if movers:
            length = max(job.length for job in movers)
            self.cache.copy_rows([job.row for job in movers], holes, length)
        for job, row in zip(movers, holes, strict=True):
            job.row = row
        self.running = sorted(left, key=lambda job: job.row)

    def _put_to_rest(self, gone: list[Job]) -> None:
        """The last id of each was never fed to the model, so it has no keys."""
        placed: list[tuple[Job, Resting]] = []
        # no more than there are rows: one that was just placed must not make way again
        for job in gone[: self._capacity]:
            if not self._free:
                oldest = self._resting.popleft()
                self.prefixes.drop(oldest)
                self._free.append(oldest.row)
            if job.length > BLOCK:
                placed.append((job, Resting(self._free.pop(), job.ids()[:-1])))
                self._resting.append(placed[-1][1])
        if not placed:
            return
        self.cache.copy_rows(
            [job.row for job, _ in placed],
            [resting.row for _, resting in placed],
            max(job.length for job, _ in placed),
        )
        for _, resting in placed:
            self.prefixes.add(resting, resting.known)

    # --- forward passes -----------------------------------------------------------------------

    def _prefill(self, version: str) -> list[Job]:
        chosen = self._take()
        distinct: dict[tuple[int, ...], int] = {}
        place = [distinct.setdefault(tuple(job.ids()), len(distinct)) for job in chosen]
        first, prompts = len(self.running), list(distinct)
        logits = self._prefill_rows(first, prompts, self._copy_prefixes(first, prompts))
        # those that are prefilled come first, then the copies, whose sources are below them
        order = sorted(range(len(chosen)), key=lambda i: (place.index(place[i]) != i, place[i]))
        copies = order[len(distinct) :]
        if copies:
            targets = list(range(first + len(distinct), first + len(chosen)))
            length = max(chosen[i].length for i in copies)
            self.cache.copy_rows([first + place[i] for i in copies], targets, length)
        jobs = [chosen[i] for i in order]
        for row, job in enumerate(jobs, first):
            job.row = row
            self.prefixes.add(job, job.ids())
        self.running.extend(jobs)
        self._choose(logits[[place[i] for i in order]], jobs, version)
        return jobs

    def _copy_prefixes(self, first: int, prompts: Sequence[tuple[int, ...]]) -> list[int]:
        """For each prompt, how many of its leading ids have their keys in its row already."""
        found = [self.prefixes.find(prompt) for prompt in prompts]
        shared = [0 if hit is None else hit[1] for hit in found]
        hits = [(hit[0].row, first + i) for i, hit in enumerate(found) if hit is not None]
        if hits:
            self.cache.copy_rows([s for s, _ in hits], [t for _, t in hits], max(shared))
            self.reused_tokens += sum(shared)
        return shared

    def _take(self) -> list[Job]:
        """The next of the waiting, in order, as many as rows and the token budget allow."""
        room = self.max_rows - len(self.running)
        chosen: list[Job] = []
        widest, distinct = 0, set[tuple[int, ...]]()
        while self.waiting and len(chosen) < room:
            ids = tuple(self.waiting[0].ids())
            widest = max(widest, len(ids))
            if chosen and widest * len(distinct | {ids}) > self.prefill_tokens:
                break
            distinct.add(ids)
            chosen.append(self.waiting.popleft())
        return chosen

    def _prefill_rows(
        self, first: int, prompts: Sequence[Sequence[int]], shared: Sequence[int]
    ) -> torch.Tensor:
        """Padded on the left, so that every row's last token is in the last column."""
        width = max(len(p) - start for p, start in zip(prompts, shared, strict=True))
        ids = np.zeros((len(prompts), width), np.int64)
        positions = np.full((len(prompts), width), -1, np.int64)
        for row, (prompt, start) in enumerate(zip(prompts, shared, strict=True)):
            own = slice(width - len(prompt) + start, None)
            ids[row, own] = prompt[start:]
            positions[row, own] = np.arange(start, len(prompt))
        chunk = max(1, self.prefill_tokens // len(prompts))
        logits = torch.empty(0)
        for begin in range(0, width, chunk):
            end = min(begin + chunk, width)
            logits = self._forward(first, ids[:, begin:end], positions[:, begin:end])
        return logits

    def _decode(self, version: str) -> list[Job]:
        sequences = list(self.running)
        ids = np.array([[s.token_ids[-1]] for s in sequences], np.int64)
        positions = np.array([[s.length - 1] for s in sequences], np.int64)
        self._choose(self._forward(0, ids, positions), sequences, version)
        return sequences

    def _forward(self, first: int, ids: Ints, positions: Ints) -> torch.Tensor:
        """Logits at the last column. Padding has position -1 and is written nowhere."""
        rows, width = ids.shape
        length = int(positions.max()) + 1
        of_row, of_column = np.nonzero(positions >= 0)
        cell = (self._tensor(of_row + first), self._tensor(positions[of_row, of_column]))
        token = None if width == 1 else (self._tensor(of_row), self._tensor(of_column))
        self.cache.aim(Aim(first, first + rows, length, cell, token))
        at = self._tensor(positions.clip(min=0))
        output = self.model(
            input_ids=self._tensor(ids),
            attention_mask=self.masks.make(at, length),
            position_ids=at,
            past_key_values=self.cache,
            use_cache=True,
            **self._extra,
        )
        logits: torch.Tensor = output.logits[:, -1]
        return logits

    def _choose(self, logits: torch.Tensor, sequences: Sequence[Job], version: str) -> None:
        uniforms = [s.rng.random() for s in sequences]
        logprobs, ids = sample(logits, [s.sampling for s in sequences], uniforms)
        chosen = logprobs.gather(1, ids.unsqueeze(1)).squeeze(1).tolist()
        spread = entropy(logprobs).tolist()
        for i, (sequence, token_id) in enumerate(zip(sequences, ids.tolist(), strict=True)):
            if sequence.sampling.logprobs:
                sequence.top_logprobs.append(top(logprobs[i], sequence.sampling.logprobs))
            sequence.add(token_id, chosen[i], spread[i], version)

    def _tensor(self, array: Ints) -> torch.Tensor:
        return torch.from_numpy(array).to(self.device)


class Masks:
    """Attention masks for a pass: a token sees the positions of its row up to its own."""

    def __init__(self, model: torch.nn.Module) -> None:
        config: Any = model.config
        config = config.get_text_config()
        kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
        unknown = kinds - {"full_attention", "sliding_attention"}
        if unknown:
            raise ConfigError(
                f"the embedded engine has no cache for {', '.join(sorted(unknown))} layers: "
                "serve this model with vLLM or SGLang"
            )
        attention = config._attn_implementation
        if attention not in ("sdpa", "eager"):
            raise ConfigError(
                f"the embedded engine needs attn_implementation='sdpa', the model has {attention!r}"
            )
        self.additive = attention == "eager"
        self.window: int = getattr(config, "sliding_window", None) or 0
        if getattr(config, "layer_types", None) is None and self.window:
            kinds = {"sliding_attention"}
        self.kinds = sorted(kinds)
        self.dtype = next(model.parameters()).dtype

    def make(self, positions: torch.Tensor, length: int) -> Any:
        made = {kind: self._mask(positions, length, kind) for kind in self.kinds}
        return made if len(made) > 1 else next(iter(made.values()))

    def _mask(self, positions: torch.Tensor, length: int, kind: str) -> torch.Tensor:
        key = torch.arange(length, device=positions.device)
        seen = key <= positions.unsqueeze(-1)
        if kind == "sliding_attention":
            seen &= key > positions.unsqueeze(-1) - self.window
        seen = seen.unsqueeze(1)
        if not self.additive:
            return seen
        bias = torch.zeros(seen.shape, dtype=self.dtype, device=seen.device)
        return bias.masked_fill(~seen, torch.finfo(self.dtype).min)
