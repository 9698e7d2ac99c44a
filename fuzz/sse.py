"""Server-sent events: the client's reader of the runtime and the gateway's reader of engines.

Both must find the same events however the network cuts the bytes, and never raise.
"""

from __future__ import annotations

import json

from agentcore_rl_toolkit.client.event import Parser
from agentcore_rl_toolkit.gateway.fault import Refusal
from agentcore_rl_toolkit.gateway.wire import EventSplitter, cut_prompt_ids, pack_ids

from .cut import pieces

SEEDS = [
    b"id: e-1\nevent: hello\ndata: {}\n\n",
    b'id: e-2\nevent: result\ndata: {"bucket":"b","key":"k"}\ndata: {"rewards":1.0}\n\n',
    b": keep-alive\n\ndata: a\r\ndata: b\r\n\r\ndata:c\n\n",
    'data: {"choices":[{"delta":{"content":"\u2028\u0085"}}]}\n\ndata: [DONE]\n\n'.encode(),
    b'{"choices":[{"token_ids":[1,2]}],"prompt_token_ids":[1,2,3],"x":"\\"prompt_token_ids\\":["}',
]


def check(data: bytes) -> None:
    whole, cut = Parser(), Parser()
    assert whole.feed(data) == [event for piece in pieces(data) for event in cut.feed(piece)]
    whole_events = _split([data])
    assert whole_events == _split(pieces(data)), "events depend on how the bytes arrived"
    assert whole_events == _split([data[i : i + 1] for i in range(len(data))])
    _check_ids(data)


def _split(chunks: list[bytes]) -> list[bytes]:
    splitter = EventSplitter()
    found = [event for chunk in chunks for event in splitter.feed(chunk)]
    return found + splitter.end()


def _check_ids(body: bytes) -> None:
    """Ids that are cut out of an answer are those that a parser of the whole answer finds."""
    rest, text = cut_prompt_ids(body)
    if text is None:
        assert rest == body
        return
    try:
        packed = pack_ids(text) if text else b""
        value = json.loads(body)
    except (Refusal, ValueError, RecursionError):
        return
    if isinstance(value, dict) and isinstance(ids := value.get("prompt_token_ids"), list):
        assert packed == b"".join(int(i).to_bytes(4, "little", signed=True) for i in ids)
