"""An answer that must be a tool call: the prompt itself begins it.

The opening is what the model's own renderer writes before a call's arguments, found by rendering
one. Its ids are prompt, not sampled, so they are never trained; what follows is the policy's own,
and opening and answer are read together. Reasoning is left empty: the call comes first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ..fault import bad_request
from .parse import Splitter

if TYPE_CHECKING:
    from ..dialects.base import Ask
    from .render import Renderer

NONE = b'"none"'
_FREE = (None, b'"auto"', NONE)
_NAME, _KEY = "art_probe_tool", "art_probe_key"
_ASKED = {"role": "user", "content": "x"}
_ARGUMENTS = re.compile(r'[ \t]*(?:\{\s*"|<parameter=|<parameter name="|<arg_key>)$')
"""What stands between an opening and the first argument's name."""
_NUMBERED = re.compile(r"^:\d+")
"""A family that counts its calls: the number follows the name."""


_START, _ANALYSIS = "<|start|>", "<|channel|>analysis<|message|>"
"""Of harmony, where every prompt opens reasoning, as a message of its own."""


class Opening(NamedTuple):
    """How a call is written: before its name, and between name and arguments."""

    before: str
    after: str


def is_forbidden(ask: Ask) -> bool:
    """Whether calls are not to be looked for, although the prompt shows tools."""
    return ask.raw("tool_choice") == NONE


def forced_text(renderer: Renderer, ask: Ask, options: dict[str, Any] | None, tools: Any) -> str:
    """What the answer must begin with; empty where nothing is forced."""
    raw = ask.raw("tool_choice")
    if raw in _FREE:
        return ""
    name = _forced_name(msgspec.json.decode(raw or b""), tools)
    opening = find_opening(renderer, options)
    if opening is None:
        raise bad_request(
            f"'tool_choice' can only be 'auto' or 'none' here: how calls begin is not known for "
            f"the renderer {renderer.name!r}",
            "tool_choice",
        )
    if not name:
        return opening.before
    called = sum(message.count(b'"tool_call_id"') for message in ask.messages or ())
    return opening.before + name + _NUMBERED.sub(f":{called}", opening.after)


def _forced_name(choice: Any, tools: Any) -> str:
    """The tool that must be called; empty: any of several."""
    names = [function_name(tool) for tool in tools or ()]
    if not names:
        raise bad_request("'tool_choice' forces a call, and there are no 'tools'", "tool_choice")
    if choice == "required":
        return names[0] if len(names) == 1 else ""
    name = function_name(choice)
    if not name:
        raise bad_request(
            "'tool_choice' must be 'auto', 'none', 'required' or name a function", "tool_choice"
        )
    if name not in names:
        raise bad_request(f"'tool_choice' names {name!r}, which 'tools' does not", "tool_choice")
    return name


def function_name(tool: Any) -> str:
    function = tool.get("function") if isinstance(tool, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    return name if isinstance(name, str) else ""


def find_opening(renderer: Renderer, options: dict[str, Any] | None) -> Opening | None:
    """Remembered by the renderer; None where calls cannot be begun, or not be read again."""
    key = repr(options)
    if key not in renderer.openings:
        if len(renderer.openings) > 64:
            renderer.openings.clear()
        try:
            renderer.openings[key] = _look(renderer, options)
        except Exception:  # noqa: BLE001 a template raises whatever it likes
            renderer.openings[key] = None
    return renderer.openings[key]


def _look(renderer: Renderer, options: dict[str, Any] | None) -> Opening | None:
    call = {
        "id": f"functions.{_NAME}:0",
        "type": "function",
        "function": {"name": _NAME, "arguments": {_KEY: "x"}},
    }
    said: dict[str, Any] = {"role": "assistant", "content": "", "tool_calls": [call]}
    asked = renderer.written([_ASKED], options, ask=True)
    full = renderer.written([_ASKED, said], options, ask=False)
    answer = _answer(renderer, asked, full)
    if answer is None:
        return None
    before, _, rest = answer.partition(_NAME)
    after, found, _ = rest.partition(_KEY)
    cut = _ARGUMENTS.search(after)
    if not found or cut is None or not _is_read(renderer, asked, answer):
        return None
    return Opening(before, after[: cut.start()])


def _answer(renderer: Renderer, asked: str, full: str) -> str | None:
    """What the renderer writes after the prompt, with reasoning closed that the prompt opened."""
    if full.startswith(asked):
        return full[len(asked) :]
    head = asked.removesuffix(_ANALYSIS)
    if head != asked and full.startswith(head):
        return f"<|end|>{head[head.rindex(_START) :]}{full[len(head) :]}"
    marks = renderer.marks
    if marks is None or not marks.think or not asked.rstrip().endswith(marks.think):
        return None
    head = asked.rpartition(marks.think)[0]
    closed = f"\n{marks.end_think}\n\n"
    return closed + full[len(head) :].lstrip("\n") if full.startswith(head) else None


def _is_read(renderer: Renderer, asked: str, answer: str) -> bool:
    """Whether the answer is understood as the call that it is."""
    for end in renderer.end_ids:
        answer = answer.partition(renderer.decode([end]))[0]
    if renderer.marks is None:
        ids = renderer.encode(answer)
        parsed = renderer.parse_whole(_ints(ids), [], _ints(renderer.encode(asked)), "c")
        names = [call["function"]["name"] for call in parsed.tool_calls] if parsed else []
        return names == [_NAME]
    reasoning = renderer.in_reasoning(renderer.encode(asked))
    cut = Splitter(renderer.marks, tools=True, reasoning=reasoning)
    blocks = [text for kind, text in [*cut.feed(answer), *cut.end()] if kind.endswith("call")]
    calls = [call for block in blocks for call in renderer.read_calls(block) or ()]
    return [call.name for call in calls] == [_NAME]


def _ints(packed: bytes) -> list[int]:
    view: Sequence[int] = memoryview(packed).cast("i")
    return list(view)
