"""Each invariant of the chaos run fails on a made-up violation of it, and holds without."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentcore_rl_toolkit.run.reader import SessionRecord
from agentcore_rl_toolkit.trajectory.turn import Turn, pack_ids, pack_logprobs
from faults import invariant

SUBMIT = {"kind": "submit", "rollout": "r", "task": 0, "at": 1.0}
REPORT = {"kind": "report", "submitted": 3, "succeeded": 1, "failed": {"model": 1}, "running": 1}


def end(**fields: Any) -> dict[str, Any]:
    line = {"kind": "end", "rollout": "r", "task": 0, "session": "s", "attempts": 1}
    line |= {"failure": None, "message": None, "told": ["ab", "c"]}
    line["rows"] = [{"turns": [["s/0", "ab"], ["s/1", "c"]], "tokens": 3}]
    return {**line, **fields}


def turn(seq: int, text: str, **fields: Any) -> Turn:
    said = {"role": "assistant", "content": text}
    return Turn(
        turn_id=f"s/{seq}",
        session_id="s",
        seq=seq,
        prompt_delta=pack_ids([1]),
        sampled=pack_ids([ord(char) for char in text]),
        logprobs=pack_logprobs([-0.5] * len(text)),
        response=json.dumps(said).encode(),
        **fields,
    )


def journal(*turns: Turn) -> dict[str, SessionRecord]:
    return {"s": SessionRecord("s", turns=list(turns))}


WHOLE = journal(turn(0, "ab"), turn(1, "c"))


def test_a_sound_ledger_holds() -> None:
    lines = [SUBMIT, REPORT, end(), {"kind": "stop", "report": {**REPORT}}]
    assert invariant.exactly_once(lines, over=True) == []


@pytest.mark.parametrize(
    ("lines", "word"),
    [
        ([SUBMIT], "never ended"),
        ([SUBMIT, end(), end()], "ended 2 times"),
        ([end()], "never submitted"),
        ([SUBMIT, end(), SUBMIT], "submitted again"),
        ([{**REPORT, "running": 0}], "does not sum"),
        ([{**REPORT, "running": -1, "succeeded": 3}], "does not sum"),
        ([SUBMIT, end(failure="contract", message="x")], "contract"),
        ([SUBMIT, end(failure="agent", message="connection refused")], "blamed"),
        ([SUBMIT, end(failure="session_lost")], "has rows"),
    ],
    ids=[
        "a rollout that never ends",
        "one that ends twice",
        "one from nowhere",
        "one that runs after its end",
        "an account with a hole",
        "a negative count",
        "a fault that is called a mistake of the user",
        "a fault that is blamed on the agent",
        "a lost session that is trained",
    ],
)
def test_what_is_not_accounted_for_is_told(lines: list[Any], word: str) -> None:
    wrong = invariant.exactly_once(lines, over=True)
    assert any(word in text for text in wrong), wrong


def test_a_rollout_may_be_open_while_the_run_goes_on() -> None:
    assert invariant.exactly_once([SUBMIT], over=False) == []


def test_an_agents_own_failure_is_no_violation() -> None:
    line = end(failure="agent", message=f"status 500: {invariant.ON_PURPOSE}")
    assert invariant.exactly_once([SUBMIT, line], over=True) == []


@pytest.mark.parametrize(
    "held",
    [
        {},
        journal(),
        journal(turn(0, "other")),
        journal(turn(0, "ab", error="broken")),
        journal(turn(0, "ab"), turn(1, "ab")),
    ],
    ids=["no session", "no turn", "another turn", "only a failed turn", "twice"],
)
def test_an_acknowledged_answer_that_the_journal_lacks_is_told(held: Any) -> None:
    assert invariant.acknowledged({"s": ["ab"]}, WHOLE) == []
    assert len(invariant.acknowledged({"s": ["ab"]}, held)) == 1


@pytest.mark.parametrize(
    ("lines", "word"),
    [
        ([end(), end(rollout="q")], "trained by r and by q"),
        ([end(rows=[{"turns": [["s/0", "ab"]], "tokens": 2}])], "told"),
        ([end(told=["ab"])], "told"),
        ([end(rows=[{"turns": [["s/0", "xy"], ["s/1", "c"]], "tokens": 3}])], "not what"),
        ([end(rows=[{"turns": [["s/7", "ab"], ["s/1", "c"]], "tokens": 3}])], "not what"),
        ([end(rows=[{"turns": [["s/0", "ab"], ["s/0", "ab"], ["s/1", "c"]]}])], "by r and by r"),
    ],
    ids=[
        "one turn in two rollouts",
        "a delivered turn that is lost",
        "a turn that nobody was told",
        "other tokens than were sampled",
        "a turn that is in no journal",
        "one turn twice in a rollout",
    ],
)
def test_training_anything_but_what_was_delivered_is_told(lines: list[Any], word: str) -> None:
    assert invariant.trained([end()], {}, WHOLE) == []
    wrong = invariant.trained(lines, {}, WHOLE)
    assert any(word in text for text in wrong), wrong


def test_a_failed_agents_words_come_from_its_log() -> None:
    line = end(failure="agent", message=invariant.ON_PURPOSE, told=None)
    assert invariant.trained([line], {"s": ["ab", "c"]}, WHOLE) == []
    assert invariant.trained([line], {"s": ["ab"]}, WHOLE)


def test_a_failure_in_calm_is_told_and_one_before_is_not() -> None:
    failed = end(failure="timeout", rows=[])
    assert invariant.calm([SUBMIT, failed], since=0.5)
    assert invariant.calm([SUBMIT, failed], since=1.5) == []
    assert invariant.calm([SUBMIT, end()], since=0.5) == []


def test_every_sampled_token_has_a_fate() -> None:
    held = {**WHOLE, "t": SessionRecord("t", turns=[turn(0, "dead")])}
    assert invariant.fates([end()], held) == {"trained": 3, "attempt given up": 4}


def test_what_agents_saw_is_read_from_whole_lines_of_their_logs(tmp_path: Path) -> None:
    (tmp_path / "s.log").write_text('noise\n{"told": "ab"}\n{"told": "half')
    assert invariant.read_told(tmp_path) == {"s": ["ab"]}
