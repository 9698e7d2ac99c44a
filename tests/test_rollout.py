from __future__ import annotations

import dataclasses
import datetime
import enum
import json
import pathlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from agentcore_rl_toolkit import rollout
from agentcore_rl_toolkit.errors import ConfigError
from agentcore_rl_toolkit.rollout import FailureKind, RolloutConfig

LOCATION = {"exp_id": "exp", "input_id": "in-1", "s3_bucket": "rollouts"}
CONFIG = RolloutConfig("exp", "in-1", "s-1", "rollouts")


def parse(session_id: str | None = "s-1", **block: Any) -> RolloutConfig | None:
    return RolloutConfig.from_payload({"_rollout": {**LOCATION, **block}}, session_id)


# --- where a result goes ----------------------------------------------------------------------


def test_a_location_names_bucket_and_key() -> None:
    config = parse(done_url="http://127.0.0.1:1/done")
    assert config == dataclasses.replace(CONFIG, done_url="http://127.0.0.1:1/done")
    assert rollout.processing(CONFIG) == {
        "status": "processing",
        "s3_bucket": "rollouts",
        "result_key": "exp/in-1/s-1.json",
    }


def test_a_part_may_hold_inner_slashes_and_a_session_id_of_its_own() -> None:
    config = parse(exp_id="team/exp", session_id="other")
    assert config is not None
    assert config.result_key == "team/exp/in-1/other.json"


@pytest.mark.parametrize(
    "payload",
    [{}, {"_rollout": None}, {"_rollout": {}}, {"_rollout": {"base_url": "x"}}, "text", None, [1]],
)
def test_no_location_is_a_production_call(payload: Any) -> None:
    assert RolloutConfig.from_payload(payload, "s-1") is None


@pytest.mark.parametrize("missing", ["exp_id", "input_id", "s3_bucket"])
def test_a_partial_location_is_refused_naming_the_missing_field(missing: str) -> None:
    with pytest.raises(ConfigError, match=f"lacks {missing}"):
        parse(**{missing: None})


def test_a_location_without_a_session_is_refused() -> None:
    with pytest.raises(ConfigError, match="lacks session_id"):
        parse(None)


@pytest.mark.parametrize("block", ["yes", 1, [1], True])
def test_a_block_that_is_no_object_is_refused(block: Any) -> None:
    with pytest.raises(ConfigError, match="must be an object"):
        RolloutConfig.from_payload({"_rollout": block}, "s-1")


HOSTILE = ["", "/abs", "end/", "a//b", "..", "a/../b", "./a", "a\nb", "a\x00b", "a\\b", "\u202e", 7]


@pytest.mark.parametrize("field", ["exp_id", "input_id", "session_id"])
@pytest.mark.parametrize("value", [*HOSTILE, "x" * 257], ids=lambda v: repr(v)[:12])
def test_a_hostile_key_part_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=field):
        parse(**{field: value})


@pytest.mark.parametrize("bucket", ["", "ab", "Upper", "-ab", "a_b", "a..b", "a/b", "x" * 64, 7])
def test_what_is_no_bucket_name_is_refused(bucket: Any) -> None:
    with pytest.raises(ConfigError, match="s3_bucket"):
        parse(s3_bucket=bucket)


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://x", "x", 7])
def test_a_done_url_must_be_http(url: Any) -> None:
    with pytest.raises(ConfigError, match="done_url"):
        parse(done_url=url)


def test_a_key_longer_than_s3_allows_is_refused() -> None:
    with pytest.raises(ConfigError, match="1024 bytes"):
        parse(exp_id="é" * 256, input_id="é" * 256)


@settings(max_examples=50, deadline=None, database=None)
@given(st.text(), st.text(), st.text())
def test_an_accepted_key_stays_below_its_experiment(exp: str, item: str, session: str) -> None:
    try:
        key = rollout.result_key(exp, item, session)
    except ConfigError:
        return
    assert key == f"{exp}/{item}/{session}.json"
    assert not {"", ".", ".."} & set(key.split("/"))
    assert key.isprintable()


# --- what a result looks like -----------------------------------------------------------------


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int
    y: np.float32


class Model(BaseModel):
    name: str


