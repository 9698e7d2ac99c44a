"""Large runs: heads of rollouts, and one session without reading the others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentcore_rl_toolkit.run import Journal, Problem, RunFolder, SessionOpened
from agentcore_rl_toolkit.run.frame import encode
from agentcore_rl_toolkit.run.index import RolloutIndex, find_session
from agentcore_rl_toolkit.trajectory.turn import Turn, pack_ids, pack_logprobs

AT = 1_790_000_000.0


def line(name: str, **more: object) -> str:
    return json.dumps({"rollout_id": name, "group_id": "g", "reward": 1.0, **more}) + "\n"


def test_new_lines_are_taken_in_and_whole_lines_only(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl"
    index = RolloutIndex(path)
    assert index.poll() == 0
    path.write_text(line("a") + line("b")[:-5])
    assert (index.poll(), index.half > 0) == (1, True)
    path.write_text(line("a") + line("b") + line("c", reward=None, unknown={"x": 1}))
    assert (index.poll(), index.half) == (2, 0)
    assert [head.rollout_id for head in index.heads] == ["a", "b", "c"]
    assert index.by_group == {"g": [0, 1, 2]}
    assert index.heads[2].reward is None


def test_a_whole_record_is_read_again_from_its_place(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl"
    path.write_text("nonsense\n" + line("a") + line("b", metrics={"x": 2}))
    index = RolloutIndex(path)
    index.poll()
    assert index.record(1)["metrics"] == {"x": 2}
    assert [problem.at for problem in index.problems] == [0]


def test_the_last_of_a_name_is_found_where_a_resumed_run_repeats_it(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl"
    path.write_text(line("a-1") + line("a-2") + line("a-1"))
    index = RolloutIndex(path)
    index.poll()
    assert (index.find("a-1"), index.find("a-2"), index.find("b")) == (2, 1, None)
    assert sorted(index.starting_with("a-")) == ["a-1", "a-2"]


# --- sessions ---------------------------------------------------------------------------------


def turn(session_id: str, seq: int, at: float) -> Turn:
    return Turn(
        turn_id=f"{session_id}/{seq}",
        session_id=session_id,
        seq=seq,
        parent=f"{session_id}/{seq - 1}" if seq else None,
        request=b"x" * 400,
        prompt_delta=pack_ids([1, 2]),
        sampled=pack_ids([3]),
        logprobs=pack_logprobs([-0.5]),
        started=at,
        total_s=0.5,
    )


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """Forty sessions, one a minute, over many segments."""
    folder = RunFolder(tmp_path / "run").create()
    journal = Journal(folder.turns, fsync=False, segment_bytes=4096)
    for number in range(40):
        at = AT + 60 * number
        journal.append(encode(SessionOpened(session_id=f"s{number:02d}", at=at))).result()
        for seq in range(3):
            journal.append(encode(turn(f"s{number:02d}", seq, at + seq))).result()
    journal.close()
    assert len(list(folder.turns.glob("*.journal"))) > 5
    return folder


@pytest.mark.parametrize("number", [0, 17, 39])
def test_a_session_is_found_by_its_time(folder: RunFolder, number: int) -> None:
    at = AT + 60 * number
    record = find_session(folder, f"s{number:02d}", since=at, until=at + 3)
    assert record is not None
    assert record.opened is not None
    assert [one.seq for one in record.turns] == [0, 1, 2]


def test_a_session_is_found_also_when_its_time_is_wrong_or_unknown(folder: RunFolder) -> None:
    wrong = find_session(folder, "s05", since=AT + 2000, until=AT + 2001)
    assert wrong is not None
    assert len(wrong.turns) == 3
    unknown = find_session(folder, "s05")
    assert unknown is not None
    assert len(unknown.turns) == 3
    assert find_session(folder, "s99") is None
    assert find_session(RunFolder(folder.path / "nowhere"), "s05") is None


def test_segments_of_another_time_are_not_read(folder: RunFolder) -> None:
    last = max(folder.turns.glob("*.journal"))
    last.write_bytes(last.read_bytes()[:-3])
    problems: list[Problem] = []
    find_session(folder, "s00", since=AT, until=AT + 3, problems=problems)
    assert problems == []
    find_session(folder, "s39", since=AT + 2340, until=AT + 2343, problems=problems)
    assert [problem.path for problem in problems] == [last]


def test_a_frame_with_a_wrong_checksum_is_told_and_left_out(folder: RunFolder) -> None:
    first = min(folder.turns.glob("*.journal"))
    body = bytearray(first.read_bytes())
    at = body.index(b"s00/1") + 30
    body[at] ^= 0xFF
    first.write_bytes(body)
    problems: list[Problem] = []
    record = find_session(folder, "s00", problems=problems)
    assert record is not None
    assert [one.seq for one in record.turns] == [0, 2]
    assert any("damaged" in problem.message for problem in problems)
