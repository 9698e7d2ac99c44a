"""Every command reads the same to the service's own splitter and to a shell."""

from __future__ import annotations

import subprocess

import pytest

from agentcore_rl_toolkit.errors import ConfigError
from agentcore_rl_toolkit.runtime.argv import split
from agentcore_rl_toolkit.sandbox.script import MAX_CHARS, line

NASTY = [
    "plain",
    "two words",
    "",
    "it's",
    '"double"',
    "$HOME `id` $(id) \\ ; | & < > * ? [a] {b} ~ # !",
    "line\nbreak\ttab",
    "grüße 日本 🙂",
    "-n",
    "'\"'\"'",
    "\\'",
    "end\\",
]


def by_splitting(text: str) -> str:
    return subprocess.run(split(text), capture_output=True, text=True, check=False).stdout


def by_shell(text: str) -> str:
    return subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=False).stdout


@pytest.mark.parametrize("read", [by_splitting, by_shell])
def test_arguments_arrive_as_they_are(read: object) -> None:
    assert callable(read)
    said = read(line(["printf", "%s|", *NASTY]))
    assert said == "".join(f"{word}|" for word in NASTY)


@pytest.mark.parametrize("read", [by_splitting, by_shell])
@pytest.mark.parametrize(
    "script", ["echo a b", "echo 'a  b' \"$((1 + 2))\"", "for i in 1 2; do\n echo $i\ndone"]
)
def test_text_is_a_script(read: object, script: str) -> None:
    assert callable(read)
    assert read(line(script)) == by_shell(script)


def test_folder_and_variables_are_set_first() -> None:
    env = {"A": "it's $HOME", "B": ""}
    said = by_splitting(line('pwd; echo "$A|$B|"', cwd="/usr/bin", env=env))
    assert said == "/usr/bin\nit's $HOME||\n"


def test_a_folder_that_is_not_there_ends_it() -> None:
    done = subprocess.run(split(line("echo on", cwd="/no such")), capture_output=True, check=False)
    assert done.returncode == 1
    assert done.stdout == b""


@pytest.mark.parametrize("command", [[], "", "  ", ["a", 1], "a\0b", "x" * MAX_CHARS, "'" * 50_000])
def test_what_cannot_be_sent_is_refused_here(command: object) -> None:
    with pytest.raises(ConfigError):
        line(command)  # type: ignore[arg-type]


def test_a_bad_name_of_a_variable_is_refused() -> None:
    with pytest.raises(ConfigError, match="environment variable"):
        line("true", env={"A;rm": "x"})
