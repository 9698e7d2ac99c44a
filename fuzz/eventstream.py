"""The event stream of commands: what the runtime writes, boto3 reads; what a sandbox makes of it.

Whatever comes, a sandbox gives a result or one of the toolkit's own errors.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import botocore.parsers
import botocore.session
from botocore.eventstream import EventStream, EventStreamBuffer

from agentcore_rl_toolkit.errors import ToolkitError
from agentcore_rl_toolkit.runtime import eventstream, wire
from agentcore_rl_toolkit.sandbox.execution import Execution

from .cut import pieces

STOP = {"contentStop": {"exitCode": 0, "status": "COMPLETED"}}
EVENTS: list[dict[str, Any]] = [
    {"contentStart": {}},
    {"contentDelta": {"stdout": "hi\n"}},
    STOP,
]
WHOLE = b"".join(eventstream.event("chunk", content) for content in EVENTS)
SEEDS = [WHOLE, eventstream.exception(wire.runtime_error("The command was lost")), WHOLE[:-1]]
_MODEL = botocore.session.get_session().get_service_model("bedrock-agentcore")
_SHAPE: Any = _MODEL.operation_model("InvokeAgentRuntimeCommand").output_shape
_PARSER: Any = botocore.parsers.create_parser("rest-json")


class Raw:
    """As much of urllib3's answer as botocore uses."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def stream(self) -> Iterator[bytes]:
        yield from pieces(self._data)

    def close(self) -> None: ...


def check(data: bytes) -> None:
    _read(data)
    # As text of a command, and as an event with sound sums around any content.
    text = data.decode(errors="replace")
    written = eventstream.event("chunk", {"contentDelta": {"stdout": text}})
    buffer = EventStreamBuffer()
    buffer.add_data(written)
    [message] = list(buffer)
    assert json.loads(message.payload) == {"contentDelta": {"stdout": text}}
    headers = {":message-type": "event", ":event-type": "chunk"}
    _read(eventstream.frame({**headers, ":content-type": "application/json"}, data))


def _read(data: bytes) -> None:
    shape = _SHAPE.members["stream"]
    stream = EventStream(Raw(data), shape, _PARSER._event_stream_parser, "Command")
    try:
        with Execution(stream, "session s") as execution:
            assert isinstance(execution.result.exit_code, int)
    except ToolkitError:
        pass
