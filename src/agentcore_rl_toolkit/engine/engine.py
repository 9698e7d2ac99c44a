"""The engine: one thread that owns the batch, and the calls that reach it from event loops.

Invariants. The model is touched only by the engine's thread, and by nobody while it is paused: a
trainer updates the shared tensors inside ``updating``. Every id carries the weight version that
was current when it was drawn; after a change of version running sequences are prefilled again, so
no id is drawn from a mixture of old keys and new weights. Every request that is accepted ends
exactly once: with a ``Completion`` (``finish_reason`` abort when cut off) or with an
``EngineError``.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import threading
import time
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from ..errors import ConfigError
from .batch import PREFILL_TOKENS, Batch, Job
from .call import Call, EngineError, completion, hop, piece_of
from .model import load_model, max_length, stop_ids
from .request import Completion, Piece, Sampling

logger = logging.getLogger(__name__)

PauseMode = Literal["wait", "keep", "abort"]
"""Before the weights change: let running requests end, hold them where they are, or end them."""

PAUSE_MODES: tuple[PauseMode, ...] = ("wait", "keep", "abort")


@dataclasses.dataclass
class Counts:
    requests: int = 0
    aborted: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    sampled_tokens: int = 0
    steps: int = 0
    busy_s: float = 0.0


class Engine:
    def __init__(
        self,
        model: Any,
        *,
        version: str = "0",
        max_rows: int = 64,
        max_tokens: int | None = None,
        stop_token_ids: Collection[int] | None = None,
        resting_rows: int | None = None,
        prefill_tokens: int = PREFILL_TOKENS,
        seed: int = 0,
    ) -> None:
        self.model = model
        self.max_tokens = max_tokens or max_length(model)
        """Prompt and sampled ids of one sequence together."""
        self.stop_token_ids = tuple(stop_ids(model) if stop_token_ids is None else stop_token_ids)
        self.vocabulary = int(model.config.get_text_config().vocab_size)
        self.counts = Counts()
        self._batch = Batch(
            model, max_rows=max_rows, resting_rows=resting_rows, prefill_tokens=prefill_tokens
        )
        self._version = version
        self._seeds = np.random.SeedSequence(seed)
        self._calls: dict[str, Call] = {}
        self._incoming: list[Call] = []
        self._aborting: set[str] = set()
        self._serial = 0
        self._pause: PauseMode | None = None
        self._paused = False
        self._stale = False
        self._closing = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    @classmethod
    def from_folder(
        cls, folder: str | Path, *, device: str | None = None, **options: Any
    ) -> Engine:
        return cls(load_model(folder, device=device), **options)

    # --- life ---------------------------------------------------------------------------------

    def start(self) -> Engine:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
            self._thread.start()
        return self

    def close(self) -> None:
        """Ends the thread; requests that still run fail."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def __enter__(self) -> Engine:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def healthy(self) -> bool:
        return self._thread is not None and self._thread.is_alive() and not self._closing

    # --- requests -----------------------------------------------------------------------------

    async def generate(
        self,
        token_ids: Sequence[int],
        sampling: Sampling | None = None,
        *,
        request_id: str | None = None,
    ) -> Completion:
        """Cancelling the call aborts the request."""
        done: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()

        def deliver(call: Call, error: EngineError | None) -> None:
            if done.done():
                return
            if error is not None:
                done.set_exception(error)
            elif call.job.finish_reason is not None:
                done.set_result(completion(call))

        call = self._submit(token_ids, sampling or Sampling(), request_id, deliver, streaming=False)
        try:
            return await done
        except asyncio.CancelledError:
            self.abort([call.job.request_id])
            raise

    async def stream(
        self,
        token_ids: Sequence[int],
        sampling: Sampling | None = None,
        *,
        request_id: str | None = None,
    ) -> AsyncGenerator[Piece, None]:
        """Pieces as they are sampled. Leaving the loop early aborts the request."""
        pieces: asyncio.Queue[Piece | EngineError] = asyncio.Queue()

        def deliver(call: Call, error: EngineError | None) -> None:
            pieces.put_nowait(error if error is not None else piece_of(call))

        call = self._submit(token_ids, sampling or Sampling(), request_id, deliver, streaming=True)
        try:
            while True:
                piece = await pieces.get()
                if isinstance(piece, EngineError):
                    raise piece
                if piece.token_ids or piece.finish_reason is not None:
                    yield piece
                if piece.finish_reason is not None:
                    return
        finally:
            self.abort([call.job.request_id])

    def abort(self, request_ids: Collection[str] | None = None) -> None:
        """Ends these requests, or all, with ``finish_reason`` abort; unknown ids are no error."""
        with self._changed:
            known = self._calls.keys()
            self._aborting |= known if request_ids is None else known & set(request_ids)
            self._changed.notify_all()

    def _submit(
        self,
        token_ids: Sequence[int],
        sampling: Sampling,
        request_id: str | None,
        deliver: Callable[[Call, EngineError | None], None],
        *,
        streaming: bool,
    ) -> Call:
        prompt = self._check(token_ids)
        room = self.max_tokens - len(prompt)
        stops = set(sampling.stop_token_ids)
        if not sampling.ignore_eos:
            stops.update(self.stop_token_ids)
        with self._changed:
            if not self.healthy:
                raise EngineError("the engine is not running: start it, or look in its log")
            self._serial += 1
            name = request_id or f"request-{self._serial}"
            if name in self._calls:
                raise ConfigError(f"request id {name!r} is in use: give each request its own")
            job = Job(
                request_id=name,
                prompt=prompt,
                sampling=sampling,
                stops=stops,
                limit=min(room, sampling.max_tokens or room),
                rng=self._generator(sampling.seed),
            )
            call = Call(job, asyncio.get_running_loop(), deliver, streaming, time.monotonic())
            self._calls[name] = call
            self._incoming.append(call)
            self.counts.requests += 1
            self.counts.prompt_tokens += len(prompt)
            self._changed.notify_all()
        return call

    def _check(self, token_ids: Sequence[int]) -> list[int]:
        array = np.asarray(token_ids)
        if array.ndim != 1 or not array.size or not np.issubdtype(array.dtype, np.integer):
            raise ConfigError("token_ids must be a non-empty list of integers")
        if int(array.min()) < 0 or int(array.max()) >= self.vocabulary:
            raise ConfigError(
                f"token_ids holds an id outside 0..{self.vocabulary - 1}: it was made with another "
                "model's tokenizer"
            )
        if array.size >= self.max_tokens:
            raise ConfigError(
                f"the prompt has {array.size} ids and the model holds {self.max_tokens}: "
                "shorten the conversation, or raise max_tokens of the engine"
            )
        ids: list[int] = array.tolist()
        return ids

    def _generator(self, seed: int | None) -> np.random.Generator:
        if seed is not None:
            return np.random.default_rng(seed % 2**63)
        return np.random.default_rng(self._seeds.spawn(1)[0])

    # --- weights ------------------------------------------------------------------------------

    @property
    def version(self) -> str:
        return self._version

    @property
    def paused(self) -> bool:
        return self._pause is not None

    def pause(self, mode: PauseMode = "keep", timeout_s: float | None = None) -> None:
        """Returns when the engine's thread leaves the model alone; requests queue meanwhile."""
        if mode not in PAUSE_MODES:
            raise ConfigError(f"pause mode must be one of {', '.join(PAUSE_MODES)}, got {mode!r}")
        with self._changed:
            self._pause = mode
            self._changed.notify_all()
            if not self._changed.wait_for(lambda: self._paused or not self.healthy, timeout_s):
                self._pause = None
                self._changed.notify_all()
                raise EngineError(f"the engine did not come to rest within {timeout_s} s")

    def resume(self) -> None:
        with self._changed:
            self._pause, self._paused = None, False
            self._changed.notify_all()

    def set_version(self, version: str) -> None:
        """Names the weights from now on; says that the tensors may have changed."""
        with self._changed:
            self._version = version
            self._stale = True

    @contextmanager
    def updating(self, version: str, mode: PauseMode = "keep") -> Iterator[None]:
        """Inside, the caller may change the tensors; afterwards they are called ``version``."""
        self.pause(mode)
        try:
            yield
            self.set_version(version)
        finally:
            self.resume()

    # --- load ---------------------------------------------------------------------------------

    def load(self) -> dict[str, int]:
        """Requests that run and that wait, rows, tokens held, bytes of the cache."""
        with self._changed:
            running = list(self._batch.running)
            return {
                "running": len(running),
                "waiting": len(self._calls) - len(running),
                "rows": self._batch.max_rows,
                "tokens": sum(job.length for job in running),
                "cache_bytes": self._batch.cache.n_bytes,
            }

    @property
    def reused_tokens(self) -> int:
        """Prompt ids whose keys were copied from an earlier sequence instead of computed."""
        return self._batch.reused_tokens

    # --- the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        while self._next():
            started = time.perf_counter()
            try:
                with torch.inference_mode():
                    touched = self._batch.step(self._version)
            except Exception as error:
                # every caller is told, and the engine goes on with the next request
                logger.exception("requests=<%d> | forward pass failed", len(self._batch))
                self._fail(f"the model failed: {type(error).__name__}: {error}")
                continue
            self.counts.steps += 1
            self.counts.sampled_tokens += len(touched)
            self.counts.busy_s += time.perf_counter() - started
            self._report(touched)
        self._fail("the engine was closed")

    def _next(self) -> bool:
        """Blocks until there is something to compute; False at the end."""
        while True:
            with self._changed:
                self._changed.wait_for(self._anything)
                if self._closing:
                    return False
                aborted = self._take_aborted()
                if self._pause is None or (self._pause == "wait" and len(self._batch)):
                    if self._pause is None:
                        self._admit()
                    self._refresh()
                    if len(self._batch) and not aborted:
                        return True
                else:
                    if self._pause == "abort":
                        self._aborting |= self._batch.request_ids()
                        aborted += self._take_aborted()
                    self._paused = True
                    self._changed.notify_all()
            self._report(aborted)

    def _anything(self) -> bool:
        if self._closing or self._aborting:
            return True
        if self._pause is not None:
            return not self._paused
        return bool(self._incoming) or len(self._batch) > 0

    def _admit(self) -> None:
        now = time.monotonic()
        for call in self._incoming:
            call.started = now
            self._batch.waiting.append(call.job)
        self._incoming.clear()

    def _refresh(self) -> None:
        if self._stale:
            self._batch.restart()
            self._stale = False

    def _take_aborted(self) -> list[Job]:
        if not self._aborting:
            return []
        ids, self._aborting = self._aborting, set()
        gone = self._batch.remove(ids)
        gone += [call.job for call in self._incoming if call.job.request_id in ids]
        self._incoming = [call for call in self._incoming if call.job.request_id not in ids]
        for job in gone:
            job.finish_reason = "abort"
        self.counts.aborted += len(gone)
        return gone

    def _report(self, jobs: Sequence[Job]) -> None:
        """Tells the callers: one hop into each event loop, however many requests."""
        now = time.monotonic()
        hops: dict[asyncio.AbstractEventLoop, list[Call]] = {}
        with self._changed:
            for job in jobs:
                call = self._calls[job.request_id]
                if call.first_token is None and job.token_ids:
                    call.first_token = now
                if job.finish_reason is not None:
                    del self._calls[job.request_id]
                elif not call.streaming:
                    continue
                hops.setdefault(call.loop, []).append(call)
        for loop, calls in hops.items():
            hop(loop, calls, None)

    def _fail(self, message: str) -> None:
        with self._changed:
            calls = list(self._calls.values())
            self._calls.clear()
            self._incoming.clear()
            self._aborting.clear()
            self._batch.clear()
            self.counts.failed += len(calls)
            self._changed.notify_all()
        for call in calls:
            hop(call.loop, [call], EngineError(message))
