"""Asks the model ``turns`` times, then returns ``reward``, raises ``fail`` or is killed."""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from typing import Any

from agentcore_rl_toolkit import AgentCoreRLApp

app = AgentCoreRLApp()


@app.rollout_entrypoint
def play(payload: dict[str, Any]) -> dict[str, Any]:
    cfg = payload["_rollout"]
    messages = [{"role": "user", "content": payload["prompt"]}]
    for _ in range(payload.get("turns", 2)):
        body = {"model": cfg["model_id"], "messages": messages}
        request = urllib.request.Request(
            f"{cfg['base_url']}/chat/completions",
            data=json.dumps(body).encode(),
            headers={"content-type": "application/json"},
        )
        with urllib.request.urlopen(request) as reply:
            messages.append(json.load(reply)["choices"][0]["message"])
        messages.append({"role": "user", "content": "again"})
    if payload.get("die"):
        os.kill(os.getpid(), signal.SIGKILL)
    if "fail" in payload:
        raise RuntimeError(payload["fail"])
    return {"rewards": payload["reward"]}


if __name__ == "__main__":
    app.run()
