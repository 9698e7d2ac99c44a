"""Messages to token ids, for engines that take and give ids.

Only what is new is rendered: when a request continues a turn, its prompt is the exact ids of that
turn followed by the rendered rest, so ids that were sampled are never tokenised again and a turn
costs what is new in it. ``Renderer`` works from any model's chat template; ``family.py`` has the
families that are known in detail. Both are pure: large inputs are rendered in a worker thread,
small ones on the loop, where a thread would cost more than the work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np

from ...errors import ConfigError, MissingExtraError
from ...trajectory.placement import Placement
from ...trajectory.turn import Ids, TurnHead, pack_ids
from ..dialects.base import Ask
from ..fault import bad_request
from .forced import Opening, forced_text
from .parse import HERMES, FoundCall, Marks, Parsed, ParseHealth, read_hermes
from .spelling import Speller

INLINE_BYTES = 4096
"""New messages up to this size are rendered on the loop: about a millisecond."""

ROLES = ("system", "user", "assistant", "tool")
"""That every template is taken to know."""

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_any = msgspec.json.Decoder(Any).decode


class TokenizerLike(Protocol):
    """The slice of a transformers tokenizer that is used."""

    eos_token: str

    def apply_chat_template(self, conversation: Any, **options: Any) -> Any: ...
    def encode(self, text: str, **options: Any) -> list[int]: ...
    def decode(self, token_ids: Any, **options: Any) -> str: ...


class Talk:
    """A conversation to be rendered; messages are decoded when they are needed."""

    def __init__(
        self,
        raw: Sequence[bytes],
        tools: Any = None,
        options: dict[str, Any] | None = None,
        role: Callable[[Any], str] = str,
    ) -> None:
        """``role``: under which name the model knows a role."""
        self._raw, self.tools, self.options, self._role = raw, tools, options, role

    @classmethod
    def of(cls, messages: Sequence[Mapping[str, Any]], tools: Any = None) -> Talk:
        return cls([msgspec.json.encode(message) for message in messages], tools)

    def messages(self, start: int = 0, end: int | None = None) -> list[dict[str, Any]]:
        found = [plain_message(_decode(raw)) for raw in self._raw[start:end]]
        return [{**message, "role": self._role(message.get("role"))} for message in found]

    def size(self, start: int = 0) -> int:
        return sum(map(len, self._raw[start:]))


class Renderer:
    """One model's template and tokenizer."""

    marks: Marks | None = HERMES
    """How answers are cut while they come; None: only when they are complete."""
    call_id_mark: int | None = None
    """Id of the mark that begins a call, where it is a token of its own: text that looks like it
    is then no call."""

    def __init__(self, tokenizer: TokenizerLike, name: str = "template") -> None:
        self.tokenizer = tokenizer
        self.name = name
        self.stop_ids: list[int] = []
        """Ids that end an answer, to be named to the engine besides the model's own."""
        self.health = ParseHealth(name)
        self.speller = Speller(tokenizer)
        self.openings: dict[str, Opening | None] = {}
        """How calls begin, by template options; see ``forced.py``."""
        self._appends: dict[str, bool] = {}
        self._template = str(getattr(tokenizer, "chat_template", None) or "")
        end = tokenizer.eos_token
        ends = tokenizer.encode(end, add_special_tokens=False) if end else []
        self._end_id = ends[0] if len(ends) == 1 else None

    def encode(self, text: str) -> bytes:
        return pack_ids(self.tokenizer.encode(text, add_special_tokens=False))

    def decode(self, ids: Any) -> str:
        return self.tokenizer.decode(ids, skip_special_tokens=False)

    def accepts(self, option: str) -> bool:
        """Whether a template option changes anything; templates do not say which they have."""
        return False

    def role(self, role: Any) -> str:
        """The model's word for a role. Templates leave out messages whose role they do not know."""
        if role in ROLES or any(f"{q}{role}{q}" in self._template for q in "'\""):
            return str(role)
        if role == "developer":
            return "system"
        raise ValueError(f"the role {role!r} is not known: use {', '.join(ROLES)}")

    def _text(self, messages: list[dict[str, Any]], talk: Talk, *, ask: bool) -> str:
        return str(
            self.tokenizer.apply_chat_template(
                messages,
                tools=talk.tools,
                tokenize=False,
                add_generation_prompt=ask,
                **(talk.options or {}),
            )
        )

    def written(
        self, messages: list[dict[str, Any]], options: dict[str, Any] | None, *, ask: bool
    ) -> str:
        """Messages as the model knows them, up to where an answer begins when one is asked for."""
        return self._text(messages, Talk((), None, options), ask=ask)

    def render(self, talk: Talk) -> bytes:
        """Packed ids of a whole conversation, ready to be answered."""
        return self.encode(self.text(talk))

    def text(self, talk: Talk) -> str:
        """What the model's template writes, up to where the answer begins."""
        return self._text(talk.messages(), talk, ask=True)

    def bridge(self, held: Ids, n_prompt: int, talk: Talk, n_held: int) -> bytes | None:
        """The ids held for the first ``n_held`` messages and the rest rendered after them.

        None when the template does not simply append: then the conversation is rendered whole.
        """
        found = self._rest(talk, n_held)
        if found is None:
            return None
        known, rest = found
        end = self.tokenizer.eos_token
        tail = known.rpartition(end)[2] if end and end in known else ""
        closed = not end or self.decode(held[-1:]) == end
        text = ("" if closed else end) + tail + rest
        return held.astype(np.int32).tobytes() + self.encode(text)

    def _rest(self, talk: Talk, n_held: int) -> tuple[str, str] | None:
        """The end of what is held, as the template writes it, and what it writes after that."""
        new = talk.messages(n_held)
        if self._only_appends(talk):
            short = _stand_in(talk.messages(n_held - 1, n_held)[0])
            bare = Talk((), None, talk.options)
            found = self._after(short, new, bare)
            if found is not None:
                return found
        return self._after(talk.messages(0, n_held), new, talk)

    def _after(
        self, held: list[dict[str, Any]], new: list[dict[str, Any]], talk: Talk
    ) -> tuple[str, str] | None:
        known = self._text(held, talk, ask=False)
        full = self._text([*held, *new], talk, ask=True)
        return (known, full[len(known) :]) if full.startswith(known) else None

    def _only_appends(self, talk: Talk) -> bool:
        """Whether the template writes new messages the same after a long and a short history."""
        key = repr(talk.options)
        if key not in self._appends:
            if len(self._appends) > 64:
                self._appends.clear()
            try:
                self._appends[key] = self._check_appends(talk.options)
            except Exception:  # noqa: BLE001 a template that refuses is given whole conversations
                self._appends[key] = False
        return self._appends[key]

    def _check_appends(self, options: dict[str, Any] | None) -> bool:
        bare = Talk((), None, options)
        user = {"role": "user", "content": "one"}
        said = {"role": "assistant", "content": "two"}
        call = {"type": "function", "id": "c", "function": {"name": "f", "arguments": {"x": 1}}}
        called = {"role": "assistant", "content": "", "tool_calls": [call]}
        result = {"role": "tool", "tool_call_id": "c", "name": "f", "content": "three"}
        for last, new in ((said, [user]), (called, [result]), (called, [result, result, user])):
            history = [{"role": "system", "content": "zero"}, user, said, user, last]
            long, short = self._after(history, new, bare), self._after(_stand_in(last), new, bare)
            if long is None or short is None or long[1] != short[1]:
                return False
        return True

    @property
    def end_ids(self) -> list[int]:
        """All ids that end an answer."""
        return sorted({*self.stop_ids, *([] if self._end_id is None else [self._end_id])})

    def trim(self, ids: list[int]) -> list[int]:
        """Sampled ids without the one that ended them."""
        ended = ids and (ids[-1] == self._end_id or ids[-1] in self.stop_ids)
        return ids[:-1] if ended else ids

    def in_reasoning(self, prompt: bytes | None) -> bool:
        """Whether the prompt itself opened the reasoning that the answer goes on with."""
        if self.marks is None or not prompt or not self.marks.think:
            return False
        tail = self.decode(np.frombuffer(prompt, np.int32)[-8:].tolist())
        return tail.rstrip().endswith(self.marks.think)

    def read_calls(self, block: str, tools: Any = None) -> list[FoundCall] | None:
        """Names and arguments of the calls in a block of text; None when it holds none."""
        return read_hermes(block, tools)

    def parse_whole(
        self, ids: list[int], tools: Any, prompt: list[int] | None, call_id: str
    ) -> Parsed | None:
        """A complete answer, where ``marks`` is None; None when it cannot be read at all."""
        raise NotImplementedError


