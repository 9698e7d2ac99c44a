"""Renderers of known model families, by the ``renderers`` package.

A family is used only when it writes the same text as the model's own chat template: a fine-tune
may carry the architecture of one family and the template of another. A conversation that goes on is
bridged id by id, so what was sampled is never tokenised again, reasoning of earlier turns included.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from ...errors import ConfigError
from ...trajectory.turn import Ids, pack_ids
from .call_text import JSON_FORM, CallForm
from .parse import PARSE_FAILED, FoundCall, Marks, Parsed, named, read_hermes, tool_call
from .render import Renderer, Talk, TokenizerLike

logger = logging.getLogger(__name__)

MAX_OPTIONS = 16
"""Sets of template options for which a family is kept ready."""
TAIL_IDS = 64
"""Of an earlier prompt; a family looks there only for reasoning that the prompt itself opened."""

_BAR, _LOW = "\uff5c", "\u2581"
_TAGS = Marks()
_DEEPSEEK = CallForm(
    re.compile(
        rf"\s{{0,64}}<{_BAR}tool{_LOW}call{_LOW}begin{_BAR}>function<{_BAR}tool{_LOW}sep{_BAR}>"
        r"(?P<name>[^\s<]+)\n```json\n\s{0,64}\{"
    ),
    re.compile(rf"\s{{0,64}}```\s{{0,64}}<{_BAR}tool{_LOW}call{_LOW}end{_BAR}>"),
)
_KIMI = CallForm(
    re.compile(
        r"\s{0,64}<\|tool_call_begin\|>\s{0,8}(?P<id>functions\.(?P<name>[^\s:<]+):\d+)\s{0,8}"
        r"<\|tool_call_argument_begin\|>\s{0,64}\{"
    ),
    re.compile(r"\s{0,64}<\|tool_call_end\|>"),
)
_LLAMA = CallForm(
    re.compile(JSON_FORM.begins.pattern.replace("arguments", "parameters")), JSON_FORM.ends
)
_MARKS = {
    "deepseek": Marks(
        call=f"<{_BAR}tool{_LOW}calls{_LOW}begin{_BAR}>",
        end_call=f"<{_BAR}tool{_LOW}calls{_LOW}end{_BAR}>",
        form=_DEEPSEEK,
    ),
    "minimax": Marks(call="<minimax:tool_call>", end_call="</minimax:tool_call>", form=None),
    "kimi": Marks(
        call="<|tool_calls_section_begin|>", end_call="<|tool_calls_section_end|>", form=_KIMI
    ),
    "llama": Marks(call="{", end_call="", bare=True, form=_LLAMA),
    **dict.fromkeys(("qwen3", "prime-qwen3", "glm", "nemotron"), _TAGS),
}
"""By how the name begins. Of other families nothing is told before an answer is complete."""

_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Looks a word up.",
        "parameters": {
            "type": "object",
            "properties": {"word": {"type": "string", "description": "The word."}},
            "required": ["word"],
        },
    },
}
_CALL = {
    "id": "call00000",
    "type": "function",
    "function": {"name": "look_up", "arguments": {"word": "art"}},
}
_SYSTEM, _USER = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}
PROBES: tuple[tuple[list[dict[str, Any]], list[dict[str, Any]] | None], ...] = (
    ([_SYSTEM, _USER], None),
    ([_SYSTEM, _USER], [_TOOL]),
    (
        [
            _SYSTEM,
            _USER,
            {"role": "assistant", "content": "", "tool_calls": [_CALL]},
            {"role": "tool", "tool_call_id": "call00000", "name": "look_up", "content": "a craft"},
        ],
        [_TOOL],
    ),
)
"""Conversations on which a family and the model's template must agree."""


class Vocabulary:
    """A transformers tokenizer as families use it, with its Rust part asked directly."""

    __call__ = None  # no offsets: families then leave out an attribution that nobody reads here

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._rust = tokenizer.backend_tokenizer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def encode(self, text: str, *_: Any, **options: Any) -> list[int]:
        special = bool(options.get("add_special_tokens", True))
        ids: list[int] = self._rust.encode(text, add_special_tokens=special).ids
        return ids

    def decode(self, token_ids: Any, *_: Any, **options: Any) -> str:
        skip = bool(options.get("skip_special_tokens", False))
        ids = [token_ids] if isinstance(token_ids, int) else token_ids
        return str(self._rust.decode(ids, skip_special_tokens=skip))


