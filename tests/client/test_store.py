from __future__ import annotations

import pytest

from agentcore_rl_toolkit.client.store import Looks, common_prefix, listing_pays
from agentcore_rl_toolkit.errors import ConfigError


@pytest.mark.parametrize(
    ("keys", "prefix"),
    [
        pytest.param(["e/a/1.json"], "e/a/", id="one key gives its folder"),
        pytest.param(["e/a/1.json", "e/a/2.json"], "e/a/", id="same input"),
        pytest.param(["e/ab/1.json", "e/ac/1.json"], "e/", id="cut at the slash"),
        pytest.param(["e1/a/1.json", "e2/a/1.json"], "", id="nothing in common"),
    ],
)
def test_the_prefix_of_a_listing_ends_at_a_slash(keys: list[str], prefix: str) -> None:
    assert common_prefix(keys) == prefix


def test_a_listing_pays_while_it_costs_no_more_than_the_heads() -> None:
    assert listing_pays(pages=1, listed=0, pending=1)
    assert listing_pays(pages=1, listed=1000, pending=64)
    assert not listing_pays(pages=1, listed=1000, pending=3)
    assert not listing_pays(pages=100, listed=100_000, pending=128)


def test_the_pause_between_looks_grows_with_the_age_of_the_rollout() -> None:
    looks = Looks()
    every = 0.5
    for age in range(1, 11):
        every = looks.after(every, age)
    assert every == 0.5
    for age in range(20, 1200, 20):
        every = looks.after(every, age)
        assert 0.5 <= every <= max(0.5, age / 20)
    assert every == 30.0


@pytest.mark.parametrize("looks", [(0, 30, 1.5), (1, 0.5, 1.5), (1, 2, 0.9)])
def test_intervals_that_make_no_sense_are_refused(looks: tuple[float, float, float]) -> None:
    with pytest.raises(ConfigError, match="initial_interval"):
        Looks(*looks)
