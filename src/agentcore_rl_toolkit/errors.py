"""Every error of the toolkit, named by the boundary that was crossed.

    ToolkitError
    ├── ConfigError (ValueError)        the caller's arguments, payload or settings     user
    │   └── MissingExtraError           an optional part is not installed               user
    ├── RolloutError                    a rollout that did not end well, by failure kind
    │   ├── AgentError                  agent         its code raised or answered badly
    │   ├── ModelError                  model         the model behind the agent failed
    │   ├── RolloutTimeoutError (TimeoutError)        timeout
    │   ├── SessionLostError            session_lost  its session died under it
    │   ├── ThrottledError              throttled     the runtime kept saying "slow down"
    │   ├── QuotaError                  quota         the runtime has no room for the session
    │   ├── StoreError                  store         the result store refused or lost it
    │   └── ContractError               contract      would recur on every rollout
    ├── RuntimeServiceError             the local AgentCore Runtime itself              runtime
    │   └── IsolationError              a session could not be isolated as asked        runtime
    └── GatewayError                    the model gateway itself                        gateway

Extension code raises plain Python errors; the boundary that catches them types them.
All are picklable: arguments of ``__init__`` are the ``args``.
"""

from __future__ import annotations

from typing import ClassVar, Literal

Owner = Literal["user", "agent", "model", "gateway", "runtime", "store", "quota"]


class ToolkitError(Exception):
    owner: ClassVar[Owner] = "user"
    """Who has to act on it."""
    retryable: ClassVar[bool] = False
    """Whether the same call may succeed later with nothing changed."""


class ConfigError(ToolkitError, ValueError):
    """The message says what to change."""


def install_extra(extra: str) -> str:
    """The name on PyPI is another project's: extras come from a checkout."""
    return f"pip install -e '.[{extra}]' in the toolkit's checkout"


class MissingExtraError(ConfigError, ImportError):
    def __init__(self, extra: str, what: str) -> None:
        super().__init__(extra, what)
        self.extra, self.what = extra, what

    def __str__(self) -> str:
        return f"{self.what} needs the '{self.extra}' extra: {install_extra(self.extra)}"


class RolloutError(ToolkitError):
    """Carries its failure kind; ``rollout.Failure`` is made from it."""

    kind: ClassVar[str] = "agent"


class AgentError(RolloutError):
    owner, kind = "agent", "agent"


class ModelError(RolloutError):
    owner, kind, retryable = "model", "model", True


class RolloutTimeoutError(RolloutError, TimeoutError):
    owner, kind, retryable = "runtime", "timeout", True


class SessionLostError(RolloutError):
    owner, kind, retryable = "runtime", "session_lost", True


class ThrottledError(RolloutError):
    owner, kind, retryable = "quota", "throttled", True


class QuotaError(RolloutError):
    owner, kind, retryable = "quota", "quota", True


class StoreError(RolloutError):
    owner, kind, retryable = "store", "store", True


class ContractError(RolloutError):
    owner, kind = "user", "contract"


class RuntimeServiceError(ToolkitError):
    owner = "runtime"


class IsolationError(RuntimeServiceError):
    pass


class GatewayError(ToolkitError):
    owner = "gateway"
