"""Shell commands and files in a session of any agent, on AWS and on the local runtime alike.

    with SandboxClient(runtime_arn).start() as sandbox:
        sandbox.upload(b"print(6 * 7)", "/tmp/answer.py")
        print(sandbox.exec(["python3", "/tmp/answer.py"]).stdout)

Everything is done by InvokeAgentRuntimeCommand and StopRuntimeSession: the agent that is deployed
needs no code for it, only a shell and ``base64`` in its image. ``AsyncSandboxClient`` is the same
for programs with an event loop.
"""

from __future__ import annotations

from .aio import AsyncSandbox, AsyncSandboxClient
from .client import SandboxClient
from .execution import ExecResult, Execution, Output
from .sandbox import Sandbox

__all__ = [
    "AsyncSandbox",
    "AsyncSandboxClient",
    "ExecResult",
    "Execution",
    "Output",
    "Sandbox",
    "SandboxClient",
]
