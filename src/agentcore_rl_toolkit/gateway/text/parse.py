"""Sampled text taken apart, as it comes: reasoning, content and tool calls.

``Splitter`` cuts a growing answer into parts and never gives out text that may still turn into a
mark; every character is looked at a bounded number of times, however long an unclosed block grows.
A block that is no call after all is told from one that is by ``assemble.py``.
``ParseHealth`` tells a model that errs now and then from a parser that does not fit the model.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import msgspec

from ..fault import Refusal
from .call_text import JSON_FORM, CallForm

logger = logging.getLogger(__name__)

PARSE_FAILED = "parse_failed"
SYSTEMATIC = 32
"""Answers with calls that cannot be parsed, and none that can, before it is an error."""

Kind: TypeAlias = Literal["reasoning_content", "content", "writing", "call", "open_call"]
Part: TypeAlias = tuple[Kind, str]


@dataclass(frozen=True)
class Marks:
    """How a family writes reasoning and tool calls."""

    think: str = "<think>"
    end_think: str = "</think>"
    call: str = "<tool_call>"
    end_call: str = "</tool_call>"
    bare: bool = False
    """A call is the whole answer, which then begins with ``call``; it has no end mark."""
    form: CallForm | None = JSON_FORM
    """By which calls are told while they are written; None: when they are complete."""


HERMES = Marks()
FOREIGN = (
    *("<tool_call>", "<function=", "<|tool_call", "[TOOL_CALLS]", "<|python_tag|>"),
    *(
        "<\uff5ctool\u2581calls\u2581begin\uff5c>",
        "<minimax:tool_call>",
        "<|tool_calls_section_begin|>",
    ),
)
"""Beginnings of tool calls of any family: in an answer's content they are calls not understood."""
BLANK = 256
"""White space that is held back at most, to see whether it is layout."""


class Parsed(msgspec.Struct):
    """An answer's text, taken apart."""

    content: str
    reasoning: str | None = None
    tool_calls: list[dict[str, Any]] = []
    flags: list[str] = []
    broken: int = 0
    """Calls that had been told when it showed that they are none."""

    def message(self) -> dict[str, Any]:
        out: dict[str, Any] = {"role": "assistant", "content": self.content or None}
        if self.reasoning is not None:
            out["reasoning_content"] = self.reasoning
        if self.tool_calls:
            out["tool_calls"] = self.tool_calls
            out["content"] = self.content if self.content.strip() else None
        elif out["content"] is None:
            out["content"] = ""
        return out


class Splitter:
    """Cuts one answer; a state machine over text, fed in any pieces with the same outcome."""

    def __init__(
        self, marks: Marks, *, tools: bool, reasoning: bool = False, tells: bool = False
    ) -> None:
        """``tells``: a call that is not complete is given out as well, as "writing"."""
        self._marks, self._tells = marks, tells
        self.tools = tools
        """Whether calls are looked for; may be set while the answer grows."""
        self._state = self._reason if reasoning else self._begin
        self._held = ""
        self._call: list[str] = []
        self.in_call = 0
        """Characters of a call that is not closed yet: it is read in one go when it is."""
        self._fresh, self._strip = True, False

    def feed(self, text: str) -> list[Part]:
        self._held += text
        out: list[Part] = []
        while self._state(out):
            pass
        return [part for part in out if part[1]]

    def end(self) -> list[Part]:
        """What was held back, now that nothing follows."""
        held, self._held = self._held, ""
        if self._call:
            writing: list[Part] = [("writing", held)] if self._tells and held else []
            return [*writing, ("open_call", "".join([*self._call, held]))]
        if self._state == self._reason:
            held = held.rstrip()
            return [("reasoning_content", held)] if held else []
        held = held.lstrip("\n") if self._strip else held
        return [("content", held)] if held else []

    def _begin(self, out: list[Part]) -> bool:
        head, marks = self._held.lstrip(), self._marks
        if head.startswith(marks.think):
            self._held, self._state = head[len(marks.think) :], self._reason
        elif marks.bare and self.tools and head.startswith(marks.call):
            self._held, self._state = head, self._in_bare_call
        elif marks.think.startswith(head) and len(self._held) - len(head) <= BLANK:
            return False
        else:
            self._state = self._content
        return True

    def _reason(self, out: list[Part]) -> bool:
        text, mark = self._held, self._marks.end_think
        if self._fresh:
            text = text.lstrip()
        at = text.find(mark)
        end = at if at >= 0 else len(text) - overlap(text, mark)
        given = text[:end].rstrip()
        if end - len(given) > BLANK:
            given = text[:end]
        if given:
            out.append(("reasoning_content", given))
            self._fresh = False
        if at < 0:
            self._held = text[len(given) :]
            return False
        self._held, self._state = text[at + len(mark) :], self._content
        self._fresh = self._strip = True
        return True

    def _content(self, out: list[Part]) -> bool:
        text, mark = self._held, self._marks.call
        if self._strip:
            text = text.lstrip("\n")
        looks = self.tools and not self._marks.bare
        at = text.find(mark) if looks else -1
        end = at if at >= 0 else len(text) - (overlap(text, mark) if looks else 0)
        given = text[:end]
        if self._fresh and len(given) <= BLANK and not given.strip():
            given = ""  # blank text before a call is layout; before more text it is content
        if given:
            out.append(("content", given))
            self._fresh = self._strip = False
        if at < 0:
            self._held = text[len(given) :]
            return False
        self._call = [mark]
        self._held, self._state = text[at + len(mark) :], self._in_call
        return True

    def _in_call(self, out: list[Part]) -> bool:
        text, mark = self._held, self._marks.end_call
        at = text.find(mark)
        end = at + len(mark) if at >= 0 else len(text) - overlap(text, mark)
        self._call.append(text[:end])
        self._held = text[end:]
        self.in_call += end
        if self._tells:
            out.append(("writing", text[: at if at >= 0 else end]))
        if at < 0:
            return False
        self.in_call = 0
        out.append(("call", "".join(self._call)))
        self._call, self._state = [], self._content
        self._fresh = self._strip = True
        return True

    def _in_bare_call(self, out: list[Part]) -> bool:
        self._call.append(self._held)
        if self._tells:
            out.append(("writing", self._held))
        self._held = ""
        return False


