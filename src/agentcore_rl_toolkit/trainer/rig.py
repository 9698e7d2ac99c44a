"""What a training run stands on, put together in one process and taken down in reverse.

    trainer ── the same tensors ── engine ── loopback ── gateway ◄── agents' sessions
       ▲                                                    │
       └────────────── rows ── collector ── client ─────────┘

The agent is deployed already; who starts runtimes is the command, not this.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from ..client import RolloutClient
from ..client.pace import rate_of
from ..collect import Collector, Rollout
from ..engine import Engine, load_model, serving, twin
from ..errors import ConfigError
from ..gateway import Gateway, GatewaySettings, ModelSpec
from ..gateway.text.family import choose_renderer
from ..trajectory.row import Row
from . import checkpoint
from .config import Deployed, TrainConfig, check_model
from .step import StepReport, Trainer

P = ParamSpec("P")
T = TypeVar("T")


@dataclasses.dataclass
class Rig:
    trainer: Trainer
    engine: Engine
    gateway: Gateway
    collector: Collector
    tokenizer: Any

    @property
    def steps(self) -> int:
        return self.trainer.steps

    @property
    def version(self) -> str:
        return self.trainer.version

    async def step(self, rows: Sequence[Row]) -> StepReport:
        report = await uninterrupted(self.trainer.step, rows, changing=self.engine.updating)
        self.note_version()
        return report

    async def save(self, folder: Path, extra: dict[str, Any], keep: int) -> None:
        await uninterrupted(
            checkpoint.save, self.trainer, folder, extra=extra, tokenizer=self.tokenizer, keep=keep
        )

    def note_version(self) -> None:
        """For those who ask the gateway; turns carry the engine's own word."""
        for pool in self.gateway.models.pools.values():
            pool.version = self.trainer.version


def make_trainer(config: TrainConfig) -> tuple[Trainer, Any]:
    """The trainer on its model, and the tokenizer."""
    import torch

    torch.manual_seed(config.train.seed)
    if config.model.threads:
        torch.set_num_threads(config.model.threads)
    tokenizer = load_tokenizer(config.model.path)
    model = load_model(config.model.path, device=config.model.device)
    reference = None
    if config.train.kl and config.train.lora is None:
        reference = load_model(config.model.path, device=config.model.device)
    return Trainer(model, config.train, reference=reference), tokenizer


def load_tokenizer(folder: str | Path) -> Any:
    from transformers import AutoTokenizer

    path = Path(folder)
    check_model(path)
    try:
        tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)
    except (OSError, ValueError) as error:
        raise ConfigError(f"the tokenizer of {path} cannot be loaded: {error}") from None
    if not tokenizer.chat_template:
        raise ConfigError(
            f"the tokenizer of {path} has no chat template, so conversations cannot become "
            "token ids: use an instruction-tuned model, or put a chat_template.jinja beside it"
        )
    return tokenizer


@asynccontextmanager
async def rig(
    config: TrainConfig,
    trainer: Trainer,
    tokenizer: Any,
    run_dir: Path,
    where: Deployed,
    on_rollout: Callable[[Rollout], None],
) -> AsyncIterator[Rig]:
    name = config.model.served_name
    engine = Engine(
        twin(trainer.model),
        version=trainer.version,
        max_rows=config.model.max_rows,
        max_tokens=config.model.max_tokens,
        seed=config.train.seed + trainer.steps,
    )
    client = make_client(config, where, run_dir.name)
    settings = GatewaySettings(run_dir=run_dir, fsync=False)
    renderer = choose_renderer(tokenizer, model_type=trainer.model.config.model_type)
    async with client:
        with engine:
            async with serving(engine, name=name) as url:
                spec = ModelSpec(name, (f"vllm-generate:{url}#{name}",), tokenizer=renderer)
                async with Gateway([spec], settings) as gateway:
                    collector = Collector(
                        client, gateway, config.rollout.collect(name), on_rollout=on_rollout
                    )
                    yield Rig(trainer, engine, gateway, collector, tokenizer)


def make_client(config: TrainConfig, where: Deployed, exp_id: str) -> RolloutClient:
    return RolloutClient(
        where.arn,
        config.agent.bucket,
        exp_id,
        tps_limit=rate_of(where.arn, config.agent.tps_limit),
        max_pool_connections=config.rollout.max_concurrent,
        endpoint_url=where.endpoint_url,
    )


async def uninterrupted(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """In a thread, to its end: weights half changed are worse than a late goodbye."""
    work = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        raise
