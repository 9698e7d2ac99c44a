from __future__ import annotations

import pytest

from agentcore_rl_toolkit.runtime.argv import split


@pytest.mark.parametrize(
    ("command", "words"),
    [
        pytest.param("ls -la /tmp", ["ls", "-la", "/tmp"], id="white space parts words"),
        pytest.param("  a\t b\n", ["a", "b"], id="any amount of it"),
        pytest.param("sh -c 'a b; c'", ["sh", "-c", "a b; c"], id="single quotes keep it"),
        pytest.param(r"echo 'a\b\"$x`y`'", ["echo", r"a\b\"$x`y`"], id="and everything else"),
        pytest.param(r'echo "a \"b\" \\ \n $x"', ["echo", r'a "b" \ \n $x'], id="two escapes only"),
        pytest.param("echo $HOME | cat; x", ["echo", "$HOME", "|", "cat;", "x"], id="no shell"),
        pytest.param("echo '' \"\"", ["echo", "", ""], id="empty words"),
        pytest.param("echo 'a''b'", ["echo", "a", "b"], id="a closing quote ends its word"),
        pytest.param("a=b'c d'", ["a=b'c", "d'"], id="a quote inside a word is a character"),
        pytest.param("echo 'zeile\nzwei ü'", ["echo", "zeile\nzwei ü"], id="lines and letters"),
        pytest.param("   ", [], id="nothing"),
    ],
)
def test_words(command: str, words: list[str]) -> None:
    assert split(command) == words


@pytest.mark.parametrize("command", ["echo 'a", 'echo "a', 'x "a\\"'])
def test_a_quote_that_is_not_closed_is_refused(command: str) -> None:
    with pytest.raises(ValueError, match="never closed"):
        split(command)
