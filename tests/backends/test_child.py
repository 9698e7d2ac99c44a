"""A trainer's process ends with ours, by the gentlest signal that it heeds."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentcore_rl_toolkit.backends import child
from agentcore_rl_toolkit.errors import ConfigError, ToolkitError

PROGRAM = """
import pathlib, signal, sys, time
heeds, told = sys.argv[1], pathlib.Path(sys.argv[2])
def end(number, frame):
    told.write_text(signal.Signals(number).name)
    sys.exit(0)
for name in ("SIGINT", "SIGTERM"):
    signal.signal(getattr(signal, name), end if name == heeds else signal.SIG_IGN)
told.write_text("ready")
time.sleep(60)
"""


@pytest.fixture
def interrupts() -> Iterator[None]:
    """SIGUSR1 does what Ctrl-C does: SIGINT itself may be ignored by whoever started the tests."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    yield
    signal.signal(signal.SIGUSR1, before)


def interrupt_when_ready(told: Path) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if told.exists() and told.read_text():
            break
        time.sleep(0.01)
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)


@pytest.mark.usefixtures("interrupts")
@pytest.mark.parametrize(
    ("heeds", "last"), [("SIGINT", "SIGINT"), ("SIGTERM", "SIGTERM"), ("neither", "ready")]
)
def test_what_was_started_is_gone_when_we_are_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heeds: str, last: str
) -> None:
    monkeypatch.setattr(child, "GRACE_S", 1.0)
    told = tmp_path / "told"
    threading.Thread(target=interrupt_when_ready, args=(told,), daemon=True).start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        child.run_child("it", [sys.executable, "-c", PROGRAM, heeds, str(told)])
    assert told.read_text() == last
    assert time.monotonic() - started < 50, "it was waited for instead"


def test_variables_and_folder_are_the_childs(tmp_path: Path) -> None:
    write = "import os; open('seen', 'w').write(os.environ['A'])"
    child.run_child("it", [sys.executable, "-c", write], {"A": 7}, tmp_path)
    assert (tmp_path / "seen").read_text() == "7"


def test_a_child_that_fails_is_an_error() -> None:
    with pytest.raises(ToolkitError, match="it ended with 3: its output above says why"):
        child.run_child("it", [sys.executable, "-c", "raise SystemExit(3)"])


def test_an_interpreter_without_the_trainer_is_refused_by_name(tmp_path: Path) -> None:
    python = {"python": sys.executable}
    assert child.interpreter(python, "verl", "json", "agentcore_rl_toolkit") == sys.executable
    with pytest.raises(ConfigError, match=r"lacks no_verl: install it there, or .* verl\.python"):
        child.interpreter(python, "verl", "json", "no_verl")
    with pytest.raises(ConfigError, match="is no program"):
        child.interpreter({"python": str(tmp_path)}, "verl")


def test_a_part_of_a_section_that_is_no_mapping_is_refused() -> None:
    assert child.mapping({"env": None}, "verl", "env") == {}
    with pytest.raises(ConfigError, match=r"verl\.env must be a mapping"):
        child.mapping({"env": 3}, "verl", "env")
