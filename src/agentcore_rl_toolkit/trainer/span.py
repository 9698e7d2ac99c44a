"""Rollouts as OpenTelemetry spans, for those who watch everything else there.

A span a rollout, with one child a stage, made when the rollout is settled: nothing is added to
what runs. Agent and model take turns; their spans are the sums, one after the other. Where they go
is OpenTelemetry's own business (``OTEL_EXPORTER_OTLP_ENDPOINT`` and its relatives).
"""

from __future__ import annotations

import time
from typing import Any

from ..collect.record import Rollout
from ..errors import ConfigError

SERVICE = "agentcore-rl-toolkit"


class Spans:
    """``exporter`` is OTLP over HTTP unless another is given."""

    def __init__(self, run: str, exporter: Any = None) -> None:
        try:
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor

            exporter = exporter or _otlp()
        except ImportError:
            raise ConfigError(
                "track.opentelemetry needs packages: pip install opentelemetry-sdk "
                "opentelemetry-exporter-otlp-proto-http, or leave it out"
            ) from None
        resource = Resource.create({"service.name": SERVICE, "art.run": run})
        self._provider = TracerProvider(resource=resource)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer(SERVICE)

    def rollout(self, phase: str, step: int, rollout: Rollout) -> None:
        from opentelemetry import trace
        from opentelemetry.context import Context

        timings = rollout.timings
        at = time.time_ns() - _ns(timings.total_s)
        whole = self._tracer.start_span(
            "rollout", context=Context(), start_time=at, attributes=_facts(rollout)
        )
        whole.set_attributes({"art.phase": phase, "art.step": step})
        if rollout.failure is not None:
            whole.set_status(trace.StatusCode.ERROR, rollout.failure.message)
        inside = trace.set_span_in_context(whole, Context())
        for name, seconds in (
            ("queue", timings.queue_s),
            ("retry", timings.retry_s),
            ("start", timings.start_s),
            ("agent", timings.agent_s),
            ("model", timings.model_s),
            ("reward", timings.reward_s),
            ("store", timings.finish_s),
        ):
            if seconds > 0:
                stage = self._tracer.start_span(name, context=inside, start_time=at)
                at += _ns(seconds)
                stage.end(at)
        whole.end(at)

    def close(self) -> None:
        self._provider.shutdown()


def _otlp() -> Any:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # type: ignore[import-not-found, unused-ignore]
        OTLPSpanExporter,
    )

    return OTLPSpanExporter()


def _facts(rollout: Rollout) -> dict[str, Any]:
    facts = {
        "rollout_id": rollout.rollout_id,
        "group_id": rollout.group_id,
        "session_id": rollout.session_id,
        "attempts": rollout.attempts,
        "turns": rollout.turns,
        "tokens": rollout.tokens,
        "reward": rollout.reward,
        "failure": None if rollout.failure is None else rollout.failure.kind.value,
    }
    return {f"art.{name}": value for name, value in facts.items() if value is not None}


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)