class FamilyRenderer(Renderer):
    """One of the families, with the model's template for what it leaves undone."""

    def __init__(self, tokenizer: TokenizerLike, name: str) -> None:
        super().__init__(tokenizer, name)
        self._coder = coder_of(tokenizer)
        self._families: dict[bytes, Any] = {}
        family = self._family(None)
        self.stop_ids = [int(i) for i in family.get_stop_token_ids()]
        self.marks = next((m for start, m in _MARKS.items() if name.startswith(start)), None)
        self.call_id_mark = self._mark_id()

    def _mark_id(self) -> int | None:
        if self.marks is None or self.marks.bare:
            return None
        ids = self._coder.encode(self.marks.call, add_special_tokens=False)
        return ids[0] if len(ids) == 1 else None

    def _family(self, options: dict[str, Any] | None) -> Any:
        key = msgspec.json.encode(options or {}, order="sorted")
        family = self._families.get(key)
        if family is None:
            family = make_family(self._coder, self.name, options)
            if len(self._families) >= MAX_OPTIONS:
                self._families.clear()
            self._families[key] = family
        return family

    def encode(self, text: str) -> bytes:
        return pack_ids(self._coder.encode(text, add_special_tokens=False))

    def decode(self, ids: Any) -> str:
        return str(self._coder.decode(list(ids), skip_special_tokens=False))

    def accepts(self, option: str) -> bool:
        return option in type(self._family(None).config).template_field_names()

    def render(self, talk: Talk) -> bytes:
        messages = self._messages(talk, 0)
        family = self._family(talk.options)
        return pack_ids(
            family.render_ids(messages, tools=talk.tools or None, add_generation_prompt=True)
        )

    def written(
        self, messages: list[dict[str, Any]], options: dict[str, Any] | None, *, ask: bool
    ) -> str:
        return self.decode(self._family(options).render_ids(messages, add_generation_prompt=ask))

    def bridge(self, held: Ids, n_prompt: int, talk: Talk, n_held: int) -> bytes | None:
        prompt = held[max(n_prompt - TAIL_IDS, 0) : n_prompt].tolist()
        sampled = held[n_prompt:].tolist()
        new = self._messages(talk, n_held)
        family = self._family(talk.options)
        found = family.bridge_to_next_turn(prompt, sampled, new, tools=talk.tools or None)
        known = len(prompt) + len(sampled)
        if found is not None and found.token_ids[:known] == prompt + sampled:
            rest = np.asarray(found.token_ids[known:], np.int32)
            return held.astype(np.int32).tobytes() + rest.tobytes()
        return super().bridge(held, n_prompt, talk, n_held)

    def _messages(self, talk: Talk, start: int) -> list[dict[str, Any]]:
        messages = talk.messages(start)
        if self.name != "gpt-oss":
            return messages
        # this family names the tool that a result comes from
        before = talk.messages(max(start - 1, 0))
        calls = [call for message in before for call in message.get("tool_calls") or ()]
        names = {call.get("id"): call["function"]["name"] for call in calls}
        return [
            {"name": names[m["tool_call_id"]], **m} if m.get("tool_call_id") in names else m
            for m in messages
        ]

    def read_calls(self, block: str, tools: Any = None) -> list[FoundCall] | None:
        """The calls in a block of text, by the family's own parser."""
        if self.name == "qwen3":
            return read_hermes(block)  # the same format, without a tokenizer
        ids = self._coder.encode(block, add_special_tokens=False)
        parsed = self._parse(ids, tools, None)
        found = [_found(call) for call in parsed.tool_calls] if parsed else []
        calls = [call for call in found if call is not None]
        return calls if calls and len(calls) == len(found) else None

    def parse_whole(
        self, ids: list[int], tools: Any, prompt: list[int] | None, call_id: str
    ) -> Parsed | None:
        """An answer in a format that only the family can take apart."""
        parsed = self._parse(ids, tools, prompt)
        if parsed is None:
            return None
        found = [(_found(attempt), attempt.raw) for attempt in parsed.tool_calls]
        if tools is None:  # nothing may be called: what looks like it is text
            said = [parsed.content, *(raw for _, raw in found)]
            return Parsed("\n".join(filter(None, said)), parsed.reasoning_content)
        lost = [raw for call, raw in found if call is None]
        calls = [call for call, _ in found if call is not None]
        return Parsed(
            "\n".join(filter(None, [parsed.content, *lost])),
            parsed.reasoning_content,
            [tool_call(f"{call_id}-{at}", call) for at, call in enumerate(calls)],
            [PARSE_FAILED] if lost else [],
        )

    def _parse(self, ids: list[int], tools: Any, prompt: list[int] | None) -> Any:
        try:
            return self._family(None).parse_response(ids, tools=tools or None, prompt_ids=prompt)
        except Exception as error:  # noqa: BLE001 a parser may trip over anything that a model writes
            logger.info("renderer=<%s> | the family's parser failed: %r", self.name, error)
            return None


