"""Asks the model once and is rewarded by chance: rewards differ whatever the policy says.

``fail`` in the payload raises before the model is asked.
"""

from __future__ import annotations

import json
import random
import urllib.request
from typing import Any

from agentcore_rl_toolkit import AgentCoreRLApp

app = AgentCoreRLApp()


@app.rollout_entrypoint
def play(payload: dict[str, Any]) -> dict[str, Any]:
    if "fail" in payload:
        raise KeyError(payload["fail"])
    cfg = payload["_rollout"]
    body = {
        "model": cfg["model_id"],
        "messages": [{"role": "user", "content": payload["prompt"]}],
    }
    request = urllib.request.Request(
        f"{cfg['base_url']}/chat/completions",
        data=json.dumps(body).encode(),
        headers={"content-type": "application/json"},
    )
    with urllib.request.urlopen(request) as reply:
        json.load(reply)
    return {"rewards": float(random.Random(cfg["session_id"]).random() < 0.5)}


if __name__ == "__main__":
    app.run()
