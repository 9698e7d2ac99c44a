"""A run's lines, and one rollout, as text: what agents wrote steers no terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .show import console, escape, plain_table, printable

if TYPE_CHECKING:
    from ..dashboard.rollout import RolloutView

MAX_TOKEN_CHARS = 100
MAX_RESULT_CHARS = 4000
TOKEN_HEAD = " place      id turn  log-prob  entropy advantage  text"
LOG_LINES = 20
STAGES = {
    "queue_s": "queue",
    "retry_s": "earlier attempts",
    "start_s": "start",
    "agent_s": "agent",
    "model_s": "model",
    "reward_s": "reward",
    "finish_s": "store",
}
"""As the page names them."""


def figure(value: Any, form: str = ".3f") -> str:
    return format(value, form) if isinstance(value, int | float) else "-"


def seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 0.0995 else f"{1000 * value:.1f} ms"


def share(value: Any) -> str:
    return f"{100 * value:.1f} %" if isinstance(value, int | float) else "-"


def say(text: str, style: str | None = None) -> None:
    console.print(printable(text), style=style, markup=False, soft_wrap=True)


def outcome(line: dict[str, Any]) -> str:
    return str(line["failure"] or ("solved" if line["solved"] else "unsolved"))


# --- a run ------------------------------------------------------------------------------------


def print_line(line: dict[str, Any]) -> None:
    ended = line["failure"] or f"reward {figure(line['reward'])}"
    why = f"  {' '.join(line['error'].split())}" if line["failure"] and line["error"] else ""
    size = f"{line['tokens']} tokens  {line['seconds']:.2f} s"
    say(f"{line['rollout_id']}  {ended}  {size}{why}", "red" if line["failure"] else None)


def print_metric(metric: dict[str, Any]) -> None:
    kind, step = metric.get("kind"), metric.get("step")
    say(
        f"{kind} {step}: reward {figure(metric.get('reward'))}  "
        f"success {share(metric.get('success'))}  {metric.get('rollouts')} rollouts",
        "bold",
    )


# --- a rollout --------------------------------------------------------------------------------


def print_head(answer: dict[str, Any]) -> None:
    say(answer["rollout_id"], "bold")
    ended = answer["failure"] or f"reward {figure(answer['reward'])}"
    say(
        f"{answer['phase']} {answer['step']}  {ended}  {answer['turns']} turns  "
        f"{answer['tokens']} tokens  {answer['seconds']:.2f} s  session {answer['session_id']}"
    )
    stages = [f"{name} {seconds(value)}" for name, value in spent(answer)]
    if stages:
        say("time: " + ", ".join(stages), "dim")
    if answer["error"]:
        say(answer["error"], "red")


def spent(answer: dict[str, Any]) -> list[tuple[str, float]]:
    """By stage, in their order; of a run that was written before a stage was known, the others."""
    timings = answer["timings"]
    return [(name, timings[key]) for key, name in STAGES.items() if timings.get(key)]


def print_turn(turn: dict[str, Any]) -> None:
    for message in turn["messages"]:
        print_message(message, message["role"], "dim")
    notes = [turn["fork"], turn["left"] and f"not trained: {turn['left']}", turn["error"]]
    told = "".join(f"  [{note}]" for note in notes if note)
    if turn["answer"] is not None:
        name = f"model {turn['seq']}{told}  {turn['n_prompt']} in, {turn['n_sampled']} out"
        print_message(turn["answer"], name, "bold blue")
    else:
        say(f"model {turn['seq']}{told}: no answer", "bold blue")


def print_message(message: dict[str, Any], name: str, style: str) -> None:
    say(f"\n{name}", style)
    for part in (message.get("reasoning"), message["text"]):
        if part:
            say(part)
    for call in message["calls"]:
        say(f"{call['name']}({call['arguments']})", "magenta")


def print_group(answer: dict[str, Any]) -> None:
    table = plain_table("sample", "outcome", "reward", "advantage", "tokens")
    for one in answer["group"]:
        mark = " <" if one["n"] == answer["n"] else ""
        table.add_row(
            escape(printable(one["rollout_id"])) + mark,
            escape(printable(outcome(one))),
            figure(one["reward"]),
            figure(one["advantage"], "+.2f"),
            str(one["tokens"]),
        )
    console.print()
    console.print(table)


def print_result(answer: dict[str, Any]) -> None:
    if answer["result"] is not None:
        text = json.dumps(without_payload(answer["result"]), ensure_ascii=False)
        more = f" ... {len(text)} characters" if len(text) > MAX_RESULT_CHARS else ""
        say("\nresult", "dim")
        say(text[:MAX_RESULT_CHARS] + more)
    if answer["rerun"]:
        say("\nrun again", "dim")
        say(answer["rerun"])


def without_payload(result: Any) -> Any:
    """The task is in the conversation and in the command already."""
    if not isinstance(result, dict):
        return result
    return {key: value for key, value in result.items() if key != "payload"}


def print_log(view: RolloutView) -> None:
    log = view.run.log(view.head.session_id)
    if log:
        lines = log.decode(errors="replace").splitlines()
        say(f"\nlog, its last {min(len(lines), LOG_LINES)} of {len(lines)} lines", "dim")
        say("\n".join(lines[-LOG_LINES:]))


# --- its tokens -------------------------------------------------------------------------------


def print_tokens(view: RolloutView) -> None:
    from ..dashboard.token import token_answer

    for number in range(len(view.rows())):
        columns = token_answer(view, number)["columns"]
        say(f"\nrow {number}: {len(columns['ids'])} tokens, {sum(columns['mask'])} trained", "bold")
        say(TOKEN_HEAD, "dim")
        for line in token_lines(columns):
            sys.stdout.write(line + "\n")


def token_lines(columns: dict[str, Any]) -> Iterator[str]:
    """Figures where a token was sampled and is trained; for context its place, id and text."""
    spans = {i: span for span in columns["turns"] for i in range(span["start"], span["end"])}
    entropies = columns["entropies"] or [None] * len(columns["ids"])
    for i, (token, on, logprob, entropy) in enumerate(
        zip(columns["ids"], columns["mask"], columns["logprobs"], entropies, strict=True)
    ):
        text = printable(repr(columns["texts"].get(str(token), "")))
        if len(text) > MAX_TOKEN_CHARS:
            text = text[:MAX_TOKEN_CHARS] + "..."
        span = spans.get(i) if on else None
        figures = (
            f"{span['number']:4d} {logprob:9.4f} {figure(entropy):>8} "
            f"{figure(span['advantage'], '+.2f'):>9}"
            if span
            else " " * 33
        )
        yield f"{i:6d} {token:7d} {figures}  {text}"
