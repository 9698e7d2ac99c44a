"""Real clients against a scripted model: what the table says of them."""

from __future__ import annotations

from typing import Any

import clients
import pytest
from clients import CARELESS, CLIENTS, Client, Found, measure, rows

BY_NAME = {client.name: client for client in CLIENTS}


@pytest.mark.parametrize(
    ("kind", "n_rows", "forks"),
    [
        pytest.param("ids", 1, {}, id="one row where the gateway renders"),
        pytest.param("chat", 5, {"drift": 4}, id="a row a turn where the engine does"),
    ],
)
async def test_a_client_that_drops_reasoning_loses_no_token(
    kind: str, n_rows: int, forks: dict[str, int]
) -> None:
    found = await measure(BY_NAME[CARELESS], kind)
    assert (found.turns, found.rows, found.forks) == (5, n_rows, forks)
    assert found.trained == found.delivered > 0


@pytest.mark.parametrize(
    "name",
    [
        "anthropic messages, streamed, drops thinking",
        "openai responses, previous_response_id",
        "openai responses, drops reasoning, rewrites arguments",
    ],
)
async def test_every_api_goes_on_in_one_row(name: str) -> None:
    found = await measure(BY_NAME[name], "ids")
    assert (found.turns, found.rows, found.share) == (5, 1, 1.0)


async def test_a_token_that_is_not_trained_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = clients.trained_ids
    monkeypatch.setattr(clients, "trained_ids", lambda row: list(whole(row))[1:])
    found = await measure(BY_NAME["openai chat"], "ids")
    assert found.share < 1


async def test_what_is_not_installed_is_skipped_with_its_reason() -> None:
    async def never(*_: Any) -> str:
        raise AssertionError

    found = await measure(Client("other", never, needs=("no-such-package",)), "ids")
    reason = "no-such-package is not installed"
    assert found.line() == f"| other | ids | skipped: {reason} | | | | | |"
    ours = [Found(CARELESS, kind, 5, n, {}, 9, 9) for kind, n in (("ids", 1), ("chat", 5))]
    made = rows([*ours, found], Found(CARELESS, "peer", skipped="not installed"))
    assert [row.here for row in made.rows] == [[1.0], [1.0], [1.0], [5.0], reason]
    assert made.rows[1].peers == {"this without a tokenizer": [5.0], clients.RLLM: "not installed"}
