"""What every backend stands on: a client, a gateway and the collector over both.

Lives on the event loop that enters it and is taken down in reverse. The engine behind the gateway
belongs to the trainer; the agent is deployed already.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from .. import local
from ..client import RolloutClient
from ..client.pace import rate_of
from ..collect import Collector, CollectSetting, Rollout
from ..errors import ConfigError, ContractError
from ..gateway import Gateway, GatewaySettings, ModelSpec
from ..gateway.route import Pool
from ..run.folder import RunFolder
from ..run.writer import LineWriter

T = TypeVar("T")

FIRST = 32
"""Rollouts that may fail before one has ended well."""


@dataclasses.dataclass(frozen=True)
class BridgeSetting:
    """Where the agent is and how its rollouts are collected."""

    arn: str = ""
    """Of the deployed agent, on AWS or on a local runtime."""
    endpoint_url: str | None = None
    """Of its runtime, where it is not found by itself."""
    bucket: str = local.DEFAULT_BUCKET
    """Where results are stored."""
    exp_id: str = "train"
    """First part of every result's key."""
    tps_limit: float | None = None
    """Calls a second; None: 25 on AWS, its documented quota, and 200 on a local runtime."""
    max_concurrent: int = 64
    """Sessions at a time, of one process."""
    timeout_s: float = 300.0
    retries: int = 2
    """How often a rollout that infrastructure failed runs again."""
    failed_reward: float = 0.0
    """Of a rollout whose agent raised."""
    host: str = "127.0.0.1"
    """Address that the gateway listens at."""
    port: int = 0
    """0: any free port."""
    public_url: str | None = None
    """How agents reach the gateway, when not by its host and port."""
    served_name: str = "policy"
    """Name of the trained model, as agents are told it."""
    run_dir: str | None = None
    """Where captured turns are kept; None: in the user's state folder."""

    def __post_init__(self) -> None:
        if not self.arn:
            raise ConfigError("agentcore.arn is missing: the ARN of the deployed agent")

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> BridgeSetting:
        """From plain data; ConfigError names the key that is none."""
        known = {field.name for field in dataclasses.fields(cls)}
        for key in value.keys() - known:
            raise ConfigError(f"unknown key agentcore.{key}: known are {', '.join(sorted(known))}")
        return typed(value, cls, "agentcore")

    def divided(self, processes: int) -> BridgeSetting:
        """One process's share of what the whole run may ask of the runtime."""
        return dataclasses.replace(self, tps_limit=self.rate / max(1, processes))

    @property
    def rate(self) -> float:
        return rate_of(self.arn, self.tps_limit)

    def client(self) -> RolloutClient:
        return RolloutClient(
            self.arn,
            self.bucket,
            self.exp_id,
            tps_limit=self.rate,
            max_pool_connections=self.max_concurrent,
            endpoint_url=self.endpoint_url,
        )

    def collect(self, sampling: Mapping[str, Any]) -> CollectSetting:
        return CollectSetting(
            model_id=self.served_name,
            sampling=dict(sampling),
            max_concurrent=self.max_concurrent,
            timeout_s=self.timeout_s,
            retries=self.retries,
            failed_reward=self.failed_reward,
        )

    def gateway(self) -> GatewaySettings:
        return GatewaySettings(
            host=self.host,
            port=self.port,
            public_url=self.public_url,
            run_dir=Path(self.run_dir) if self.run_dir else None,
            fsync=False,
        )


def typed(value: Mapping[str, Any], kind: type[T], where: str, *, strict: bool = True) -> T:
    """Plain data as a setting; ConfigError names the key whose value is of another type."""
    try:
        return msgspec.convert(value, kind, strict=strict)
    except msgspec.ValidationError as error:
        text, _, place = str(error).partition(" - at `$")
        raise ConfigError(f"{where}{place.rstrip('`')}: {text}" if place else text) from None


class Alive:
    """That something works at all; trainers of others would go on with nothing to learn from."""

    def __init__(self) -> None:
        self._failed: int | None = 0

    def saw(self, failure: object | None) -> None:
        """ContractError when none of the first rollouts has ended well."""
        if failure is None:
            self._failed = None
        if self._failed is None:
            return
        self._failed += 1
        if self._failed == FIRST:
            raise ContractError(
                f"the first {FIRST} rollouts all failed, the last with: {failure}. Do the rows "
                "have the fields that the agent reads, and does it reach the model?"
            )


class Bridge:
    """Collectors over one client and one gateway; what they settle goes into the run folder."""

    def __init__(self, setting: BridgeSetting, client: RolloutClient, gateway: Gateway) -> None:
        self.setting, self.client, self.gateway = setting, client, gateway
        self._collectors: dict[str, Collector] = {}
        self._alive = Alive()
        self._lines: LineWriter | None = None
        if setting.run_dir:
            self._lines = LineWriter(RunFolder(setting.run_dir).rollouts)

    def collector(
        self,
        sampling: Mapping[str, Any],
        on_rollout: Callable[[Rollout], None] | None = None,
    ) -> Collector:
        """One for each way of sampling: training and validation differ."""
        key = repr(sorted(sampling.items()))
        if key not in self._collectors:

            def settled(rollout: Rollout) -> None:
                if self._lines is not None:
                    self._lines.append(rollout.record())
                self._alive.saw(rollout.failure)
                if on_rollout is not None:
                    on_rollout(rollout)

            collect = self.setting.collect(sampling)
            self._collectors[key] = Collector(
                self.client, self.gateway, collect, on_rollout=settled
            )
        return self._collectors[key]

    def close(self) -> None:
        if self._lines is not None:
            self._lines.close()


@asynccontextmanager
async def open_bridge(setting: BridgeSetting, model: ModelSpec | Pool) -> AsyncIterator[Bridge]:
    """``model`` must be named ``setting.served_name``."""
    async with setting.client() as client, Gateway([model], setting.gateway()) as gateway:
        opened = Bridge(setting, client, gateway)
        try:
            yield opened
        finally:
            opened.close()


@asynccontextmanager
async def bridge(
    setting: BridgeSetting,
    model: ModelSpec | Pool,
    sampling: Mapping[str, Any],
    *,
    on_rollout: Callable[[Rollout], None] | None = None,
) -> AsyncIterator[tuple[Collector, Gateway]]:
    """With one way of sampling, for those who need no other."""
    async with open_bridge(setting, model) as opened:
        yield opened.collector(sampling, on_rollout), opened.gateway
