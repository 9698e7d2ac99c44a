"""A request on its way: the job in the engine's thread, and the caller in an event loop.

The thread appends to the job; the loop reads what is there. Both see lists that only grow, so no
lock is needed between them.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Callable, Sequence

from ..errors import ModelError
from .batch import Job
from .request import Completion, Piece

logger = logging.getLogger(__name__)


class EngineError(ModelError):
    pass


@dataclasses.dataclass(eq=False)
class Call:
    """A job, and where its caller waits."""

    job: Job
    loop: asyncio.AbstractEventLoop
    deliver: Callable[[Call, EngineError | None], None]
    streaming: bool
    arrived: float
    started: float | None = None
    first_token: float | None = None
    sent: int = 0


def hop(loop: asyncio.AbstractEventLoop, calls: Sequence[Call], error: EngineError | None) -> None:
    def run() -> None:
        for call in calls:
            call.deliver(call, error)

    try:
        loop.call_soon_threadsafe(run)
    except RuntimeError:
        logger.debug("requests=<%d> | their event loop is closed", len(calls))


def completion(call: Call) -> Completion:
    job, now = call.job, time.monotonic()
    first = None if call.first_token is None else call.first_token - call.arrived
    return Completion(
        request_id=job.request_id,
        token_ids=job.token_ids,
        logprobs=job.logprobs,
        entropies=job.entropies,
        versions=job.versions,
        finish_reason=job.finish_reason or "abort",
        stop_id=job.stop_id,
        n_prompt=len(job.prompt),
        top_logprobs=job.top_logprobs if job.sampling.logprobs else None,
        queued_s=(call.started or now) - call.arrived,
        first_token_s=first,
        total_s=now - call.arrived,
    )


def piece_of(call: Call) -> Piece:
    """Everything since the last piece; the thread may be appending while this runs."""
    job = call.job
    finish_reason = job.finish_reason
    start, end = call.sent, min(len(job.token_ids), len(job.logprobs))
    call.sent = end
    versions = [
        (version, max(a, start) - start, min(b, end) - start)
        for version, a, b in list(job.versions)
        if a < end and b > start
    ]
    return Piece(
        token_ids=job.token_ids[start:end],
        logprobs=job.logprobs[start:end],
        entropies=job.entropies[start:end],
        versions=versions,
        top_logprobs=job.top_logprobs[start:end] if job.sampling.logprobs else None,
        finish_reason=finish_reason,
    )