CONVERTED = [
    (np.float32(0.5), 0.5),
    (np.float64(0.25), 0.25),
    (np.int64(3), 3),
    (np.bool_(True), True),
    (np.str_("a"), "a"),
    (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
    (np.array(1.5), 1.5),
    ((1, 2), [1, 2]),
    ({1: "a", np.int64(2): "b", Colour.RED: "c"}, {"1": "a", "2": "b", "red": "c"}),
    (Colour.RED, "red"),
    (datetime.date(2026, 1, 2), "2026-01-02"),
    (pathlib.PurePosixPath("a/b"), "a/b"),
    (Point(1, np.float32(2)), {"x": 1, "y": 2.0}),
    (Model(name="n"), {"name": "n"}),
    (None, None),
    ("é\n", "é\n"),
    ("half \ud83d", "half \ud83d"),
    (10**30, 10**30),
]


@pytest.mark.parametrize(("value", "expected"), CONVERTED, ids=lambda v: repr(v)[:24])
def test_what_has_one_meaning_becomes_json(value: Any, expected: Any) -> None:
    assert json.loads(rollout.dump_result({"v": value})) == {"v": expected}


REFUSED = [
    ({"a": float("nan")}, "result.a"),
    ({"a": [1.0, float("-inf")]}, r"result.a\[1\]"),
    ({"a": np.array([np.nan])}, r"result.a\[0\]"),
    ({"a": {"b": b"raw"}}, "result.a.b"),
    ({"a": {1, 2}}, "result.a"),
    ({"a": object()}, "result.a"),
    ({"a": int}, "result.a"),
    ({"a": {None: 1}}, "None"),
    ({"a": {True: 1}}, "True"),
    ({"a": {1.5: 1}}, "1.5"),
    ({"a": {"1": 1, 1: 2}}, "twice"),
]


@pytest.mark.parametrize(("value", "names"), REFUSED, ids=[names for _, names in REFUSED])
def test_what_has_no_json_form_is_refused_naming_the_field(value: Any, names: str) -> None:
    with pytest.raises(ConfigError, match=names):
        rollout.dump_result(value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)  # fmt: skip


@settings(max_examples=50, deadline=None, database=None)
@given(st.dictionaries(st.text(), JSON))
def test_json_survives_unchanged(value: dict[str, Any]) -> None:
    assert json.loads(rollout.dump_result(value)) == value


def test_the_envelope_keeps_the_handlers_status_but_not_its_location() -> None:
    returned = {"rewards": 1.0, "status_code": 206, "result_key": "elsewhere"}
    whole = rollout.envelope(returned, CONFIG, {"x": 1})
    assert whole == {
        "rewards": 1.0,
        "status_code": 206,
        "stop_reason": "end_turn",
        "input_id": "in-1",
        "s3_bucket": "rollouts",
        "result_key": "exp/in-1/s-1.json",
        "payload": {"x": 1},
    }


@pytest.mark.parametrize(
    ("saved", "kind"),
    [
        ({"rewards": 1.0}, None),
        ({"status_code": 200}, None),
        ({"status_code": None}, None),
        ({"status_code": 500, "stop_reason": "boom"}, FailureKind.AGENT),
        ({"status_code": 500, "failure_kind": "model"}, FailureKind.MODEL),
        ({"status_code": 500, "failure_kind": "odd"}, FailureKind.AGENT),
        ([1.0], FailureKind.AGENT),
        (None, FailureKind.AGENT),
    ],
)
def test_a_status_other_than_200_is_a_failure(saved: Any, kind: FailureKind | None) -> None:
    failure = rollout.failure_of(saved)
    assert (failure and failure.kind) == kind


def test_only_agent_and_contract_failures_are_not_infrastructure() -> None:
    own = {kind for kind in FailureKind if not kind.infrastructure}
    assert own == {FailureKind.AGENT, FailureKind.CONTRACT}


# --- secrets ----------------------------------------------------------------------------------


def test_redacting_hides_keys_and_leaves_the_payload_alone() -> None:
    payload = {
        "prompt": "p",
        "_rollout": {
            "api_key": "sk-secret",
            "base_url": "http://user:pw@host:1/sessions/k-secret/v1?token=t-secret",
            "model_id": "m",
        },
    }
    before = json.dumps(payload)
    hidden = rollout.redact(payload)
    assert json.dumps(payload) == before
    assert hidden["_rollout"] == {
        "api_key": "***",
        "base_url": "http://***@host:1/sessions/***/v1?***",
        "model_id": "m",
    }


def test_the_key_empty_is_no_secret() -> None:
    payload = {"_rollout": {"api_key": "EMPTY", "base_url": "http://host/v1"}}
    assert rollout.redact(payload) == payload
    assert rollout.secrets_of(payload) == []


def test_scrubbing_takes_the_longer_of_two_overlapping_secrets_first() -> None:
    block = {"api_key": "abc", "base_url": "http://h/sessions/abcdef/v1"}
    assert rollout.scrub("x abcdef abc", {"_rollout": block}) == "x *** ***"


@pytest.mark.parametrize("payload", [None, "text", {}, {"_rollout": "x"}, {"_rollout": {}}])
def test_a_payload_without_a_block_has_no_secrets(payload: Any) -> None:
    assert rollout.redact(payload) == payload
    assert rollout.scrub("text", payload) == "text"
