"""The journal's writer: durable before acknowledged, bounded, and honest about a full disk."""

import asyncio
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from agentcore_rl_toolkit.errors import ConfigError, GatewayError
from agentcore_rl_toolkit.run import Journal
from agentcore_rl_toolkit.run import journal as journal_module
from agentcore_rl_toolkit.run.segment import FRAME_HEAD_BYTES, HEADER, read_payloads, segments


def frames_of(folder: Path) -> list[bytes]:
    return [frame for path in segments(folder) for frame in read_payloads(path)]


async def test_a_frame_is_in_the_file_when_write_returns(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    await journal.write(b"one")
    assert frames_of(tmp_path) == [b"one"]
    await journal.aclose()
    await journal.aclose()


async def test_files_are_private(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "turns")
    await journal.write(b"x")
    await journal.aclose()
    assert stat.S_IMODE((tmp_path / "turns").stat().st_mode) == 0o700
    for path in (tmp_path / "turns").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_frames_that_wait_together_share_syncs_and_wake_ups(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    frames = [b"%d" % i for i in range(500)]
    await asyncio.gather(*(journal.write(frame) for frame in frames))
    assert frames_of(tmp_path) == frames
    assert journal.frames == 500
    assert journal.syncs < 100
    await journal.aclose()


async def test_frames_of_one_call_are_written_together_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path)
    await journal.write(b"a", b"b", b"c")
    assert journal.syncs == 1

    def broken(fd: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(journal_module, "_sync", broken)
        with pytest.raises(GatewayError):
            await journal.write(b"d", b"e")
    await journal.aclose()
    assert frames_of(tmp_path) == [b"a", b"b", b"c"]


async def test_flush_returns_after_everything_before_it(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    tasks = [asyncio.ensure_future(journal.write(b"%d" % i)) for i in range(20)]
    await asyncio.sleep(0)
    await journal.flush()
    assert len(frames_of(tmp_path)) == 20
    await asyncio.gather(*tasks)
    await journal.aclose()


def test_threads_append_too(tmp_path: Path) -> None:
    journal = Journal(tmp_path, max_pending_bytes=100)
    done = []

    def work(n: int) -> None:
        done.extend(journal.append(b"%d-%d" % (n, i)) for i in range(100))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for future in done:
        future.result(timeout=30)
    journal.close()
    assert len(set(frames_of(tmp_path))) == 400


async def test_what_is_pending_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()

    def slow(fd: int) -> None:
        assert gate.wait(30)

    journal = Journal(tmp_path, max_pending_bytes=10_000)
    monkeypatch.setattr(journal_module, "_sync", slow)
    tasks = [asyncio.ensure_future(journal.write(b"x" * 1000)) for _ in range(100)]
    for _ in range(20):
        await asyncio.sleep(0)
    assert journal.pending_bytes <= 10_000
    assert not any(task.done() for task in tasks)
    gate.set()
    await asyncio.wait_for(asyncio.gather(*tasks), 30)
    assert len(frames_of(tmp_path)) == 100
    await journal.aclose()


async def test_a_frame_larger_than_the_bound_is_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path, max_pending_bytes=10)
    await asyncio.gather(journal.write(b"x" * 100), journal.write(b"y" * 100))
    assert len(frames_of(tmp_path)) == 2
    await journal.aclose()


async def test_segments_rotate_by_size_and_read_as_one_journal(tmp_path: Path) -> None:
    journal = Journal(tmp_path, segment_bytes=200)
    for i in range(20):
        await journal.write(b"%02d" % i + b"." * 50)
    await journal.aclose()
    assert len(segments(tmp_path)) > 3
    assert [frame[:2] for frame in frames_of(tmp_path)] == [b"%02d" % i for i in range(20)]


async def test_room_taken_ahead_is_given_back_at_the_end(tmp_path: Path) -> None:
    journal = Journal(tmp_path, segment_bytes=100)
    for _ in range(3):
        await journal.write(b"x" * 60)
    await journal.aclose()
    frame = FRAME_HEAD_BYTES + 60
    sizes = [path.stat().st_size - len(HEADER) for path in segments(tmp_path)]
    assert sizes == [2 * frame, frame]


async def test_a_new_writer_uses_the_room_that_a_dead_one_left(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    await journal.write(b"one")
    (path,) = segments(tmp_path)
    (tmp_path / "crashed").mkdir()
    left = tmp_path / "crashed" / path.name
    left.write_bytes(path.read_bytes().ljust(9000, b"\0"))
    await journal.aclose()
    successor = Journal(tmp_path / "crashed")
    (place,) = await successor.write(b"two")
    assert frames_of(tmp_path / "crashed") == [b"one", b"two"]
    assert successor.read(place) == b"two"
    await successor.aclose()
    assert left.stat().st_size == len(HEADER) + 2 * (FRAME_HEAD_BYTES + 3)


async def test_a_new_writer_goes_on_after_a_torn_tail(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    await journal.write(b"whole")
    await journal.aclose()
    (path,) = segments(tmp_path)
    with path.open("ab") as file:
        file.write(b"\x50\x00\x00\x00half")
    again = Journal(tmp_path)
    assert again.damage is not None
    assert again.damage.torn is not None
    await again.write(b"next")
    await again.aclose()
    assert frames_of(tmp_path) == [b"whole", b"next"]
    assert segments(tmp_path) == [path]


async def test_a_header_cut_by_a_crash_is_written_again(tmp_path: Path) -> None:
    for cut in (b"", b"ART"):
        folder = tmp_path / f"cut-{len(cut)}"
        folder.mkdir()
        (folder / "gateway-000001.journal").write_bytes(cut)
        journal = Journal(folder)
        await journal.write(b"a")
        await journal.aclose()
        assert frames_of(folder) == [b"a"]


async def test_one_writer_a_name(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "w0")
    with pytest.raises(ConfigError, match="another process writes"):
        Journal(tmp_path, "w0")
    other = Journal(tmp_path, "w1")
    await asyncio.gather(journal.write(b"a"), other.write(b"b"))
    await journal.aclose()
    await other.aclose()
    assert frames_of(tmp_path) == [b"a", b"b"]


async def test_writing_to_a_closed_journal_is_an_error(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    await journal.aclose()
    with pytest.raises(GatewayError, match="closed"):
        await journal.write(b"late")


async def test_close_writes_what_is_pending(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    tasks = [asyncio.ensure_future(journal.write(b"%d" % i)) for i in range(50)]
    await asyncio.sleep(0)
    await journal.aclose()
    await asyncio.gather(*tasks)
    assert len(frames_of(tmp_path)) == 50


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), ValueError("no such thing")])
async def test_a_failed_sync_fails_every_waiter_and_the_next_write_recovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    journal = Journal(tmp_path)
    await journal.write(b"before")

    def broken(fd: int) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(journal_module, "_sync", broken)
        waiting = [journal.write(b"%d" % i) for i in range(3)]
        for outcome in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(outcome, GatewayError)
    assert journal.failed_frames == 3
    assert str(error).removeprefix("[Errno 5] ") in str(journal.last_error)
    await journal.write(b"after")
    assert journal.last_error is None
    await journal.aclose()
    assert frames_of(tmp_path) == [b"before", b"after"]
    assert len(segments(tmp_path)) == 2


FULL_DISK = """
import asyncio, resource, sys
from pathlib import Path
from agentcore_rl_toolkit.errors import GatewayError
from agentcore_rl_toolkit.run import Journal

async def main(folder):
    journal = Journal(folder)
    await journal.write(b"a" * 1000)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, hard))
    failed = 0
    for i in range(3):
        tasks = [journal.write(b"b" * 900) for _ in range(4)]
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        failed += sum(isinstance(o, GatewayError) for o in outcomes)
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    await journal.write(b"c" * 1000)
    await journal.aclose()
    print(failed, 12 - failed)

asyncio.run(main(Path(sys.argv[1])))
"""


def test_a_full_disk_is_told_to_every_waiter_and_writing_goes_on_with_space(tmp_path: Path) -> None:
    """The kernel's own limit on file size stands in for a full disk: writes stop half-way."""
    command = [sys.executable, "-c", FULL_DISK, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    failed, written = map(int, done.stdout.split())
    assert failed > 0
    letters = [frame[:1] for frame in frames_of(tmp_path)]
    assert letters == [b"a"] + [b"b"] * written + [b"c"]


WRITER = """
import asyncio, os, sys
from pathlib import Path
from agentcore_rl_toolkit.run import Journal

async def main(folder):
    journal = Journal(folder, segment_bytes=20_000)
    async def worker(n):
        i = 0
        while True:
            await journal.write(b"%d-%d " % (n, i) + b"x" * 200)
            os.write(1, b"%d-%d\\n" % (n, i))
            i += 1
    await asyncio.gather(*(worker(n) for n in range(8)))

asyncio.run(main(Path(sys.argv[1])))
"""


@pytest.mark.parametrize("acknowledged", [1, 300])
def test_every_acknowledged_frame_survives_kill_9(tmp_path: Path, acknowledged: int) -> None:
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        seen = [process.stdout.readline() for _ in range(acknowledged)]
        os.kill(process.pid, signal.SIGKILL)
        seen += process.stdout.readlines()
    promised = {line.strip() for line in seen if line.endswith(b"\n")}
    assert len(promised) >= acknowledged
    assert promised <= {frame.split(b" ")[0] for frame in frames_of(tmp_path)}
    journal = Journal(tmp_path)  # and the next writer finds the lock free and the tail sound
    journal.append(b"again").result(timeout=30)
    journal.close()
    assert b"again" in frames_of(tmp_path)


async def test_a_frame_can_be_read_back_from_the_place_that_write_returned(tmp_path: Path) -> None:
    journal = Journal(tmp_path, segment_bytes=200)
    frames = [b"%d" % i * 40 for i in range(20)]
    places = await journal.write(*frames[:2])
    for two in zip(frames[2::2], frames[3::2], strict=True):
        for place in await asyncio.gather(*map(journal.write, two)):
            places += place
    assert len(segments(tmp_path)) > 2
    assert [journal.read(place) for place in places] == frames
    await journal.aclose()
    again = Journal(tmp_path)
    (place,) = await again.write(b"after a restart")
    assert again.read(place) == b"after a restart"
    assert again.read(places[0]) == frames[0]
    with pytest.raises(OSError, match="no sound frame"):
        again.read(place + 1)
    await again.aclose()


async def test_places_are_right_after_a_write_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path)
    await journal.write(b"one")

    def broken(fd: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(journal_module, "_sync", broken)
        with pytest.raises(GatewayError):
            await journal.write(b"lost", b"lost too")
    (place,) = await journal.write(b"two")
    assert journal.read(place) == b"two"
    await journal.aclose()
