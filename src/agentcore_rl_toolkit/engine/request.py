"""What is asked of the engine and what it answers.

``Sampling`` refuses whatever it cannot do exactly: a setting that is silently ignored would make
the captured log-probabilities those of another policy. ``Completion`` holds the ids as sampled
(the stop id included), the log-probability of each under the distribution it was drawn from, and
the weight version that drew it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from ..errors import ConfigError
from ..trajectory.turn import Span

MAX_TOP_LOGPROBS = 20
MAX_CHOICES = 128

_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "min_p": (0,),
    "stop": ([], ""),
    "logit_bias": ({},),
    "bad_words": ([],),
    "prompt_logprobs": (),
    "structured_outputs": (),
    "allowed_token_ids": (),
    "min_tokens": (0,),
    "n": (1,),
}
"""Fields of vLLM's sampling parameters that are accepted only where they change nothing."""

_IRRELEVANT = {
    "detokenize",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "include_stop_str_in_output",
    "output_kind",
    "truncate_prompt_tokens",
    "extra_args",
}
"""About text, which this engine never sees."""


@dataclasses.dataclass(frozen=True)
class Sampling:
    temperature: float = 1.0
    """0 takes the most likely id; its log-probability is then that of temperature 1."""
    top_p: float = 1.0
    top_k: int = 0
    """0 means all."""
    max_tokens: int | None = None
    """None: as many as fit."""
    stop_token_ids: tuple[int, ...] = ()
    """In addition to the model's own."""
    ignore_eos: bool = False
    """Leaves only ``stop_token_ids``."""
    seed: int | None = None
    logprobs: int = 0
    """How many alternatives to return at each position, besides the sampled id."""

    def __post_init__(self) -> None:
        _check(math.isfinite(self.temperature) and self.temperature >= 0, "temperature", ">= 0")
        _check(0 < self.top_p <= 1, "top_p", "in (0, 1]")
        _check(self.top_k >= 0, "top_k", ">= 0 (0 means all)")
        _check(self.max_tokens is None or self.max_tokens >= 1, "max_tokens", ">= 1")
        _check(0 <= self.logprobs <= MAX_TOP_LOGPROBS, "logprobs", f"0 to {MAX_TOP_LOGPROBS}")

    @property
    def plain(self) -> bool:
        """The model's own distribution, unchanged."""
        return self.temperature == 1 and self.top_p == 1 and self.top_k == 0

    @classmethod
    def parse(cls, params: Mapping[str, Any]) -> Sampling:
        """From vLLM's ``sampling_params``; null means not given. ConfigError names the field."""
        known = {field.name for field in dataclasses.fields(cls)}
        given: dict[str, Any] = {}
        for name, value in params.items():
            if value is None or name in _IRRELEVANT:
                continue
            if name in known:
                given[name] = _typed(name, value)
            elif name not in _NEUTRAL:
                raise ConfigError(f"sampling_params.{name} is unknown to this engine: leave it out")
            elif value not in _NEUTRAL[name]:
                raise ConfigError(
                    f"sampling_params.{name}={value!r} is not supported by this engine: leave it "
                    "out, or serve the model with vLLM"
                )
        if given.get("top_k") == -1:
            given["top_k"] = 0
        return cls(**given)


def _typed(name: str, value: Any) -> Any:
    if name == "stop_token_ids":
        if not isinstance(value, list | tuple) or not all(_is_int(v) for v in value):
            raise ConfigError("sampling_params.stop_token_ids must be a list of integers")
        return tuple(value)
    if name == "ignore_eos":
        if not isinstance(value, bool):
            raise ConfigError("sampling_params.ignore_eos must be true or false")
        return value
    if name in ("temperature", "top_p"):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(f"sampling_params.{name} must be a number, got {value!r}")
        return float(value)
    if not _is_int(value):
        raise ConfigError(f"sampling_params.{name} must be an integer, got {value!r}")
    return value


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check(holds: bool, name: str, wanted: str) -> None:
    if not holds:
        raise ConfigError(f"sampling_params.{name} must be {wanted}")


TopLogprobs = list[tuple[int, float]]


@dataclasses.dataclass
class Piece:
    """Ids that came since the last piece of the same request."""

    token_ids: list[int]
    logprobs: list[float]
    entropies: list[float]
    versions: list[Span]
    """Over ``token_ids`` of this piece."""
    top_logprobs: list[TopLogprobs] | None = None
    finish_reason: str | None = None
    """stop, length or abort on the last piece."""


@dataclasses.dataclass
class Completion:
    request_id: str
    token_ids: list[int]
    logprobs: list[float]
    entropies: list[float]
    """Of the distribution that each id was drawn from, in nats."""
    versions: list[Span]
    finish_reason: str
    stop_id: int | None
    """The id that ended it, when it stopped."""
    n_prompt: int
    top_logprobs: list[TopLogprobs] | None
    queued_s: float
    first_token_s: float | None
    total_s: float


def add_span(spans: list[Span], version: str, at: int) -> None:
    """Extends the spans by the position ``at``, which is one past the last."""
    if spans and spans[-1][0] == version and spans[-1][2] == at:
        spans[-1] = (version, spans[-1][1], at + 1)
    else:
        spans.append((version, at, at + 1))
