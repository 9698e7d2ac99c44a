"""Rehearsing model calls before a fork: done, and unnoticed."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import logging, os, random, sys, threading
import {package}
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from agentcore_rl_toolkit import rehearsal
logging.basicConfig(level=logging.DEBUG, stream=sys.stdout)
random.seed(1)
expected = random.Random(1).random()
before = sorted(os.listdir("/proc/self/fd"))
assert not ChatCompletion.__pydantic_complete__
rehearsal.rehearse()
assert ChatCompletion.__pydantic_complete__ and ChatCompletionChunk.__pydantic_complete__
assert threading.active_count() == 1, threading.enumerate()
assert sorted(os.listdir("/proc/self/fd")) == before
assert random.random() == expected
logging.getLogger().info("heard")
"""


@pytest.mark.parametrize("package", ["strands.models.openai", "openai.resources.chat"])
def test_a_call_is_rehearsed_and_leaves_no_trace(package: str) -> None:
    script = SCRIPT.format(package=package)
    done = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-c", script],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "INFO:root:heard\n"
    assert "Warning" not in done.stderr


def test_nothing_is_imported_for_an_agent_that_uses_neither() -> None:
    script = (
        "import sys\nfrom agentcore_rl_toolkit import rehearsal\nrehearsal.rehearse()\n"
        "assert not {'openai', 'strands', 'httpx'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_spans_of_the_agent_are_not_mixed_with_a_rehearsal() -> None:
    script = """
import strands.models.openai
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from agentcore_rl_toolkit import rehearsal
trace.set_tracer_provider(TracerProvider())
assert rehearsal._act() is rehearsal._openai
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_package_of_another_release_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from agentcore_rl_toolkit import rehearsal

    async def fails(client: object, stream: bool) -> None:
        raise TypeError("an argument that this release does not know")

    monkeypatch.setattr(rehearsal, "_act", lambda: fails)
    rehearsal.rehearse()
