"""Accepts and sleeps as long as it is told, and says when it was done."""

import asyncio
import json
import time

from starlette.middleware import Middleware

from agentcore_rl_toolkit import AgentCoreRLApp


class Accepting:
    """Holds an invocation back for ``accept`` seconds, as an agent that is being started does."""

    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        replay = []
        if scope["type"] == "http" and scope["path"] == "/invocations":
            replay.append(await receive())
            payload = json.loads(replay[0].get("body") or b"{}")
            await asyncio.sleep(payload.get("accept") or 0.0)

        async def again():
            return replay.pop() if replay else await receive()

        await self.app(scope, again, send)


app = AgentCoreRLApp(middleware=[Middleware(Accepting)])


@app.rollout_entrypoint
async def handler(payload: dict) -> dict:
    await asyncio.sleep(payload.get("sleep", 0.0))
    return {"rewards": 1.0, "returned": time.time()}


if __name__ == "__main__":
    app.run()
