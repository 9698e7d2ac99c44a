"""Returns what the payload says, without asking a model; ``fail`` raises, ``hang`` never ends."""

from __future__ import annotations

import threading
from typing import Any

from agentcore_rl_toolkit import AgentCoreRLApp

app = AgentCoreRLApp()


@app.rollout_entrypoint
def play(payload: dict[str, Any]) -> dict[str, Any]:
    if "hang" in payload:
        threading.Event().wait(600)
    if "fail" in payload:
        raise RuntimeError(payload["fail"])
    return {name: payload[name] for name in ("rewards", "metrics") if name in payload}


if __name__ == "__main__":
    app.run()
