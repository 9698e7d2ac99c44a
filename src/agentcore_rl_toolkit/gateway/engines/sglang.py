"""SGLang's ``/generate``: ids in, ids out, with the weight version of each answer."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from ..dialects.base import Ask
from ..fault import bad_request
from .answer import Tokens
from .experts import decode_experts
from .tokens import TokenEngine


class _Finish(msgspec.Struct):
    type: str
    message: str | None = None


class _Meta(msgspec.Struct):
    output_token_logprobs: list[tuple[float | None, int, Any]] | None = None
    finish_reason: _Finish | None = None
    weight_version: str | None = None
    completion_tokens: int | None = None
    routed_experts: str | None = None


class _Reply(msgspec.Struct):
    meta_info: _Meta
    index: int = 0


_reply = msgspec.json.Decoder(_Reply | list[_Reply])


class SGLangEngine(TokenEngine):
    kind = "sglang"
    path = "/generate"
    renames: ClassVar[dict[str, str]] = {
        "max_tokens": "max_new_tokens",
        "min_tokens": "min_new_tokens",
        "seed": "sampling_seed",
    }

    def request(self, ask: Ask, ids: list[int], sampling: dict[str, Any]) -> dict[str, Any]:
        if ask.n > 1:
            raise bad_request("'n' above 1 is not supported by a sglang engine", "n")
        fixed = {
            "skip_special_tokens": False,
            "no_stop_trim": True,
            "spaces_between_special_tokens": False,
        }
        body = {
            "input_ids": ids,
            "sampling_params": {**sampling, **fixed},
            "return_logprob": True,
            "stream": ask.stream,
        }
        if self.experts:
            body |= {"return_routed_experts": True, "routed_experts_start_len": ask.known}
        return body

    def answers(self, body: bytes) -> list[Tokens]:
        reply = _reply.decode(body)
        return [self._tokens(one) for one in (reply if isinstance(reply, list) else [reply])]

    @staticmethod
    def _tokens(reply: _Reply) -> Tokens:
        meta = reply.meta_info
        pairs = meta.output_token_logprobs or []
        ids = [pair[1] for pair in pairs]
        logprobs = [pair[0] for pair in pairs if pair[0] is not None]
        return Tokens(
            reply.index,
            ids,
            logprobs,
            meta.finish_reason.type if meta.finish_reason else None,
            routed=decode_experts(meta.routed_experts),
            total=meta.completion_tokens,
            version=meta.weight_version,
        )

    async def pause(self, mode: str = "keep") -> None:
        modes = {"keep": "in_place", "wait": "in_place", "abort": "abort"}
        await self.control("/pause_generation", {"mode": modes[mode]})

    async def resume(self) -> None:
        await self.control("/continue_generation", {})

    async def set_version(self, version: str) -> None:
        body = {"new_version": version, "abort_all_requests": False}
        await self.control("/update_weight_version", body)
