"""What agents print reaches a terminal as text: it cannot steer it."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from agentcore_rl_toolkit.cli import results, show
from agentcore_rl_toolkit.cli.sessions import copy

STEERING = [
    pytest.param("\x1b[2J\x1b[H", id="clearing the screen"),
    pytest.param("\x1b]0;title\x07", id="naming the window"),
    pytest.param("\x1b]52;c;ZXZpbA==\x07", id="writing to the clipboard"),
    pytest.param("\x9b2J", id="a sequence of one byte"),
    pytest.param("\x08\x08", id="going back"),
]


class Source(io.BytesIO):
    """Comes byte by byte, so that every sequence is cut."""

    def read1(self, size: int | None = -1, /) -> bytes:
        return super().read1(1)


@pytest.mark.parametrize("text", STEERING)
def test_a_log_cannot_steer_a_terminal(text: str) -> None:
    for source in (io.BytesIO(text.encode()), Source(text.encode())):
        out = io.BytesIO()
        copy(source, out, tame=True)
        shown = out.getvalue().decode()
        assert not set(shown) & set("\x1b\x07\x08\x9b")


def test_colours_and_text_of_a_log_pass() -> None:
    text = "\x1b[31mred\x1b[0m é 字\n50 %\r100 %\tdone\n"
    out = io.BytesIO()
    copy(io.BytesIO(text.encode()), out, tame=True)
    assert out.getvalue().decode() == text


def test_into_a_file_a_log_goes_as_it_is() -> None:
    raw = bytes(range(256))
    out = io.BytesIO()
    copy(io.BytesIO(raw), out, tame=False)
    assert out.getvalue() == raw


@pytest.mark.parametrize("text", STEERING)
def test_an_error_that_an_agent_wrote_cannot_either(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        show.fail(f"Agent said: {text}")
    shown = capsys.readouterr().err
    assert "Agent said" in shown
    assert not set(shown) & set("\x1b\x07\x08\x9b")


def test_half_of_a_surrogate_pair_is_kept_in_the_results_of_an_evaluation(tmp_path: Path) -> None:
    with results.open_append(tmp_path / "out.jsonl") as file:
        results.write_line(file, {"answer": "cut \ud83d"})
    assert json.loads((tmp_path / "out.jsonl").read_text()) == {"answer": "cut \ud83d"}
