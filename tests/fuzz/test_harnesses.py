"""Each harness for a moment: seeded mutations, arbitrary bytes, and all that was ever found.

``python -m fuzz all`` does the same for hours, guided by coverage.
"""

from __future__ import annotations

import importlib
import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz import __main__ as command
from fuzz import mutate
from fuzz.journal import FRAMES, HEADER, sealed

INPUTS = 120


def harness(name: str) -> Any:
    return importlib.import_module(f"fuzz.{name}")


@pytest.mark.parametrize("name", command.NAMES)
def test_mutations_of_good_inputs_find_nothing(name: str) -> None:
    module = harness(name)
    for data in itertools.islice(mutate.inputs(module.SEEDS, seed=1), INPUTS):
        module.check(data)


@pytest.mark.parametrize("name", command.NAMES)
def test_arbitrary_bytes_find_nothing(name: str) -> None:
    module = harness(name)

    @settings(max_examples=60, deadline=None, derandomize=True, database=None)
    @given(st.binary(max_size=200))
    def check(data: bytes) -> None:
        module.check(data)

    check()


FOUND = [
    pytest.param(
        "eventstream", harness("eventstream").WHOLE.replace(b"Stop", b"S\x9fop"), id="a broken sum"
    ),
    pytest.param("eventstream", b'{"contentStop": {}}', id="an end without a code"),
    pytest.param("eventstream", b'{"contentDelta": "\xff"}', id="text that is none"),
    pytest.param("journal", b"\x83\xa4kind\xa5close\xaasess\xaaon_id\xa1a\xa2at\x00", id="a name"),
    pytest.param("journal", HEADER + sealed(*FRAMES)[:-3], id="a torn end"),
    pytest.param(
        "journal", FRAMES[1].replace(b"logprobs", b"logprob\xde"), id="a turn without its figures"
    ),
    pytest.param("journal", FRAMES[1].replace(b"logprobs", b"log_odds"), id="nor their name"),
    pytest.param("eventstream", b"3", id="an event that is a number"),
    pytest.param(
        "archive",
        harness("archive").SEEDS[0].replace(b"\x09\x00\x00\x00\x00\x00", b"\x00" * 6),
        id="a member without a name",
    ),
    pytest.param("result", b'{"status_code":500,"stop_reason":"\\ud800"}', id="half of a pair"),
    pytest.param("result", b'{"rewards":' + b"[" * 100_000, id="nested without end"),
    pytest.param("sse", b"data: a\n\n\r\n", id="a chunk that only looks whole"),
]


@pytest.mark.parametrize(("name", "data"), FOUND)
def test_what_was_found_stays_mended(name: str, data: bytes) -> None:
    harness(name).check(data)


def test_a_finding_ends_the_run_with_its_input() -> None:
    def check(data: bytes) -> None:
        assert b"b" not in data

    with pytest.raises(AssertionError) as found:
        mutate.run(check, [b"aa", b"ab"], seed=1, seconds=5)
    assert found.value.__notes__ == ["input: b'ab'"]


def test_the_command_runs_one_harness() -> None:
    words = [sys.executable, "-m", "fuzz", "claim", "--mutate", "--seconds", "0"]
    root = Path(command.__file__).parents[1]
    done = subprocess.run(words, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "nothing found" in done.stdout
