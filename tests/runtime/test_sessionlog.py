from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentcore_rl_toolkit.runtime import sessionlog
from agentcore_rl_toolkit.runtime.thread import RuntimeThread

from .conftest import PROCESS, Aws, until


def test_a_log_that_is_cut_keeps_whole_lines_of_its_end_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessionlog, "MAX_BYTES", 1000)
    monkeypatch.setattr(sessionlog, "CUT_TO_BYTES", 100)
    log = tmp_path / "log"
    log.write_text("".join(f"line {n:03d}\n" for n in range(200)))
    assert sessionlog.too_large(log)
    writer = os.open(log, os.O_WRONLY | os.O_APPEND)
    sessionlog.cut(log)
    os.write(writer, b"goes on\n")
    os.close(writer)
    note, *lines = log.read_text().splitlines()
    assert note == "[the log grew over 1000 bytes: 1701 left out]"
    assert lines == [f"line {n:03d}" for n in range(189, 200)] + ["goes on"]
    assert not sessionlog.too_large(log)


def test_a_log_that_is_not_there_is_not_too_large(tmp_path: Path) -> None:
    assert not sessionlog.too_large(tmp_path / "none")


def test_the_log_of_a_session_that_talks_without_end_is_bounded(
    aws: Aws,
    shared_runtime: RuntimeThread,
    sid: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sessionlog, "MAX_BYTES", 200_000)
    monkeypatch.setattr(sessionlog, "CUT_TO_BYTES", 50_000)
    (tmp_path / "rl_app.py").write_text(
        "import threading, time\n"
        "from agentcore_rl_toolkit import AgentCoreRLApp\n"
        "app = AgentCoreRLApp()\n"
        "def talk():\n"
        "    for n in range(10_000):\n"
        "        print(n, 'x' * 100, flush=True)\n"
        "@app.entrypoint\n"
        "def invoke(payload):\n"
        "    threading.Thread(target=talk).start()\n"
        "    return {}\n"
        "if __name__ == '__main__':\n"
        "    app.run()\n"
    )
    arn = aws.deploy(tmp_path, environmentVariables=PROCESS)
    aws.ask(arn, {}, sid)

    log = sessionlog.log_path(shared_runtime.server.home.logs, sid)

    def is_cut() -> bool:
        said = log.read_bytes()
        # What is printed while it is cut may come before the notice.
        return len(said) < 200_000 and b"9999 xxx" in said and b"[the log grew over" in said

    until(is_cut, "the log is cut")
    aws.stop(arn, sid)