class GraphLike(Protocol):
    def place(self, *, model: str, messages: Any = None, tools: Any = None) -> Placement: ...
    def ids(self, turn_id: str) -> Ids: ...
    def head(self, turn_id: str) -> TurnHead: ...


async def render_prompt(
    renderer: Renderer, ask: Ask, graph: GraphLike | None = None, model: str = ""
) -> bytes:
    """Packed prompt ids of a request: those of the turn that it continues, and the rest.

    Without a graph it continues nothing.
    """
    if ask.messages is None:
        return _text_prompt(renderer, ask)
    tools = _any(ask.raw("tools") or b"null")
    talk = Talk(ask.messages, tools, _options(renderer, ask), renderer.role)
    held: tuple[Ids, int] | None = None
    n_held = 0
    if graph is not None:
        placement = graph.place(model=model, messages=ask.messages, tools=ask.raw("tools"))
        if placement.continues is not None:
            turn_id, n_held = placement.continues, placement.n_matched
            held = (graph.ids(turn_id), graph.head(turn_id).n_prompt)
            ask.known = int(held[0].size)
    begun = forced_text(renderer, ask, talk.options, tools)
    if talk.size(n_held) + (0 if n_held else len(ask.raw("tools") or b"")) <= INLINE_BYTES:
        prompt = render_talk(renderer, talk, held, n_held)
    else:
        prompt = await asyncio.to_thread(render_talk, renderer, talk, held, n_held)
    if begun:
        ask.begun = renderer.encode(begun)
    return prompt + ask.begun


