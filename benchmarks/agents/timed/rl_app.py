"""Sleeps as long as it is told and says when it was done."""

import asyncio
import time

from agentcore_rl_toolkit import AgentCoreRLApp

app = AgentCoreRLApp()


@app.rollout_entrypoint
async def handler(payload: dict) -> dict:
    await asyncio.sleep(payload.get("sleep", 0.0))
    return {"rewards": 1.0, "returned": time.time()}


if __name__ == "__main__":
    app.run()
