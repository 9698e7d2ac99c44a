"""Writes ``request.json``: what the Strands math agent really sends to its model.

Runs the agent of ``examples/strands_math_agent`` once against a server that only listens, and
keeps the system message and the tools. Needed again when the agent's prompt or tool changes; then
make the tokenizer and the model again too.

python capture_request.py
"""

from __future__ import annotations

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
AGENT = HERE.parent / "strands_math_agent"


def capture() -> dict[str, Any]:
    sys.path.insert(0, str(AGENT))
    import rl_app
    from strands import Agent
    from strands.models.openai import OpenAIModel

    seen: list[dict[str, Any]] = []
    server = HTTPServer(("127.0.0.1", 0), _listener(seen))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/v1"
        model = OpenAIModel(client_args={"base_url": url, "api_key": "EMPTY"}, model_id="policy")
        agent = Agent(
            model, tools=rl_app.TOOLS, system_prompt=rl_app.SYSTEM_PROMPT, callback_handler=None
        )
        agent("hello")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    messages = [m for m in seen[0]["messages"] if m["role"] == "system"]
    return {"messages": messages, "tools": seen[0]["tools"]}


def _listener(seen: list[dict[str, Any]]) -> type[BaseHTTPRequestHandler]:
    class Listener(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            head = {"id": "1", "object": "chat.completion.chunk", "created": 0, "model": "policy"}
            delta = {"role": "assistant", "content": "ok"}
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            for choice in (
                {"index": 0, "delta": delta, "finish_reason": None},
                {"index": 0, "delta": {}, "finish_reason": "stop"},
            ):
                self.wfile.write(f"data: {json.dumps({**head, 'choices': [choice]})}\n\n".encode())
            self.wfile.write(b"data: [DONE]\n\n")

        def log_message(self, *_: Any) -> None:
            pass

    return Listener


def main() -> None:
    request = capture()
    (HERE / "request.json").write_text(json.dumps(request, indent=1) + "\n")
    print(f"wrote {HERE / 'request.json'}")


if __name__ == "__main__":
    main()