def overlap(text: str, mark: str) -> int:
    """Length of the longest end of ``text`` that a mark begins with."""
    for size in range(min(len(mark) - 1, len(text)), 0, -1):
        if mark.startswith(text[-size:]):
            return size
    return 0


class FoundCall(NamedTuple):
    name: str
    arguments: str
    id: str | None = None
    """The model's own, in families that write one: results must name it."""


class CallReader(Protocol):
    def __call__(self, block: str, tools: Any) -> list[FoundCall] | None: ...


def read_hermes(block: str, tools: Any = None) -> list[FoundCall] | None:
    """Name and arguments of ``<tool_call>{"name": …, "arguments": …}</tool_call>``."""
    text = block.removeprefix(HERMES.call).removesuffix(HERMES.end_call).strip()
    try:
        call = json.loads(text)
        found = named(call["name"], call.get("arguments", {}))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return None if found is None else [found]


def named(name: object, arguments: object, call_id: object = None) -> FoundCall | None:
    """A call as the API has it, with its arguments as text."""
    if not isinstance(name, str) or not name:
        return None
    if not isinstance(arguments, str):
        arguments = json.dumps({} if arguments is None else arguments, ensure_ascii=False)
    try:
        (name + arguments).encode()
    except UnicodeEncodeError:  # half of a surrogate pair, written as an escape
        arguments = json.dumps(json.loads(arguments))
    return FoundCall(name, arguments, call_id if isinstance(call_id, str) else None)


def tool_call(call_id: str, found: FoundCall) -> dict[str, Any]:
    function = {"name": found.name, "arguments": found.arguments}
    return {"id": found.id or call_id, "type": "function", "function": function}


def is_foreign(parsed: Parsed) -> bool:
    """The content holds what some family writes for a call."""
    return not parsed.tool_calls and any(mark in parsed.content for mark in FOREIGN)


class ParseHealth:
    """Whether a model's calls can be parsed at all."""

    def __init__(self, renderer: str, limit: int = SYSTEMATIC) -> None:
        self._renderer, self._limit = renderer, limit
        self.parsed = self.failed = 0

    def note(self, parsed: Parsed) -> None:
        """Counts an answer to a request with tools; Refusal when it never once worked."""
        if len(parsed.tool_calls) > parsed.broken:
            self.parsed += 1
        if PARSE_FAILED not in parsed.flags:
            return
        self.failed += 1
        logger.info("renderer=<%s> | a tool call could not be parsed", self._renderer)
        if self._limit and not self.parsed and self.failed >= self._limit:
            raise Refusal(
                500,
                f"none of {self.failed} answers with tool calls could be parsed: the model does "
                f"not write calls as the {self._renderer!r} renderer reads them. Name the renderer "
                "of its family (art gateway serve --renderer), or give the model a chat template "
                "in the style that it was trained on. A model that is to learn the format needs "
                "max_parse_failures=0. The answer began: "
                f"{parsed.content[:200]!r}",
                code="parse_failed",
                retry=False,
            )
