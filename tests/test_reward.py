from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from agentcore_rl_toolkit import reward as module
from agentcore_rl_toolkit.reward import (
    AllChecksPass,
    ExactMatch,
    FinalAnswer,
    NumericMatch,
    RewardFunction,
    WeightedSum,
)

NUMBERS = [
    ("42", 42.0),
    ("  -42 ", -42.0),
    ("+1", 1.0),
    ("1,234.5", 1234.5),
    ("12,34", None),
    (".5", 0.5),
    ("5.", 5.0),
    ("$1,200", 1200.0),
    ("-$3", -3.0),
    ("50%", 50.0),
    ("1e3", 1000.0),
    ("1_000", None),
    ("nan", None),
    ("inf", None),
    ("", None),
    ("42 apples", None),
    (7, 7.0),
    (np.float32(0.5), 0.5),
    (float("nan"), None),
    (True, None),
    (None, None),
    ([42], None),
    (10**400, None),
]


@pytest.mark.parametrize(("value", "number"), NUMBERS, ids=[repr(v)[:20] for v, _ in NUMBERS])
def test_a_value_is_read_as_one_number_or_none(value: Any, number: float | None) -> None:
    assert module.to_number(value) == number


FINAL = [
    ("it is 6 * 7\n#### 42", "42", 1.0),
    ("#### 41\nno, wait\n#### 42", 42, 1.0),
    ("#### 42\nno, wait\n#### 41", 42, 0.0),
    ("#### $1,234", "some working\n#### 1234", 1.0),
    ("#### -7", -7, 1.0),
    ("#### 42 apples", 42, 1.0),
    ("####", 42, 0.0),
    ("####\n42", 42, 0.0),
    ("the answer is 42", 42, 0.0),
    (None, 42, 0.0),
    ("#### 42", None, 0.0),
    (42, 42, 1.0),
    ({"text": "#### 42"}, 42, 0.0),
]


@pytest.mark.parametrize(("response", "answer", "expected"), FINAL)
def test_final_answer_judges_the_number_after_the_last_mark(
    response: Any, answer: Any, expected: float
) -> None:
    assert FinalAnswer()(response=response, answer=answer) == expected


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ("so the answer is 42.", 1.0),
        ("42, not 41", 0.0),
        ("10-42", 1.0),
        ("no number", 0.0),
        ("#### 41 but 42", 0.0),
    ],
)
def test_final_answer_falls_back_to_the_last_number_when_asked(
    response: str, expected: float
) -> None:
    assert FinalAnswer(last_number=True)(response=response, answer="42") == expected


def test_number_search_is_linear_in_hostile_text() -> None:
    for hostile in ("1," * 100_000, "1" * 100_000, "1" + ",111" * 100_000 + "1", "####" * 100_000):
        FinalAnswer(last_number=True)(response=hostile, answer=1)


def test_exact_match_ignores_outer_space_and_case_only_when_asked() -> None:
    assert ExactMatch()(response=" Paris\n", answer="Paris") == 1.0
    assert ExactMatch()(response="paris", answer="Paris") == 0.0
    assert ExactMatch(ignore_case=True)(response="paris", answer="Paris") == 1.0
    assert ExactMatch()(response=None, answer=None) == 0.0


def test_numeric_match_allows_its_tolerance() -> None:
    assert NumericMatch(0.01)(response="3.14", answer=3.1415) == 1.0
    assert NumericMatch(0.001)(response="3.14", answer=3.1415) == 0.0
    assert NumericMatch()(response="pi", answer=3.1415) == 0.0


def test_weighted_sum_gives_every_part_all_arguments() -> None:
    row = {"response": "#### 42", "answer": "42", "idx": 3}
    assert WeightedSum([(FinalAnswer(), 0.75), (ExactMatch(), 0.25)])(**row) == 0.75
    assert WeightedSum({FinalAnswer(): 1, NumericMatch(): 1})(**row) == 1.0


def test_weighted_sum_refuses_a_reward_per_turn() -> None:
    class PerTurn(RewardFunction):
        def __call__(self, **kwargs: Any) -> list[float]:
            return [0.0, 1.0]

    with pytest.raises(TypeError, match="per turn"):
        WeightedSum([(PerTurn(), 1.0)])()


def test_all_checks_pass_takes_a_check_that_raises_as_a_no() -> None:
    def short(*, response: str, **kwargs: Any) -> bool:
        return len(response) < 20

    def has_digit(*, response: str, **kwargs: Any) -> bool:
        return any(c.isdigit() for c in response)

    reward = AllChecksPass([short, has_digit])
    assert reward(response="#### 42", answer="42") == 1.0
    assert reward(response="forty-two") == 0.0
    assert reward(response=None) == 0.0
    with pytest.raises(ValueError, match="at least one"):
        AllChecksPass([])


def test_a_reward_function_must_be_callable() -> None:
    with pytest.raises(TypeError):
        RewardFunction()  # type: ignore[abstract]
