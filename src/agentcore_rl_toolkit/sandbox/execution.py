"""One command that runs in a sandbox: its output as it comes, then its result.

Whoever stops reading ends the command: ``close`` hangs up, and the runtime kills it with all that
it started.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self

from botocore.exceptions import EventStreamError

from ..client.store import code_of, message_of
from ..errors import QuotaError, SessionLostError, ThrottledError, ToolkitError


class Output(NamedTuple):
    stream: Literal["stdout", "stderr"]
    text: str


@dataclass(frozen=True)
class ExecResult:
    exit_code: int
    """-1 when the time was up; 128 and more for a signal."""
    stdout: str
    stderr: str
    timed_out: bool = False

    @property
    def ok(self) -> bool:
        return self.exit_code == 0


class Execution:
    """Iterate over it for the output; ``result`` is there afterwards."""

    def __init__(self, stream: Any, where: str) -> None:
        self._stream, self._where = stream, where
        self._said: dict[str, list[str]] = {"stdout": [], "stderr": []}
        self._result: ExecResult | None = None

    def __iter__(self) -> Iterator[Output]:
        try:
            for event in self._stream:
                chunk = event.get("chunk") or {}
                for name, text in (chunk.get("contentDelta") or {}).items():
                    if name in self._said and text:
                        self._said[name].append(text)
                        yield Output(name, text)
                if (stop := chunk.get("contentStop")) is not None:
                    self._finish(stop)
        except EventStreamError as error:
            raise _typed(error, self._where) from error
        except Exception as error:
            raise SessionLostError(f"{self._where} broke off during a command: {error}") from error
        if self._result is None:
            raise SessionLostError(f"{self._where} ended its answer before the command had ended")

    @property
    def result(self) -> ExecResult:
        """Reads the rest of the output first."""
        if self._result is None:
            for _ in self:
                pass
        assert self._result is not None
        return self._result

    def close(self) -> None:
        self._stream.close()

    def abort(self) -> None:
        """From another thread than the one that reads: that one wakes up, and hangs up."""
        raw = getattr(self._stream, "_raw_stream", None)
        try:
            raw.shutdown()  # type: ignore[union-attr]
        except (AttributeError, OSError, RuntimeError, ValueError):
            pass  # an older urllib3, or it has just ended: then its timeout ends the command

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _finish(self, stop: dict[str, Any]) -> None:
        self._result = ExecResult(
            exit_code=int(stop["exitCode"]),
            stdout="".join(self._said["stdout"]),
            stderr="".join(self._said["stderr"]),
            timed_out=stop.get("status") == "TIMED_OUT",
        )


def _typed(error: EventStreamError, where: str) -> ToolkitError:
    """In a stream the service gives its errors no status, and their names in lower case."""
    text = f"{where} ended the command: {code_of(error)}: {message_of(error)}"
    kinds = {"serviceQuotaExceededException": QuotaError, "throttlingException": ThrottledError}
    return kinds.get(code_of(error), SessionLostError)(text)
