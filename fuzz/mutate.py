"""A seeded loop of mutations, for machines without atheris and for the tests: no coverage guides
it, but a run of the same seed sees the same inputs."""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable, Iterator, Sequence

ODD = (
    b"\x00",
    b"\xff",
    b"\n",
    b"\r\n",
    b"\n\n",
    b"data: ",
    b"[",
    b"{",
    b'"',
    b"\\ud800",
    b"..",
    b"/",
)


def inputs(seeds: Sequence[bytes], seed: int) -> Iterator[bytes]:
    yield b""
    yield from seeds
    chance = random.Random(seed)
    while True:
        data = bytearray(chance.choice(seeds))
        for _ in range(chance.choice((1, 1, 2, 4, 16))):
            _change(data, chance, seeds)
        yield bytes(data)


def _change(data: bytearray, chance: random.Random, seeds: Sequence[bytes]) -> None:
    at = chance.randrange(len(data) + 1)
    match chance.randrange(8):
        case 0 if data:
            data[at % len(data)] ^= 1 << chance.randrange(8)
        case 1 if data:
            data[at % len(data)] = chance.randrange(256)
        case 2:
            data[at:at] = chance.choice(ODD) * chance.choice((1, 1, 2, 300))
        case 3:
            del data[at : at + chance.choice((1, 2, 4, 16, 64))]
        case 4:
            data[at:at] = data[at : at + chance.randrange(1, 64)]
        case 5:
            other = chance.choice(seeds)
            begin = chance.randrange(len(other) + 1)
            data[at:at] = other[begin : begin + chance.randrange(1, 64)]
        case 6:
            number = chance.choice((0, 1, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1, len(data)))
            data[at : at + 4] = struct.pack(chance.choice("<>") + "I", number)
        case _:
            del data[at:]


def run(check: Callable[[bytes], None], seeds: Sequence[bytes], seed: int, seconds: float) -> int:
    """How many inputs were tried; the first finding is raised, with its input beside it."""
    deadline, tried = time.monotonic() + seconds, 0
    for data in inputs(seeds, seed):
        try:
            check(data)
        except Exception as error:
            error.add_note(f"input: {data!r}")
            raise
        tried += 1
        if time.monotonic() >= deadline:
            break
    return tried
