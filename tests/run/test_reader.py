"""Sessions out of journals: whole ones, live ones, damaged ones; and what retention lets go."""

import os
from pathlib import Path

import msgspec

from agentcore_rl_toolkit.run import (
    Delivery,
    Frame,
    Journal,
    RunReader,
    SessionClosed,
    SessionOpened,
    SessionSealed,
    live_sessions,
    prune,
)
from agentcore_rl_toolkit.run.frame import encode
from agentcore_rl_toolkit.run.segment import segments
from agentcore_rl_toolkit.trajectory import SessionGraph, Turn


def session(session_id: str, turns: int = 3) -> tuple[SessionOpened, list[Turn]]:
    graph = SessionGraph(session_id)
    ids = [1]
    for i in range(turns):
        placement = graph.place(prompt_ids=ids)
        turn = graph.make_turn(placement, sampled=[10 + i], logprobs=[-1.0], request=b"x" * 50)
        graph.commit(turn)
        ids = [*graph.ids(turn.turn_id).tolist(), 5]
    opened = SessionOpened(
        session_id=session_id, at=1.0, rollout_id=f"r-{session_id}", group_id="g", key_sha256="00"
    )
    return opened, graph.turns()


def write(folder: Path, frames: list[Frame], **options: int) -> None:
    journal = Journal(folder, fsync=False, **options)
    for frame in frames:
        journal.append(encode(frame)).result(timeout=30)
    journal.close()


def test_a_session_is_read_back_with_its_rows(tmp_path: Path) -> None:
    opened, turns = session("a")
    other, other_turns = session("b", 1)
    lost = Delivery(session_id="b", turn_id="b/0", at=2.0)
    write(tmp_path / "turns", [opened, turns[0], other, *other_turns, *turns[1:], lost])
    reader = RunReader(tmp_path)
    sessions = reader.sessions()
    assert list(sessions) == ["a", "b"]
    (row,) = sessions["a"].graph().rows()
    assert row.token_ids.tolist() == [1, 10, 5, 11, 5, 12]
    assert (row.rollout_id, row.group_id) == ("r-a", "g")
    assert sessions["b"].graph().rows() == []
    assert reader.session("nobody") is None
    assert reader.problems == []


def test_a_name_that_is_used_again_after_its_end_is_another_session(tmp_path: Path) -> None:
    opened, turns = session("a", 2)
    again = msgspec.structs.replace(opened, rollout_id="later", at=9.0)
    closed = SessionClosed(session_id="a", at=5.0)
    write(tmp_path / "turns", [opened, *turns, closed, again, turns[0]])
    records = RunReader(tmp_path).sessions()
    found = {record.opened.rollout_id: len(record.turns) for record in records.values()}
    assert found == {"r-a": 2, "later": 1}
    assert records["a"].opened.rollout_id == "later"


def test_a_gateway_goes_on_with_the_sessions_that_were_not_closed(tmp_path: Path) -> None:
    frames: list[Frame] = []
    for name in ("a", "b", "c"):
        opened, turns = session(name)
        frames += [opened, *turns]
    frames += [
        SessionSealed(session_id="b", at=2.0, reason="done"),
        SessionClosed(session_id="c", at=2.0),
    ]
    write(tmp_path, frames, segment_bytes=300)
    live = live_sessions(tmp_path)
    assert list(live) == ["a", "b"]
    assert live["a"].sealed is None
    assert live["b"].sealed is not None
    assert len(live["a"].turns) == 3


def test_recovery_can_leave_out_the_bodies_of_requests(tmp_path: Path) -> None:
    opened, turns = session("a")
    bodies = [msgspec.structs.replace(turn, request=b"x" * 50) for turn in turns]
    write(tmp_path, [opened, *bodies])
    record = live_sessions(tmp_path, requests=False)["a"]
    assert [turn.request for turn in record.turns] == [b"", b"", b""]
    assert record.request_bytes == 150
    assert len(live_sessions(tmp_path)["a"].turns[0].request) == 50


def test_a_turn_whose_parent_was_lost_is_told_and_the_rest_is_read(tmp_path: Path) -> None:
    opened, turns = session("a")
    write(tmp_path / "turns", [opened, turns[0], turns[2]])
    record = RunReader(tmp_path).session("a")
    assert record is not None
    problems = []
    graph = record.graph(problems)
    assert [row.token_ids.tolist() for row in graph.rows()] == [[1, 10]]
    assert "lost its parent" in problems[0].message


def test_damage_and_frames_of_unknown_kinds_are_reported(tmp_path: Path) -> None:
    opened, turns = session("a")
    journal = Journal(tmp_path / "turns", fsync=False)
    for frame in (encode(opened), msgspec.msgpack.encode({"kind": "later", "session_id": "a"})):
        journal.append(frame).result(timeout=30)
    journal.append(encode(turns[0])).result(timeout=30)
    journal.close()
    (path,) = segments(tmp_path / "turns")
    with path.open("ab") as file:
        file.write(b"torn")
    reader = RunReader(tmp_path)
    assert len(list(reader.frames())) == 2
    told = [problem.message for problem in reader.problems]
    assert "not understood" in told[0]
    assert "not whole" in told[1]


def closed(name: str) -> list[Frame]:
    opened, turns = session(name)
    return [opened, *turns, SessionClosed(session_id=name, at=3.0)]


def test_retention_lets_go_of_finished_sessions_only(tmp_path: Path) -> None:
    opened, turns = session("live")
    frames = [*closed("a"), opened, turns[0], *closed("b"), *closed("c")]
    write(tmp_path, frames, segment_bytes=600)
    before = segments(tmp_path)
    assert len(before) >= 3
    pruned = prune(tmp_path, max_bytes=0)
    assert pruned.removed
    assert before[-1] not in pruned.removed
    assert "live" in pruned.kept_for.values()
    assert len(live_sessions(tmp_path)["live"].turns) == 1
    assert pruned.freed_bytes > 0


def test_retention_by_age_keeps_what_is_young(tmp_path: Path) -> None:
    write(tmp_path, [*closed("a"), *closed("b")], segment_bytes=300)
    old, *young = segments(tmp_path)
    os.utime(old, (1_000, 1_000))
    now = young[0].stat().st_mtime + 10
    assert prune(tmp_path, max_age_s=3600, now=now).removed == [old]
    assert prune(tmp_path, max_age_s=3600, now=now).removed == []


def test_retention_never_makes_a_closed_session_look_open(tmp_path: Path) -> None:
    opened, _ = session("live")
    first, turns = session("a")
    frames: list[Frame] = [opened, first, *turns, SessionClosed(session_id="a", at=3.0)]
    write(tmp_path, [*frames, *closed("b")], segment_bytes=200)
    assert len(segments(tmp_path)) > 3
    prune(tmp_path, max_bytes=0)
    assert list(live_sessions(tmp_path)) == ["live"]
