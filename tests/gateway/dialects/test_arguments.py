"""Tool-call arguments: always one JSON object, unchanged when they were one."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcore_rl_toolkit.gateway.dialects.arguments import Arguments, whole_object

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
OBJECTS = st.dictionaries(st.text(), JSON, max_size=5)


def in_pieces(text: str, size: int) -> str:
    arguments = Arguments()
    parts = [arguments.feed(text[at : at + size]) for at in range(0, len(text), size)]
    return "".join(parts) + arguments.close()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(OBJECTS, st.integers(1, 7), st.booleans(), st.sampled_from([None, 1]))
def test_a_json_object_passes_unchanged_in_any_pieces(
    value: dict[str, object], size: int, ascii_only: bool, indent: int | None
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert in_pieces(text, size) == text
    assert whole_object(f" {text}\n") == text


@settings(max_examples=60, deadline=None, derandomize=True)
@given(OBJECTS, st.data())
def test_an_object_cut_anywhere_is_completed(value: dict[str, object], data: st.DataObject) -> None:
    text = json.dumps(value)
    cut = text[: data.draw(st.integers(0, len(text)))]
    done = json.loads(whole_object(cut))
    assert isinstance(done, dict)
    assert list(done)[:-1] == list(value)[: max(len(done) - 1, 0)]


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.text('{}[]",:\\ntrue0-1.eu\n x'), st.integers(1, 5))
def test_any_text_becomes_an_object(text: str, size: int) -> None:
    assert isinstance(json.loads(whole_object(text)), dict)
    assert in_pieces(text, size) == whole_object(text)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("", {}),
        ("not json", {}),
        ('{"a": tru', {"a": True}),
        ('{"a": -', {"a": 0}),
        ('{"a": 1, ', {"a": 1}),
        ('{"a', {"a": None}),
        ('{"a": [1, {"b": "c\\u00', {"a": [1, {"b": "c"}]}),
        ('{"a": "two\nlines"}', {"a": "two\nlines"}),
        ('{"a": "\\d+"}', {"a": "\\d+"}),
        ('{"a": 1} and more', {"a": 1}),
        ('{"a": nope}', {"a": None}),
        ("[" * 1000, {}),
    ],
    ids=[
        "nothing at all",
        "words",
        "a cut literal",
        "a cut number",
        "a trailing comma",
        "a cut key",
        "a cut escape deep inside",
        "a raw new line in a string",
        "a lone backslash",
        "text after the object",
        "a word that is none",
        "a list of lists",
    ],
)
def test_what_is_not_json_is_completed(given: str, expected: dict[str, object]) -> None:
    assert json.loads(whole_object(given)) == expected
