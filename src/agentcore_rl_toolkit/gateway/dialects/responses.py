"""OpenAI's ``/v1/responses``, as its SDK, the Agents SDK and Codex speak it.

A request becomes a chat request (``responses_item``, ``responses_tool``) and the answer a response
(``responses_stream``). What is stored, unless ``store`` is false, is stored for its session only.
Raw reasoning is given as ``reasoning_text``; summaries stay empty, since nobody writes them.

Hints that do not change what is sampled are taken and dropped: cache keys, user identifiers,
service tiers. ``text.verbosity`` is dropped and flagged on the turn, since Codex sends it unasked.
Everything else that cannot be honoured exactly is a 400.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec
from msgspec import Raw

from ..fault import Refusal, bad_request
from .base import (
    Ask,
    Dialect,
    Outlet,
    chat_ask,
    encode,
    read_fields,
    refuse,
    take,
    take_bool,
    take_model,
)
from .responses_item import read_input, references
from .responses_stream import ResponsesOutlet
from .responses_tool import Toolbox, read_choice, read_tools

PASSED = ("model", "temperature", "top_p", "user")
EXTRA = (
    *("top_k", "min_p", "seed", "stop", "stop_token_ids", "presence_penalty", "logit_bias"),
    *("frequency_penalty", "repetition_penalty", "ignore_eos", "min_tokens", "priority"),
    *("chat_template_kwargs", "include_stop_str_in_output", "skip_special_tokens", "truncate"),
)
"""Parameters of engines, as ``extra_body`` sends them."""
HINTS = frozenset(
    {
        *("prompt_cache_key", "prompt_cache_retention", "prompt_cache_options", "client_metadata"),
        *("safety_identifier", "service_tier", "stream_options", "max_tool_calls", "metadata"),
    }
)
READ = frozenset(
    {
        *("input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "reasoning"),
        *("max_output_tokens", "text", "store", "previous_response_id", "include", "stream"),
        *("truncation", "top_logprobs"),
    }
)
KNOWN = READ | HINTS | {*PASSED, *EXTRA}
REPEATED = (
    *("instructions", "max_output_tokens", "max_tool_calls", "previous_response_id", "user"),
    *("reasoning", "store", "temperature", "top_p", "prompt_cache_key", "safety_identifier"),
)
"""Parameters that a response shows as they were asked for."""
SEALED = "reasoning.encrypted_content"
NO_LOGPROBS = "log-probabilities are in the session's rows; ask for them in chat completions"

_string = msgspec.json.Decoder(str)
_strings = msgspec.json.Decoder(list[str])
_int = msgspec.json.Decoder(int)
_object = msgspec.json.Decoder(dict[str, Any])


class ResponsesAsk(Ask):
    """An ask with what its response repeats."""

    head: Mapping[str, Any] = msgspec.field(default_factory=dict)
    box: Toolbox = msgspec.field(default_factory=Toolbox)
    sealed: bool = False
    """Reasoning is given as ``encrypted_content``, too."""


class ResponsesDialect(Dialect):
    name = "responses"
    named_answers = True
    translated = True
    refused: ClassVar[dict[str, str]] = {
        "background": "a turn belongs to a call that waits for it",
        "conversation": "use 'previous_response_id'",
        "prompt": "prompt templates are kept by OpenAI; send 'instructions' and 'input'",
        "context_management": "the agent decides what leaves its context",
        "moderation": "nothing is moderated here",
        "top_logprobs": NO_LOGPROBS,
    }

    def parse(self, body: bytes) -> Ask:
        fields = read_fields(body)
        refuse(fields, self.refused)
        _check(fields)
        if "input" not in fields:
            raise bad_request("'input' is missing", "input")
        messages = read_input(fields["input"])
        instructions = take(fields, "instructions", _string.decode, "", "a string")
        if instructions:
            messages.insert(0, encode({"role": "system", "content": instructions}))
        box = read_tools(fields.get("tools"))
        previous = take(fields, "previous_response_id", _string.decode, "", "a string")
        if not messages and not previous:
            raise bad_request("'input' must hold at least one item", "input")
        chat, flags = _chat_fields(fields, box)
        return chat_ask(
            self.name,
            body,
            chat,
            messages,
            stream=take_bool(fields, "stream"),
            flags=[*box.flags, *flags],
            previous=previous or None,
            references=references(messages),
            remember=_stores(fields),
            n_instructions=1 if instructions else 0,
            kind=ResponsesAsk,
            head=_head(fields, take_model(fields)),
            box=box,
            sealed=SEALED in _included(fields),
        )

    def outlet(self, ask: Ask) -> Outlet:
        assert isinstance(ask, ResponsesAsk), "made by parse"
        return ResponsesOutlet(ask.answer_id, ask.head, ask.box, sealed=ask.sealed)

    def error_event(self, refusal: Refusal) -> bytes:
        """As a failed response, for Codex, and as an error, which makes the SDKs raise."""
        error = {"code": refusal.code or "server_error", "message": refusal.message}
        response = {"object": "response", "status": "failed", "error": error, "output": []}
        failed = encode({"type": "response.failed", "response": response})
        raised = encode({"type": "error", **error, "param": refusal.param, "error": error})
        return b"event: response.failed\ndata: %b\n\nevent: error\ndata: %b\n\n" % (failed, raised)


def _check(fields: Mapping[str, Raw]) -> None:
    for name in fields.keys() - KNOWN:
        raise bad_request(f"unknown parameter {name!r}", name)
    truncation = take(fields, "truncation", _string.decode, "disabled", "a string")
    if truncation != "disabled":
        raise bad_request(
            "'truncation' must be 'disabled': the prompt would not be what was sent", "truncation"
        )


def _stores(fields: Mapping[str, Raw]) -> bool:
    return "store" not in fields or take_bool(fields, "store")


def _included(fields: Mapping[str, Raw]) -> list[str]:
    """What to give beside the answer. Items of hosted tools never come, so asking is harmless."""
    none: list[str] = []
    included = take(fields, "include", _strings.decode, none, "a list of strings")
    if "message.output_text.logprobs" in included:
        raise bad_request(
            f"'message.output_text.logprobs' is not supported: {NO_LOGPROBS}", "include"
        )
    return included


def _chat_fields(fields: Mapping[str, Raw], box: Toolbox) -> tuple[dict[str, Any], list[str]]:
    """Parameters in chat's names, and what had to be left out. Defaults are not repeated."""
    chat: dict[str, Any] = {n: fields[n] for n in (*PASSED, *EXTRA) if n in fields}
    if "max_output_tokens" in fields:
        limit = take(fields, "max_output_tokens", _int.decode, 0, "an integer")
        chat["max_completion_tokens"] = limit
    if box.tools:
        chat["tools"] = box.raw
    choice = read_choice(fields.get("tool_choice"), box)
    if choice is not None:
        chat["tool_choice"] = choice
    one_by_one = "parallel_tool_calls" in fields and not take_bool(fields, "parallel_tool_calls")
    if box.tools and one_by_one:
        chat["parallel_tool_calls"] = False
    effort = _take_object(fields, "reasoning").get("effort")
    if effort is not None:
        chat["reasoning_effort"] = effort
    text = _take_object(fields, "text")
    form = _response_format(text.get("format"))
    if form is not None:
        chat["response_format"] = form
    return chat, ["verbosity_left_out"] if text.get("verbosity") else []