def render_talk(renderer: Renderer, talk: Talk, held: tuple[Ids, int] | None, n_held: int) -> bytes:
    """``held`` are the ids of the first ``n_held`` messages and how many of them were prompt."""
    try:
        bridged = None
        if held is not None and held[0].size:
            bridged = renderer.bridge(*held, talk, n_held)
        return renderer.render(talk) if bridged is None else bridged
    except Exception as error:  # a template raises whatever it likes
        raise bad_request(f"the chat template refused the messages: {error}", "messages") from error


def _text_prompt(renderer: Renderer, ask: Ask) -> bytes:
    prompt: Any = _any(ask.fields["prompt"])
    return renderer.encode(prompt) if isinstance(prompt, str) else pack_ids(prompt)


def _options(renderer: Renderer, ask: Ask) -> dict[str, Any] | None:
    options: Any = _any(ask.raw("chat_template_kwargs") or b"null")
    if options is not None and not isinstance(options, dict):
        raise bad_request("'chat_template_kwargs' must be an object", "chat_template_kwargs")
    effort = ask.raw("reasoning_effort")
    if effort is not None and renderer.accepts("reasoning_effort"):
        options = {"reasoning_effort": _any(effort), **(options or {})}
    return options or None


def _stand_in(last: dict[str, Any]) -> list[dict[str, Any]]:
    """The shortest history that ends as a longer one does."""
    calls = last.get("tool_calls")
    said = {"role": "assistant", "content": "" if calls else "x"}
    return [{"role": "user", "content": "x"}, {**said, "tool_calls": calls} if calls else said]


def plain_message(message: dict[str, Any]) -> dict[str, Any]:
    """Templates want tool-call arguments as objects and content that is not null."""
    calls = []
    for call in message.get("tool_calls") or ():
        function = dict(call.get("function") or {})
        if isinstance(function.get("arguments"), str):
            try:
                function["arguments"] = msgspec.json.decode(function["arguments"] or "{}")
            except msgspec.DecodeError:
                pass
        calls.append({**call, "function": function})
    if calls:
        message["tool_calls"] = calls
    if message.get("content") is None:
        message["content"] = ""
    return message


def load_renderer(path: str, name: str | None = None) -> Renderer:
    """The renderer of the model in a folder; ``name`` chooses one of the known families."""
    try:
        from transformers import AutoTokenizer
    except ImportError:
        raise MissingExtraError("gateway", "a token-in/token-out engine") from None
    from .family import choose_renderer

    if Path(path).is_absolute() and not Path(path).is_dir():
        raise ConfigError(f"{path} is not a folder: give the one that tokenizer.json lies in")
    try:
        tokenizer = AutoTokenizer.from_pretrained(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"the tokenizer of {path} cannot be loaded: {error}") from None
    config = Path(path) / "config.json"
    known = _decode(config.read_bytes()) if config.is_file() else {}
    return choose_renderer(tokenizer, name=name, model_type=known.get("model_type"))
