"""Run folders to look at, written with the parts that write real ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agentcore_rl_toolkit.run import Journal, RunWriter, SessionClosed, SessionOpened
from agentcore_rl_toolkit.run.folder import result_name
from agentcore_rl_toolkit.run.frame import Frame, encode
from agentcore_rl_toolkit.trajectory import SessionGraph, Turn
from agentcore_rl_toolkit.trajectory.turn import pack_logprobs

AT = 1_790_000_000.0
MODEL = Path(__file__).resolve().parents[2] / "examples" / "demo_policy" / "model"
TIMINGS = {
    "queue_s": 0.5,
    "start_s": 0.25,
    "agent_s": 1.0,
    "model_s": 2.0,
    "reward_s": 0.15,
    "finish_s": 0.05,
}
CONFIG = f"""agent: {{path: examples/math}}
model: {{path: {MODEL}}}
train: {{steps: 2, scale_by_std: true, success_at: 1.0}}
"""
HOSTILE = [
    "<script>window.pwned = 1</script>",
    "<img src=x onerror='window.pwned = 2'>",
    "<svg onload=window.pwned=3>",
    '"><iframe srcdoc="<script>parent.pwned = 4</script>">',
    "javascript:window.pwned=5",
    "</pre><style>body{display:none}</style>",
    "{{constructor.constructor('window.pwned=6')()}}",
    "\u202e\u0000\x1b[31m",
    "<link rel=stylesheet href=http://attacker.invalid/x.css>",
]


class Talk(SessionGraph):
    """A session's graph, with its turns as they were journalled: a graph keeps no requests."""

    def __init__(self, name: str) -> None:
        group = name.rpartition("-")[0]
        super().__init__(f"session-{name}", rollout_id=name, group_id=group)
        self.made: list[Turn] = []


class Sample:
    """A run folder and its journal, open for more."""

    def __init__(self, path: Path, *, config: str | None = CONFIG) -> None:
        self.path = path
        self.out = RunWriter(path, config=config)
        self.journal = Journal(path / "turns", fsync=False)
        self.out.event({"at": AT, "event": "started", "agent": ARN})

    def close(self, *, ended: bool = True) -> None:
        if ended:
            self.out.event({"at": AT + 60, "event": "ended", "report": "done"})
        self.journal.close()
        self.out.close()

    def frames(self, *frames: Frame) -> None:
        for frame in frames:
            self.journal.append(encode(frame)).result()

    def session(self, session_id: str, graph: Talk) -> None:
        """Its frames, as a gateway writes them."""
        ids = {"rollout_id": graph.rollout_id, "group_id": graph.group_id}
        self.frames(SessionOpened(session_id=session_id, at=AT, **ids))
        self.frames(*graph.made, SessionClosed(session_id=session_id, at=AT + 2))

    def rollout(
        self,
        group: str,
        sample: int,
        reward: float | None,
        *,
        graph: Talk | None = None,
        failure: str | None = None,
        result: dict[str, Any] | None = None,
        **more: Any,
    ) -> str:
        rollout_id = f"{group}-{sample}"
        session_id = more.pop("session_id", f"session-{rollout_id}")
        if graph is not None:
            self.session(session_id, graph)
        body = {"rewards": reward, "payload": {"prompt": "2 + 2", "answer": "4"}, **(result or {})}
        if failure is None:
            self.out.result(result_name(session_id), json.dumps(body).encode())
        phase, step, _ = group.split("-")
        count = graph.count() if graph is not None else None
        record = {
            "at": AT + 10 + int(step),
            "phase": phase,
            "step": int(step),
            "task": 0,
            "sample": sample,
            "group_id": group,
            "rollout_id": rollout_id,
            "session_id": session_id,
            "reward": reward,
            "failure": failure,
            "error": f"{failure}: it broke" if failure else None,
            "attempts": 1,
            "rows": 1,
            "turns": count.turns if count else 0,
            "tokens": count.trained_tokens if count else 0,
            "versions": ["0"],
            "metrics": {},
            "timings": dict(TIMINGS),
        }
        self.out.rollout({**record, **more})
        return rollout_id

    def step(self, step: int, reward: float, **more: Any) -> None:
        record = {
            "at": AT + step,
            "kind": "step",
            "step": step,
            "steps": 2,
            "reward": reward,
            "success": reward,
            "rollouts": 4,
            "tokens": 40,
            "tokens_per_s": 100.0,
            "staleness": 0.0,
            "max_staleness": 0,
            "failures": {},
            "seconds": {"collect": 1.0, "train": 0.5},
            "stages": {"queue_s": 0.5, "agent_s": 1.0, "model_s": 2.0},
        }
        self.out.metric({**record, **more})

    def evaluation(self, step: int, success: float) -> None:
        self.out.metric({"at": AT, "kind": "eval", "step": step, "success": success})


ARN = "arn:aws:bedrock-agentcore:local:000000000000:runtime/math-abcdefghij"


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def tool_call(name: str, arguments: str) -> dict[str, Any]:
    call = {"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def turn(
    graph: Talk,
    messages: list[dict[str, Any]],
    prompt: list[int],
    answer: dict[str, Any],
    sampled: list[int],
    **more: Any,
) -> None:
    """One model call, captured as the gateway captures it."""
    place = {"model": more.pop("model", "policy"), "messages": messages, "prompt_ids": prompt}
    made = graph.make_turn(
        graph.place(**place),
        sampled=sampled,
        logprobs=[-0.1 * (i + 1) for i in range(len(sampled))],
        request=json.dumps({"messages": messages, "model": "policy"}).encode(),
        response=json.dumps(answer).encode(),
        started=AT + len(graph),
        total_s=0.5,
        versions=[("0", 0, len(sampled))],
        **more,
    )
    graph.commit(made)
    graph.made.append(made)


def conversation(name: str, *, text: str = "#### 4", branch: bool = False) -> Talk:
    """A tool call, its answer, and, where asked for, a history that was rewritten."""
    graph = Talk(name)
    first = [{"role": "system", "content": "Use the calculator."}, user("2 + 2")]
    call = tool_call("calculator", '{"expression": "2 + 2"}')
    turn(graph, first, [1, 2, 3], call, [10, 11, 12], entropies=pack_logprobs([0.01, 0.3, 2.9]))
    second = [*first, call, {"role": "tool", "tool_call_id": "c1", "content": "4"}]
    turn(graph, second, [1, 2, 3, 10, 11, 12, 4, 5], said(text), [13, 14])
    if branch:
        other = [*first, call, {"role": "tool", "tool_call_id": "c1", "content": "four"}]
        turn(graph, other, [1, 2, 3, 10, 11, 12, 6], said("#### four"), [15])
    return graph


def whole(path: Path) -> Sample:
    """A small run with something of everything, ended."""
    sample = Sample(path)
    sample.evaluation(0, 0.25)
    sample.rollout("eval-000000-0000", 0, 0.0, graph=conversation("eval-000000-0000-0"))
    for number, reward in enumerate([1.0, 0.0, 0.0]):
        name = f"train-000000-0000-{number}"
        graph = conversation(name, branch=number == 0)
        sample.rollout("train-000000-0000", number, reward, graph=graph)
    sample.rollout("train-000000-0000", 3, None, failure="session_lost")
    sample.rollout("train-000000-0001", 0, 1.0, graph=conversation("train-000000-0001-0"))
    sample.rollout("train-000000-0001", 1, 1.0, graph=conversation("train-000000-0001-1"))
    sample.rollout("train-000001-0000", 0, 0.0, graph=conversation("train-000001-0000-0"))
    sample.step(1, 0.5, failures={"session_lost": 1})
    return sample
