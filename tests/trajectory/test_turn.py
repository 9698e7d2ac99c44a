"""Turns: packing, and what is refused."""

import msgspec
import numpy as np
import pytest

from agentcore_rl_toolkit.errors import ContractError
from agentcore_rl_toolkit.trajectory import (
    Turn,
    pack_ids,
    pack_logprobs,
    unpack_ids,
    unpack_logprobs,
)


def turn(**fields: object) -> Turn:
    base = {
        "turn_id": "s/0",
        "session_id": "s",
        "seq": 0,
        "prompt_delta": pack_ids([1, 2, 3]),
        "sampled": pack_ids([4, 5]),
        "logprobs": pack_logprobs([-0.5, -1.0]),
    }
    return Turn(**(base | fields))  # type: ignore[arg-type]


def test_a_turn_survives_msgpack_bit_by_bit() -> None:
    whole = turn(
        parent="s/9",
        prompt_shared=7,
        versions=[("step-1", 0, 1), ("step-2", 1, 2)],
        request=b'{"messages": []}',
        response='{"content": "\u2028"}'.encode(),
        routed_experts=bytes(range(256)),
        flags=["parse_failed"],
        first_token_s=0.25,
    ).check()
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(whole), type=Turn) == whole


@pytest.mark.parametrize(
    "ids",
    [[0, 1, 2**31 - 1], np.array([0, 1, 2**31 - 1]), np.array([0, 1, 2**31 - 1], np.uint32)],
    ids=["list", "int64", "uint32"],
)
def test_ids_are_packed_from_lists_and_arrays(ids: object) -> None:
    assert unpack_ids(pack_ids(ids)).tolist() == [0, 1, 2**31 - 1]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "ids", [[-1], [2**31], [2**40], ["7"], np.array([2**31])], ids=lambda ids: repr(ids)
)
def test_values_that_are_no_ids_are_refused(ids: object) -> None:
    with pytest.raises(ContractError):
        pack_ids(ids)  # type: ignore[arg-type]


@pytest.mark.parametrize("values", [None, [-0.1, None], [-0.1, float("nan")]])
def test_missing_logprobs_are_an_error_and_never_zero(values: object) -> None:
    with pytest.raises(ContractError, match="log-probability"):
        pack_logprobs(values)  # type: ignore[arg-type]


def test_logprobs_are_float32() -> None:
    assert unpack_logprobs(pack_logprobs([-0.1])).tolist() == [np.float32(-0.1)]


def test_fewer_logprobs_than_sampled_ids_are_refused() -> None:
    with pytest.raises(ContractError, match="never filled in"):
        turn(logprobs=pack_logprobs([-0.5])).check()


def test_an_infinite_logprob_is_refused() -> None:
    with pytest.raises(ContractError, match="infinite"):
        turn(logprobs=pack_logprobs([-0.5, float("-inf")])).check()


def test_an_untrained_or_failed_turn_may_have_no_logprobs() -> None:
    turn(logprobs=b"", train=False).check()
    turn(logprobs=b"", error="engine closed the stream").check()
    with pytest.raises(ContractError):
        turn(logprobs=b"").check()


def test_weight_versions_must_lie_in_order_within_the_sampled_ids() -> None:
    for versions in ([("a", 0, 3)], [("a", 1, 2), ("b", 0, 1)]):
        with pytest.raises(ContractError, match="weight version"):
            turn(versions=versions).check()


def test_sharing_ids_needs_a_parent() -> None:
    with pytest.raises(ContractError, match="no parent"):
        turn(prompt_shared=2).check()