def _take_object(fields: Mapping[str, Raw], name: str) -> dict[str, Any]:
    none: dict[str, Any] = {}
    return take(fields, name, _object.decode, none, "an object")


def _response_format(form: Any) -> dict[str, Any] | None:
    kind = form.get("type") if isinstance(form, dict) else form
    if kind in (None, "text"):
        return None
    if kind == "json_object":
        return {"type": kind}
    if kind != "json_schema" or not isinstance(form.get("schema"), dict):
        raise bad_request("'text.format' must be text, json_object or a json_schema", "text")
    schema = {n: form[n] for n in ("name", "description", "schema", "strict") if form.get(n)}
    return {"type": kind, "json_schema": schema}


def _head(fields: Mapping[str, Raw], model: str) -> dict[str, Any]:
    """The request's parameters as a response repeats them."""
    null, text = Raw(b"null"), Raw(b'{"format":{"type":"text"}}')
    head: dict[str, Any] = {name: fields.get(name, null) for name in REPEATED}
    head["model"] = model
    head["metadata"] = fields.get("metadata", Raw(b"{}"))
    head["tools"] = fields.get("tools", Raw(b"[]"))
    head["tool_choice"] = fields.get("tool_choice", Raw(b'"auto"'))
    head["parallel_tool_calls"] = fields.get("parallel_tool_calls", Raw(b"true"))
    head["text"] = fields.get("text", text)
    return {**head, "truncation": "disabled", "background": False, "service_tier": "default"}


RESPONSES = ResponsesDialect()