def _found(attempt: Any) -> FoundCall | None:
    return named(attempt.name, attempt.arguments, attempt.id)


def coder_of(tokenizer: Any) -> Any:
    return Vocabulary(tokenizer) if hasattr(tokenizer, "backend_tokenizer") else tokenizer


def make_family(coder: Any, name: str, options: dict[str, Any] | None = None) -> Any:
    """One of the package's renderers. Reasoning of earlier turns stays where it was sampled."""
    from renderers import config_from_name, create_renderer  # type: ignore[import-untyped]

    config = config_from_name(name)
    config = config.model_copy(update={"thinking_retention": "all"})
    return create_renderer(coder, config, chat_template_kwargs=options or None)


def family_names() -> list[str]:
    from renderers import base

    base._populate_registry()
    return [name for name in base.RENDERER_REGISTRY if name != "default"]


def choose_renderer(
    tokenizer: Any, *, name: str | None = None, model_type: str | None = None
) -> Renderer:
    """The renderer of a model: by name, else the family that agrees with its template."""
    if name == "template":
        return Renderer(tokenizer)
    try:
        names = family_names()
    except ImportError:
        return Renderer(tokenizer)
    if name is not None:
        if name not in names:
            known = ", ".join(["template", *sorted(names)])
            raise ConfigError(f"renderer {name!r} is not known; known: {known}")
        try:
            return FamilyRenderer(tokenizer, name)
        except Exception as error:
            raise ConfigError(
                f"renderer {name!r} does not fit the tokenizer: {error}; leave the renderer out to "
                "have one chosen"
            ) from error
    for candidate in _candidates(tokenizer, names, model_type):
        renderer = _agreeing(tokenizer, candidate)
        if renderer is not None:
            return renderer
    return Renderer(tokenizer)


def _candidates(tokenizer: Any, names: list[str], model_type: str | None) -> Iterator[str]:
    """All families, those first whose name is like the model's."""
    from renderers import base

    exact = base.MODEL_RENDERER_MAP.get(str(getattr(tokenizer, "name_or_path", "")))
    wanted = _letters(model_type or "")

    def rank(name: str) -> tuple[bool, bool, int]:
        plain = _letters(name)
        return name != exact, not (wanted.startswith(plain) or plain == wanted), -len(plain)

    yield from sorted(names, key=rank)


def _letters(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())


def _agreeing(tokenizer: Any, name: str) -> Renderer | None:
    if name == "gpt-oss" and len(tokenizer.encode("<|channel|>", add_special_tokens=False)) != 1:
        return None  # it would load a vocabulary from the network before it looks
    try:
        renderer, template = FamilyRenderer(tokenizer, name), Renderer(tokenizer)
        for messages, tools in PROBES:
            talk = Talk.of(messages, tools)
            ids = np.frombuffer(renderer.render(talk), np.int32)
            if renderer.decode(ids.tolist()) != template.text(talk):
                return None
    except Exception:  # noqa: BLE001 special tokens are missing, or the template refuses
        return None
    return renderer
