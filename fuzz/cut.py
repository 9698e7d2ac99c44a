"""How a network might cut bytes: decided by the bytes themselves, so that a finding repeats."""

from __future__ import annotations

import random
import zlib


def pieces(data: bytes) -> list[bytes]:
    chance, out = random.Random(zlib.crc32(data)), []
    while data:
        size = chance.choice((1, 2, 3, 7, 64, 1000))
        out.append(data[:size])
        data = data[size:]
    return out
