"""Rewards: callables with keyword arguments, so that they mix without knowing each other.

A reward takes what it needs by name and ignores the rest: ``reward(response=…, answer=…, **row)``
works with a whole data row. It runs inside the agent's session. A missing or unusable value is a
reward of 0, never an exception: a model's odd output is data.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from .clock import timed

_NUMBER = re.compile(
    r"(?:(?<![\w)])[-+])?"  # in "10-3" it is not a sign
    r"(?:(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
)
_MARKED = re.compile(r"####[^\S\n]*([^\n]*)")


class RewardFunction(ABC):
    """Base of every reward: subclass it, name the arguments you need, end with ``**kwargs``.

    In a rollout the time that it takes is told apart from the agent's.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__call__" in vars(cls):
            cls.__call__ = timed(vars(cls)["__call__"])  # type: ignore[method-assign]

    @abstractmethod
    def __call__(self, **kwargs: Any) -> float | list[float]:
        """One number for the rollout, or one for each turn of the model."""


class ExactMatch(RewardFunction):
    """1.0 when ``response`` and ``answer`` are the same text, ignoring space around them."""

    def __init__(self, *, ignore_case: bool = False) -> None:
        self.ignore_case = ignore_case

    def __call__(self, *, response: Any = None, answer: Any = None, **kwargs: Any) -> float:
        if response is None or answer is None:
            return 0.0
        left, right = str(response).strip(), str(answer).strip()
        if self.ignore_case:
            left, right = left.casefold(), right.casefold()
        return float(left == right)


class NumericMatch(RewardFunction):
    """1.0 when ``response`` and ``answer`` are numbers at most ``tolerance`` apart.

    Text must be one number and nothing else; ``1,234.5``, ``$12`` and ``50%`` are read as such.
    """

    def __init__(self, tolerance: float = 1e-6) -> None:
        self.tolerance = tolerance

    def __call__(self, *, response: Any = None, answer: Any = None, **kwargs: Any) -> float:
        return float(_close(to_number(response), to_number(answer), self.tolerance))


class FinalAnswer(RewardFunction):
    """1.0 when the number after the last ``####`` of ``response`` equals that of ``answer``.

    ``answer`` may be a number, or a worked solution that ends in ``#### 42`` itself. With
    ``last_number`` a response without the mark is judged by its last number.
    """

    def __init__(self, *, last_number: bool = False, tolerance: float = 1e-6) -> None:
        self.last_number = last_number
        self.tolerance = tolerance

    def __call__(self, *, response: Any = None, answer: Any = None, **kwargs: Any) -> float:
        said = final_number(response, last_number=self.last_number)
        expected = to_number(answer)
        if expected is None:
            expected = final_number(answer)
        return float(_close(said, expected, self.tolerance))


class WeightedSum(RewardFunction):
    """The sum of weight times reward; each part gets all arguments and returns one number."""

    def __init__(
        self, parts: Mapping[RewardFunction, float] | Iterable[tuple[RewardFunction, float]]
    ) -> None:
        pairs = parts.items() if isinstance(parts, Mapping) else parts
        self.parts = [(reward, float(weight)) for reward, weight in pairs]

    def __call__(self, **kwargs: Any) -> float:
        return math.fsum(weight * _scalar(reward(**kwargs)) for reward, weight in self.parts)


class AllChecksPass(RewardFunction):
    """1.0 when every check says yes; a check that raises says no.

    Checks are called in order with all arguments, and the first no ends it.
    """

    def __init__(self, checks: Sequence[Callable[..., Any]]) -> None:
        if not checks:
            raise ValueError("AllChecksPass needs at least one check: none would always pass")
        self.checks = list(checks)

    def __call__(self, **kwargs: Any) -> float:
        return float(all(_passes(check, kwargs) for check in self.checks))


def to_number(value: Any) -> float | None:
    """The number that a value is, or None: for text, nothing else may be in it."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, str):
        text = value.strip().removesuffix("%").removesuffix(".").strip()
        text = re.sub(r"^([-+]?)\s*\$\s*", r"\1", text)
        if not _NUMBER.fullmatch(text):
            return None
        value = text.replace(",", "")
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def final_number(text: Any, *, last_number: bool = False) -> float | None:
    """The number after the last ``####``; without the mark, when asked, the last one of all."""
    if isinstance(text, int | float):
        return to_number(text)
    if not isinstance(text, str):
        return None
    marked = _MARKED.findall(text)
    if not marked:
        found = _NUMBER.findall(text) if last_number else []
        return to_number(found[-1]) if found else None
    whole = to_number(marked[-1])
    if whole is not None:
        return whole
    first = _NUMBER.search(marked[-1])  # "#### 42 apples"
    return to_number(first.group()) if first else None


def _close(left: float | None, right: float | None, tolerance: float) -> bool:
    return left is not None and right is not None and abs(left - right) <= tolerance


def _passes(check: Callable[..., Any], arguments: Mapping[str, Any]) -> bool:
    try:
        return bool(check(**arguments))
    except Exception:  # noqa: BLE001  (what a check cannot judge does not pass)
        return False


def _scalar(value: float | list[float]) -> float:
    if isinstance(value, list | tuple):
        raise TypeError("WeightedSum adds scalar rewards; a part returned one value per turn")
    return float(value)
