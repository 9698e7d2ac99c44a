"""Results are written by agents: whatever is in one, it ends its own rollout and nothing else."""

from __future__ import annotations

import pytest

from agentcore_rl_toolkit.client.attempt import _location
from agentcore_rl_toolkit.client.store import parse_result
from agentcore_rl_toolkit.errors import AgentError, ContractError

DEEP = b"[" * 100_000


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b'{"rewards":' + DEEP, id="nested without end"),
        pytest.param(b'{"rewards":' + b"9" * 5000 + b"}", id="a number without end"),
        pytest.param(b"\xff\xfe{", id="another encoding"),
        pytest.param(b"", id="nothing"),
        pytest.param(b"[1]", id="no object"),
    ],
)
def test_a_result_that_cannot_be_read_is_the_agents_error(data: bytes) -> None:
    with pytest.raises(AgentError):
        parse_result(data, "exp/in/session.json")


def test_an_answer_that_is_nested_without_end_names_no_location() -> None:
    with pytest.raises(ContractError, match="result location"):
        _location(b'{"s3_bucket":' + DEEP)
