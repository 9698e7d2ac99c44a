"""The agent of the chaos run: a few model calls in one conversation, each answer witnessed.

Every answer that reached it whole is written to the session's log and returned as ``told``. It
fails only when its payload says so, or when the model could not be reached with all retries.
"""

from __future__ import annotations

import json
import time
import uuid
from typing import Any

from openai import OpenAI

from agentcore_rl_toolkit import AgentCoreRLApp

TRIES = 6

app = AgentCoreRLApp()


@app.rollout_entrypoint
def play(payload: dict[str, Any]) -> dict[str, Any]:
    cfg = payload["_rollout"]
    messages: list[Any] = [{"role": "user", "content": payload["prompt"]}]
    told: list[str] = []
    with OpenAI(
        base_url=cfg["base_url"],
        api_key=cfg.get("api_key") or "EMPTY",
        max_retries=TRIES,
        timeout=float(payload.get("patience_s", 10.0)),
    ) as client:
        for _ in range(int(payload["turns"])):
            text = ask(client, cfg["model_id"], messages, payload)
            told.append(text)
            print(json.dumps({"told": text}), flush=True)
            messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "on"}]
            time.sleep(float(payload.get("think_s", 0)))
    if "fail" in payload:
        raise RuntimeError(payload["fail"])
    return {"rewards": float(len(told)), "told": told}


def ask(client: OpenAI, model: str, messages: list[Any], payload: dict[str, Any]) -> str:
    headers = {"Idempotency-Key": uuid.uuid4().hex} if payload.get("idempotent") else {}
    if not payload.get("stream"):
        answer = client.chat.completions.create(
            model=model, messages=messages, extra_headers=headers
        )
        return str(answer.choices[0].message.content)
    # A stream that breaks is asked for again, as agents' own loops do it.
    for attempt in range(TRIES):
        said = {**headers, "x-stainless-retry-count": str(attempt)} if attempt else headers
        try:
            return listen(client, model, messages, said)
        except BrokenStreamError:
            time.sleep(0.2 * (attempt + 1))
    return listen(client, model, messages, headers)


class BrokenStreamError(Exception):
    pass


def listen(client: OpenAI, model: str, messages: list[Any], headers: dict[str, str]) -> str:
    import httpx
    from openai import APIConnectionError, APIError

    parts: list[str] = []
    finished = False
    stream = client.chat.completions.create(
        model=model, messages=messages, stream=True, extra_headers=headers
    )
    try:
        for event in stream:
            for choice in event.choices:
                parts.append(choice.delta.content or "")
                finished = finished or choice.finish_reason is not None
    except (httpx.TransportError, APIConnectionError, APIError) as error:
        raise BrokenStreamError from error
    if not finished:
        raise BrokenStreamError
    return "".join(parts)


if __name__ == "__main__":
    app.run()
