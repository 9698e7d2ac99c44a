"""What the gateway counts about itself, in Prometheus' text format.

Plain attributes, added to on one loop. ``lag`` is how late the ticker woke up: the one number that
says whether the loop is saturated.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec

from ..prometheus import metric
from ..trajectory.drift import DriftCount

if TYPE_CHECKING:
    from .call import Call

LAG_SAMPLES = 1024


class Metrics:
    def __init__(self) -> None:
        self.calls = self.failed = self.cancelled = 0
        self.turns = self.sampled_tokens = 0
        self.joined = self.retried = self.undelivered = 0
        self.drift = DriftCount()
        """Of all sessions since the start."""
        self._lags: deque[float] = deque(maxlen=LAG_SAMPLES)

    def ended(self, call: Call) -> None:
        self.calls += 1
        self.turns += len(call.turns)
        self.sampled_tokens += sum(turn.n_sampled for turn in call.turns)
        if call.cancelled:
            self.cancelled += 1
        elif call.refusal is not None:
            self.failed += 1
        elif not call.delivered:
            self.undelivered += 1

    def lagged(self, seconds: float) -> None:
        self._lags.append(max(seconds, 0.0))

    def lag(self, share: float = 0.99) -> float:
        """A quantile of the last samples, in seconds."""
        if not self._lags:
            return 0.0
        ordered = sorted(self._lags)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)]

    def text(self, **gauges: float) -> str:
        counters = {
            "calls_total": self.calls,
            "calls_failed_total": self.failed,
            "calls_cancelled_total": self.cancelled,
            "calls_joined_total": self.joined,
            "engine_retries_total": self.retried,
            "turns_total": self.turns,
            "turns_undelivered_total": self.undelivered,
            "sampled_tokens_total": self.sampled_tokens,
        }
        for name, value in msgspec.to_builtins(self.drift).items():
            counters[f"drift_{name}_total"] = value
        lines: list[str] = []
        for name, value in counters.items():
            lines += metric(f"art_gateway_{name}", "counter", value)
        gauges = {
            "loop_lag_p99_seconds": self.lag(),
            "loop_lag_max_seconds": self.lag(1.0),
        } | gauges
        for name, gauge in gauges.items():
            lines += metric(f"art_gateway_{name}", "gauge", float(gauge))
        return "\n".join(lines) + "\n"
