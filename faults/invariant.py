"""What must hold, whatever was broken: pure functions from what was seen to what is wrong.

    exactly_once    every rollout that was submitted ends once, with a name for how; the collector's
                    account sums at every moment; infrastructure leaves no rows; nobody is blamed
                    for what was done to him
    acknowledged    an answer that an agent saw whole is in the journal, once, in its session
    trained         a row's text is the journal's; what an agent was told is trained, nothing else
                    is, and nothing twice
    calm            once nothing is broken any more, every rollout succeeds

Each gives sentences; none means that it holds.
"""

from __future__ import annotations

import collections
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from agentcore_rl_toolkit.run.reader import SessionRecord
from agentcore_rl_toolkit.trajectory.turn import Turn

from .driver import ON_PURPOSE

Line = Mapping[str, Any]
INFRASTRUCTURE = {"model", "timeout", "session_lost", "throttled", "quota", "store", "cancelled"}


def exactly_once(lines: Iterable[Line], *, over: bool) -> list[str]:
    """``over``: the trainer has stopped, so nothing may be open."""
    wrong: list[str] = []
    submitted: dict[str, None] = {}
    ended: collections.Counter[str] = collections.Counter()
    for line in lines:
        if line["kind"] == "submit":
            if ended[line["rollout"]]:
                wrong.append(f"{line['rollout']} was submitted again after its end")
            submitted[line["rollout"]] = None
        elif line["kind"] == "end":
            ended[line["rollout"]] += 1
            wrong += _named(line)
        elif line["kind"] in ("report", "stop"):
            wrong += _sums(line["report"] if line["kind"] == "stop" else line)
    wrong += [f"{rollout} ended {n} times" for rollout, n in ended.items() if n > 1]
    wrong += [f"{rollout} ended and was never submitted" for rollout in ended.keys() - submitted]
    if over:
        wrong += [f"{rollout} never ended" for rollout in submitted if not ended[rollout]]
    return wrong


def _named(line: Line) -> list[str]:
    kind, where = line["failure"], line["rollout"]
    if kind is None:
        return []
    if kind == "agent":
        blamed = ON_PURPOSE not in (line["message"] or "")
        return [f"{where} was blamed on its agent: {line['message']}"] if blamed else []
    if kind not in INFRASTRUCTURE:
        return [f"{where} failed as {kind!r}: {line['message']}"]
    return [f"{where} failed as {kind} and has rows all the same"] if line["rows"] else []


def _sums(report: Line) -> list[str]:
    parts = report["succeeded"] + sum(report["failed"].values()) + report["running"]
    if parts == report["submitted"] and report["running"] >= 0:
        return []
    return [f"the account does not sum: {dict(report)}"]


def acknowledged(
    told: Mapping[str, Iterable[str]], journal: Mapping[str, SessionRecord]
) -> list[str]:
    """``told``: what the agent of each session saw whole."""
    wrong: list[str] = []
    for session, texts in told.items():
        record = journal.get(session)
        held = collections.Counter(answer_of(turn) for turn in record.turns) if record else {}
        for text in texts:
            if held.get(text, 0) != 1:
                wrong.append(
                    f"session {session}: {text!r} was acknowledged and is {held.get(text, 0)} "
                    "times in the journal"
                )
    return wrong


def trained(
    lines: Iterable[Line],
    told: Mapping[str, list[str]],
    journal: Mapping[str, SessionRecord],
) -> list[str]:
    wrong: list[str] = []
    seen: dict[str, str] = {}
    for line in lines:
        if line["kind"] != "end" or line["failure"] in INFRASTRUCTURE:
            continue
        session, rollout = line["session"], line["rollout"]
        record = journal.get(session)
        turns = {turn.turn_id: turn for turn in record.turns} if record else {}
        spans = [(name, text) for row in line["rows"] for name, text in row["turns"]]
        for name, text in spans:
            if name in seen:
                wrong.append(f"turn {name} was trained by {seen[name]} and by {rollout}")
            seen[name] = rollout
            if name not in turns or sampled_text(turns[name]) != text:
                wrong.append(f"turn {name}: what was trained is not what the journal has")
        heard = line["told"] if line["told"] is not None else told.get(session, [])
        if sorted(text for _, text in spans) != sorted(heard):
            wrong.append(f"{rollout}, session {session}: told {heard}, trained {spans}")
    return wrong


def ended_since(lines: Iterable[Line], since: float) -> list[Line]:
    """Ends of rollouts that were submitted for the first time after that moment."""
    first: dict[str, float] = {}
    ends: list[Line] = []
    for line in lines:
        if line["kind"] == "submit":
            first.setdefault(line["rollout"], line["at"])
        elif line["kind"] == "end" and first.get(line["rollout"], 0.0) >= since:
            ends.append(line)
    return ends


def calm(lines: Iterable[Line], since: float) -> list[str]:
    return [
        f"{line['rollout']} failed in calm: {line['message']}"
        for line in ended_since(lines, since)
        if line["failure"] not in (None, "agent")
    ]


def fates(lines: Iterable[Line], journal: Mapping[str, SessionRecord]) -> dict[str, int]:
    """Where every sampled token of the journal went; sums to all of them."""
    ends = {line["session"]: line for line in lines if line["kind"] == "end"}
    out: collections.Counter[str] = collections.Counter()
    for session, record in journal.items():
        end = ends.get(session)
        if end is None or end["failure"] in INFRASTRUCTURE:
            why = "attempt given up" if end is None else "rollout failed"
            out[why] += sum(turn.n_sampled for turn in record.turns)
            continue
        count = record.graph().count()
        out["trained"] += count.trained_tokens
        for reason, n in count.left_tokens.items():
            out[f"left out: {reason}"] += n
    return dict(out)


def answer_of(turn: Turn) -> str | None:
    if turn.error is not None or not turn.response:
        return None
    return str(json.loads(turn.response).get("content"))


def sampled_text(turn: Turn) -> str:
    return "".join(map(chr, turn.sampled_ids()))


def read_told(logs: Path) -> dict[str, list[str]]:
    """What agents wrote to their sessions' logs, by session."""
    out: dict[str, list[str]] = {}
    for path in logs.glob("*.log"):
        try:
            data = path.read_bytes()
        except FileNotFoundError:  # of a session in waiting, which has got its name meanwhile
            continue
        for line in data.split(b"\n")[:-1]:
            if line.startswith(b'{"told": '):
                out.setdefault(path.stem, []).append(str(json.loads(line)["told"]))
    return out
