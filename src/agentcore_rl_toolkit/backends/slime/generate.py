"""slime's generate function: one rollout of the agent for each of its samples.

slime calls ``generate`` on an event loop of its own, in the process that manages rollouts. The
first call opens client and gateway there, over slime's SGLang router, and they stay until the
process ends. Weights and their versions are slime's: SGLang says with every answer which version
sampled it, so nothing has to be told here.

When slime has enough samples it aborts what still runs; then the session is stopped at once and
the sample goes back marked as aborted, instead of an agent going on against a cut-off engine.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any, ClassVar

from ...collect import Rollout, Task
from ...errors import ConfigError
from ...gateway import ModelSpec
from ..bridge import Bridge, BridgeSetting, open_bridge
from .sample import aborted, fill, one_of

logger = logging.getLogger(__name__)

SECTION = "agentcore"
"""Key of our settings in the file of ``--custom-config-path``."""
ABORT_POLL_S = 0.2
RENAMES = {"max_new_tokens": "max_tokens", "min_new_tokens": "min_tokens", "sampling_seed": "seed"}
FIXED = frozenset({"skip_special_tokens", "no_stop_trim", "spaces_between_special_tokens"})
"""What the gateway's SGLang engine sets by itself."""


async def generate(
    args: Any, sample: Any, sampling_params: Mapping[str, Any], evaluation: bool = False
) -> Any:
    """``--custom-generate-function-path``. A list in training, one sample in an evaluation."""
    bridge = await Door.of(args)
    task = Task(sample.index, _group(sample, evaluation), payload(sample))
    collector = bridge.collector(sampling(sampling_params))
    work = asyncio.ensure_future(collector.rollout(task, sample.index))
    rollout = await _unless(work, lambda: not evaluation and _is_aborting(args))
    if rollout is None:
        return aborted(sample)
    samples = fill(args, sample, rollout)
    return one_of(samples) if evaluation else samples


def payload(sample: Any) -> dict[str, Any]:
    """The row's ``metadata``, and its ``prompt`` where that has none."""
    return {"prompt": sample.prompt, **sample.metadata}


def sampling(params: Mapping[str, Any]) -> dict[str, Any]:
    """slime's parameters by the names that agents use."""
    if params.get("custom_params"):
        raise ConfigError("--rollout-top-p must be 1: captured log-probabilities are of all tokens")
    return {
        RENAMES.get(name, name): value
        for name, value in params.items()
        if value is not None and name not in FIXED
    }


def _group(sample: Any, evaluation: bool) -> str:
    number = sample.group_index if sample.group_index is not None else sample.index
    return f"{'eval' if evaluation else 'train'}-{number}"


class Door:
    """The bridge over slime's router, one an event loop: what it holds belongs to that loop."""

    _open: ClassVar[dict[int, asyncio.Task[Bridge]]] = {}
    _stacks: ClassVar[dict[int, AsyncExitStack]] = {}

    @classmethod
    async def of(cls, args: Any) -> Bridge:
        """That of the running loop, opened at the first call."""
        key = id(asyncio.get_running_loop())
        if key not in cls._open:
            cls._stacks[key] = AsyncExitStack()
            cls._open[key] = asyncio.create_task(cls._make(args, cls._stacks[key]))
        return await asyncio.shield(cls._open[key])

    @classmethod
    async def close(cls) -> None:
        """slime has no hook for its end: its process takes this down. For programs and tests."""
        key = id(asyncio.get_running_loop())
        task = cls._open.pop(key, None)
        if task is not None:
            await task
            await cls._stacks.pop(key).aclose()

    @classmethod
    async def _make(cls, args: Any, stack: AsyncExitStack) -> Bridge:
        setting = BridgeSetting.of(getattr(args, SECTION, None) or {})
        router = f"sglang:http://{args.sglang_router_ip}:{args.sglang_router_port}"
        spec = ModelSpec(
            setting.served_name,
            (router,),
            tokenizer=args.hf_checkpoint,
            experts=bool(getattr(args, "use_rollout_routing_replay", False)),
        )
        opened = await stack.enter_async_context(open_bridge(setting, spec))
        logger.info(
            "url=<%s> engine=<%s> | gateway over slime's router", opened.gateway.url, router
        )
        return opened


def _is_aborting(args: Any) -> bool:
    from slime.rollout.sglang_rollout import GenerateState  # type: ignore[import-not-found]

    return bool(GenerateState(args).aborted)


async def _unless(work: asyncio.Future[Rollout], stops: Callable[[], bool]) -> Rollout | None:
    """The rollout, or None when ``stops`` said so first; its session is stopped then."""
    try:
        while not work.done():
            await asyncio.wait([work], timeout=ABORT_POLL_S)
            if not work.done() and stops():
                work.cancel()
                await asyncio.wait([work])
                return None
        return work.result()
    finally:
        work.cancel()
