"""The journal: damage anywhere costs the frames it hit; any sound frame is understood or told.

The input is used three ways: as a whole file, as bytes after a sound frame, and as the payload of
a frame whose checksum is right.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from agentcore_rl_toolkit.errors import ConfigError
from agentcore_rl_toolkit.run.frame import Delivery, SessionClosed, SessionOpened, encode
from agentcore_rl_toolkit.run.reader import Problem, group, read_frames
from agentcore_rl_toolkit.run.segment import HEADER, read_payloads, seal_frame, truncate_torn
from agentcore_rl_toolkit.trajectory import Turn, pack_ids, pack_logprobs

FRAMES = [
    encode(SessionOpened(session_id="a", at=1.0, settings={"spec": {"caps": {}}})),
    encode(
        Turn(
            turn_id="a/0",
            session_id="a",
            seq=0,
            prompt_delta=pack_ids([1, 2]),
            sampled=pack_ids([3]),
            logprobs=pack_logprobs([-0.5]),
            request=b"{}",
            response=b'{"role":"assistant","content":"x"}',
        )
    ),
    encode(Delivery(session_id="a", turn_id="a/0", at=2.0)),
    encode(SessionClosed(session_id="a", at=3.0)),
]


def sealed(*payloads: bytes) -> bytes:
    return b"".join(seal_frame(payload) + payload for payload in payloads)


SEEDS = [HEADER + sealed(*FRAMES), sealed(*FRAMES), *FRAMES]
_FOLDER = tempfile.TemporaryDirectory(prefix="fuzz-journal-")


def check(data: bytes) -> None:
    path = Path(_FOLDER.name) / "gateway-000001.journal"
    path.write_bytes(data)
    try:
        _read(path)
    except ConfigError:
        assert not data.startswith(HEADER), "only another kind of file is refused"
    path.write_bytes(HEADER + sealed(FRAMES[0]) + data + sealed(FRAMES[3]))
    assert next(iter(read_payloads(path))) == FRAMES[0], "the frame before the damage is lost"
    _read(path)
    if data:
        path.write_bytes(HEADER + sealed(FRAMES[0], data, FRAMES[3]))
        assert list(read_payloads(path)) == [FRAMES[0], data, FRAMES[3]]
        _read(path)
    truncate_torn(path)
    payloads = list(read_payloads(path))
    path.write_bytes(path.read_bytes() + sealed(FRAMES[1]))
    assert list(read_payloads(path)) == [*payloads, FRAMES[1]], "a cut file can be gone on with"


def _read(path: Path) -> None:
    problems: list[Problem] = []
    for record in group(read_frames(path, problems)).values():
        record.graph(problems).rows()
