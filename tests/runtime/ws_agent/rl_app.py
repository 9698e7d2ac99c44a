"""An agent with a WebSocket handler of the bedrock-agentcore SDK.

It takes the last subprotocol that is offered, says who it talks to, and then echoes; the text
``close CODE REASON`` closes, ``die`` ends the process.
"""

from __future__ import annotations

import os
from typing import Any

from bedrock_agentcore import BedrockAgentCoreApp
from starlette.websockets import WebSocketDisconnect

app = BedrockAgentCoreApp()
ended: list[int] = []
"""The codes with which callers have closed."""


@app.entrypoint
def invoke(payload: dict[str, Any]) -> dict[str, Any]:
    return {"ended": ended}


@app.websocket
async def talk(websocket: Any, context: Any) -> None:
    offered = websocket.scope["subprotocols"]
    if "refused" in offered:
        await websocket.close()
        return
    await websocket.accept(subprotocol=offered[-1] if offered else None)
    await websocket.send_json({"session": context.session_id, "pid": os.getpid()})
    try:
        while True:
            message = await websocket.receive()
            if message["type"] == "websocket.disconnect":
                ended.append(message["code"])
                return
            if (text := message.get("text")) is None:
                await websocket.send_bytes(message["bytes"][::-1])
            elif text == "die":
                os._exit(3)
            elif text.startswith("close "):
                _, code, reason = text.split(" ", 2)
                await websocket.close(int(code), reason)
                return
            else:
                await websocket.send_text(text.upper())
    except WebSocketDisconnect as left:
        ended.append(left.code)


if __name__ == "__main__":
    app.run()
