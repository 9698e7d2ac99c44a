"""A journal file that was cut or damaged anywhere still gives every sound frame."""

from pathlib import Path

import pytest

from agentcore_rl_toolkit.errors import ConfigError
from agentcore_rl_toolkit.run.frame import Delivery, SessionClosed, SessionOpened, decode, encode
from agentcore_rl_toolkit.run.segment import (
    HEADER,
    Damage,
    read_payloads,
    seal_frame,
    segments,
    survey,
    truncate_torn,
)
from agentcore_rl_toolkit.trajectory import Turn, pack_ids

FRAMES = [
    encode(SessionOpened(session_id="a", at=1.0, settings={"temperature": 1.0})),
    encode(Turn(turn_id="a/0", session_id="a", seq=0, sampled=pack_ids([1, 2]), train=False)),
    encode(Delivery(session_id="a", turn_id="a/0", at=2.0)),
    encode(SessionClosed(session_id="a", at=3.0)),
]


def whole() -> bytes:
    return HEADER + b"".join(seal_frame(frame) + frame for frame in FRAMES)


def ends() -> list[int]:
    """Where each frame ends."""
    out, at = [], len(HEADER)
    for frame in FRAMES:
        at += 8 + len(frame)
        out.append(at)
    return out


def read(path: Path) -> tuple[list[bytes], Damage]:
    damage = Damage(path)
    return list(read_payloads(path, damage)), damage


def test_a_whole_file_reads_without_damage(tmp_path: Path) -> None:
    path = tmp_path / "g-000001.journal"
    path.write_bytes(whole())
    frames, damage = read(path)
    assert frames == FRAMES
    assert (damage.gaps, damage.torn, damage.end) == ([], None, len(whole()))
    assert [type(decode(frame)).__name__ for frame in frames] == [
        "SessionOpened",
        "Turn",
        "Delivery",
        "SessionClosed",
    ]


def test_a_file_cut_at_any_byte_gives_the_frames_before_the_cut(tmp_path: Path) -> None:
    path = tmp_path / "g-000001.journal"
    for cut in range(len(whole()) + 1):
        path.write_bytes(whole()[:cut])
        frames, damage = read(path)
        n = sum(end <= cut for end in ends())
        assert frames == FRAMES[:n]
        sound = ends()[n - 1] if n else min(len(HEADER), cut) if cut >= len(HEADER) else 0
        assert damage.end == sound
        assert (damage.torn is not None) == (cut > sound)


def test_a_cut_file_is_appended_to_after_its_last_whole_frame(tmp_path: Path) -> None:
    path = tmp_path / "g-000001.journal"
    for cut in range(1, len(whole()) + 1):
        path.write_bytes(whole()[:cut])
        truncate_torn(path)
        with path.open("ab") as file:
            file.write(seal_frame(FRAMES[0]) + FRAMES[0])
        frames, damage = read(path)
        n = sum(end <= cut for end in ends())
        assert frames == [*FRAMES[:n], FRAMES[0]]
        assert (damage.gaps, damage.torn) == ([], None)


def test_a_byte_changed_anywhere_costs_one_frame_and_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "g-000001.journal"
    for at in range(len(HEADER), len(whole())):
        for flip in (0x01, 0x80, 0xFF):
            broken = bytearray(whole())
            broken[at] ^= flip
            path.write_bytes(broken)
            frames, damage = read(path)
            lost = next(i for i, end in enumerate(ends()) if at < end)
            assert frames == FRAMES[:lost] + FRAMES[lost + 1 :]
            assert damage.gaps or damage.torn


def test_zeros_at_the_end_are_room_and_neither_frames_nor_damage(tmp_path: Path) -> None:
    path = tmp_path / "g-000001.journal"
    path.write_bytes(whole() + bytes(200_000))
    frames, damage = read(path)
    assert frames == FRAMES
    assert (damage.gaps, damage.torn, damage.end) == ([], None, len(whole()))


def test_half_a_frame_before_zeros_is_a_torn_tail(tmp_path: Path) -> None:
    path = tmp_path / "g-000001.journal"
    path.write_bytes(whole()[:-12] + bytes(200_000))
    frames, damage = read(path)
    assert frames == FRAMES[:-1]
    assert damage.torn is not None


def test_a_frame_inside_a_damaged_frame_is_not_taken_for_one(tmp_path: Path) -> None:
    """An agent chooses its request bytes: they must not become frames when the disk is bad."""
    forged = seal_frame(FRAMES[3]) + FRAMES[3]
    carrier = encode(Turn(turn_id="a/1", session_id="a", seq=1, request=forged, train=False))
    body = bytearray(HEADER + seal_frame(carrier) + carrier + seal_frame(FRAMES[2]) + FRAMES[2])
    body[len(HEADER) + 8 + 3] ^= 0xFF
    path = tmp_path / "g-000001.journal"
    path.write_bytes(body)
    assert read(path)[0] == [FRAMES[2]]


@pytest.mark.parametrize("head", [b"PARQUET1", b"ARTJRNL\x63"], ids=["other file", "later version"])
def test_a_file_of_another_kind_is_refused(tmp_path: Path, head: bytes) -> None:
    path = tmp_path / "g-000001.journal"
    path.write_bytes(head + b"data")
    with pytest.raises(ConfigError, match=r"journal"):
        survey(path)


def test_segments_are_listed_by_writer_in_order(tmp_path: Path) -> None:
    for name in ("w1-000002", "w0-000001", "w1-000001", "notes"):
        (tmp_path / f"{name}.journal").touch()
    names = [path.name for path in segments(tmp_path, "w1")]
    assert names == ["w1-000001.journal", "w1-000002.journal"]
    assert len(segments(tmp_path)) == 4
