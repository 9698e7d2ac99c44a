from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentcore_rl_toolkit.errors import RuntimeServiceError
from agentcore_rl_toolkit.local import parse_arn, runtime_arn
from agentcore_rl_toolkit.runtime.registry import Registry


def test_what_was_saved_is_read_back(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "registry.jsonl")
    runtime = registry.add_runtime("agent", "token", {"a": "b"})
    version = registry.add_version(runtime, "1", {"description": "hä"}, "rl_app.py", "token")
    registry.settle(runtime, version)
    again = Registry(tmp_path / "registry.jsonl")
    assert again.runtimes == registry.runtimes
    assert again.by_name("agent") == runtime


def test_ids_have_the_form_of_arns(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "registry.jsonl")
    ids = {registry.add_runtime("a" * 48, "", {}).runtime_id for _ in range(50)}
    assert len(ids) == 50
    for one in ids:
        assert parse_arn(runtime_arn(one)).runtime_id == one


def test_the_default_endpoint_moves_when_the_version_is_ready_and_not_when_it_failed(
    tmp_path: Path,
) -> None:
    registry = Registry(tmp_path / "registry.jsonl")
    runtime = registry.add_runtime("agent", "", {})
    first = registry.add_version(runtime, "1", {}, "rl_app.py", "")
    default = runtime.endpoints["DEFAULT"]
    assert (first.status, default.live) == ("CREATING", "")
    registry.settle(runtime, first)
    second = registry.add_version(runtime, "2", {}, "rl_app.py", "")
    assert (second.status, default.target, default.live) == ("UPDATING", "2", "1")
    registry.settle(runtime, second, "does not import")
    assert (second.status, default.live) == ("UPDATE_FAILED", "1")


def test_the_latest_version_is_the_highest_number(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "registry.jsonl")
    runtime = registry.add_runtime("agent", "", {})
    for number in range(1, 12):
        registry.add_version(runtime, str(number), {}, "rl_app.py", "")
    assert runtime.latest.number == "11"


@pytest.mark.parametrize(
    "content", [b"{", b'{"format": 99}\n', b'{"format":2}\n{"runtime_id": 3}\n']
)
def test_a_file_that_cannot_be_read_is_never_overwritten(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "registry.jsonl"
    path.write_bytes(content)
    with pytest.raises(RuntimeServiceError, match="registry"):
        Registry(path)
    assert path.read_bytes() == content


WRITER = """
import sys
from pathlib import Path
from agentcore_rl_toolkit.runtime.registry import Registry
registry = Registry(Path(sys.argv[1]))
while True:
    runtime = registry.add_runtime(f"agent{len(registry.runtimes)}", "x" * 1000, {})
    registry.add_version(runtime, "1", {}, "rl_app.py", "")
    registry.save(runtime)
    print(len(registry.runtimes), flush=True)
"""


def test_a_kill_in_mid_write_leaves_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "registry.jsonl"
    command = [sys.executable, "-c", WRITER, str(path)]
    for round_ in range(3):
        writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        told = [int(writer.stdout.readline()) for _ in range(5 + 3 * round_)]
        os.kill(writer.pid, 9)
        told += [int(line) for line in writer.stdout if line.endswith("\n")]
        writer.stdout.close()
        writer.wait()
        assert len(Registry(path).runtimes) >= told[-1]


def test_a_line_without_an_end_was_never_answered(tmp_path: Path) -> None:
    path = tmp_path / "registry.jsonl"
    registry = Registry(path)
    runtime = registry.add_runtime("agent", "token", {})
    registry.add_version(runtime, "1", {}, "rl_app.py", "")
    registry.save(runtime)
    whole = path.read_bytes()
    path.write_bytes(whole + whole.splitlines()[1][:40])
    again = Registry(path)
    assert again.runtimes == registry.runtimes
    assert path.read_bytes() == whole
    again.remove(again.ordered[0])
    assert Registry(path).runtimes == {}


def test_names_and_tokens_are_free_again_after_a_removal(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "registry.jsonl")
    runtime = registry.add_runtime("agent", "token", {})
    assert registry.by_name("agent") is registry.by_token("token") is runtime
    assert registry.ordered == [], "listed once it is saved"
    registry.remove(runtime)
    registry.remove(runtime)
    assert registry.by_name("agent") is None
    assert registry.by_token("token") is None


def test_the_file_holds_no_more_history_than_state(tmp_path: Path) -> None:
    path = tmp_path / "registry.jsonl"
    registry = Registry(path)
    runtime = registry.add_runtime("agent", "", {"t": "x" * 20_000})
    registry.add_version(runtime, "1", {}, "rl_app.py", "")
    for _ in range(200):
        registry.save(runtime)
    assert path.stat().st_size < 1_200_000
    assert Registry(path).runtimes == registry.runtimes
    assert path.stat().st_size < 30_000
    assert path.stat().st_mode & 0o777 == 0o600
