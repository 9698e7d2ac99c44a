"""AWS's quotas, to rehearse a run against them. Without, a local runtime bounds nothing of this.

``AwsQuotas`` are the values, ``Meter`` counts against them. A rate is a bucket that holds one
second's worth: what is over it is 429 ThrottlingException, which boto3 retries; a number of things
that is reached is 402 ServiceQuotaExceededException, which it does not.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from .. import local
from ..errors import ConfigError
from . import wire

Control = Literal["mutations", "gets", "lists"]


@dataclass(frozen=True)
class AwsQuotas:
    """None is no bound. Rates are per second."""

    requests: float | None = None
    """Data plane, all agents together."""
    agent_requests: float | None = None
    """Data plane, of each agent: how AWS counted until the middle of 2026."""
    new_sessions: float | None = None
    sessions: int | None = None
    """Live at a time."""
    payload_bytes: int | None = None
    sync_s: float | None = None
    """Until the agent's answer begins."""
    frame_bytes: int | None = None
    """Of one WebSocket message."""
    frames: float | None = None
    """Of one WebSocket connection, each way."""
    mutations: float | None = None
    gets: float | None = None
    lists: float | None = None
    runtimes: int | None = None
    versions: int | None = None
    endpoints: int | None = None
    shortest_s: int | None = None
    """The least idle timeout and lifetime."""
    variables_bytes: int | None = None
    """Names and values of an agent's environment variables together."""

    @classmethod
    def parse(cls, text: str) -> AwsQuotas:
        """``aws``, ``aws-2025``, ``none``, ``name=value``, or several of them with commas between:
        what comes later wins."""
        found = cls()
        types = {field.name: field.type for field in dataclasses.fields(cls)}
        for word in filter(None, (part.strip() for part in text.split(","))):
            name, equals, value = word.partition("=")
            if not equals and name in PRESETS:
                found = PRESETS[name]
                continue
            if name not in types:
                raise ConfigError(
                    f"{word!r} is not a quota: use {', '.join(PRESETS)}, or name=value with a name "
                    f"of {', '.join(types)}"
                )
            number = int if str(types[name]).startswith("int") else float
            try:
                parsed = number(value)
            except ValueError:
                raise ConfigError(f"the quota {name} needs a number, not {value!r}") from None
            if not parsed > 0:
                raise ConfigError(f"the quota {name} must be more than 0, got {value}")
            values: dict[str, Any] = {name: parsed}
            found = dataclasses.replace(found, **values)
        return found


_NOW = AwsQuotas(
    requests=1000,
    new_sessions=25,
    sessions=5000,
    payload_bytes=100_000_000,
    sync_s=900,
    frame_bytes=64 * 1024,
    frames=250,
    mutations=50,
    gets=150,
    lists=25,
    runtimes=1000,
    versions=1000,
    endpoints=10,
    shortest_s=60,
    variables_bytes=4096,
)
PRESETS = {
    "none": AwsQuotas(),
    "aws": _NOW,
    "aws-2025": dataclasses.replace(
        _NOW,
        requests=None,
        agent_requests=25,
        new_sessions=100 / 60,
        sessions=1000,
        frame_bytes=32 * 1024,
        mutations=5,
        gets=5,
        lists=5,
    ),
}


class Bucket:
    """Pure: fed with the time."""

    def __init__(self, rate: float, now: float) -> None:
        self.rate = rate
        self.size = max(rate, 1.0)
        self._tokens, self._then = self.size, now

    def take(self, now: float) -> bool:
        self._tokens = min(self.size, self._tokens + (now - self._then) * self.rate)
        self._then = now
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True


class Meter:
    def __init__(
        self, quotas: AwsQuotas | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.quotas = quotas or AwsQuotas()
        self._clock = clock
        self._buckets: dict[str, Bucket] = {}

    def request(self, runtime_id: str) -> None:
        """Of the data plane."""
        self._take("requests", self.quotas.requests)
        self._take(f"agent {runtime_id}", self.quotas.agent_requests)

    def new_session(self, live: int) -> None:
        if self.quotas.sessions is not None and live >= self.quotas.sessions:
            raise wire.quota_exceeded(
                f"maxVms limit exceeded for account {local.ACCOUNT}: {live} sessions are live, "
                f"and the quota is {self.quotas.sessions}"
            )
        self._take("new sessions", self.quotas.new_sessions)

    def control(self, kind: Control) -> None:
        self._take(kind, getattr(self.quotas, kind))

    def room(self, kind: Literal["runtimes", "versions", "endpoints"], present: int) -> None:
        most = getattr(self.quotas, kind)
        if most is not None and present >= most:
            raise wire.quota_exceeded(f"there are {present} {kind} already, the quota is {most}")

    def _take(self, name: str, rate: float | None) -> None:
        if rate is None:
            return
        now = self._clock()
        bucket = self._buckets.setdefault(name, Bucket(rate, now))
        if not bucket.take(now):
            raise wire.throttled()
