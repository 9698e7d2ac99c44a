"""One rollout: its record, conversation, siblings, result, and how to run it again."""

from __future__ import annotations

import json
import shlex
from functools import cached_property
from typing import Any

from ..errors import ConfigError, ContractError
from ..run import Problem, SessionRecord
from ..run.folder import result_name
from ..run.index import RolloutHead, find_session
from ..trajectory.export import to_dict
from ..trajectory.graph import SessionGraph
from ..trajectory.row import Row, RowStatus, assign_rewards
from .conversation import turn_views
from .group import Rewards, turn_advantages
from .run import Run, in_words

MAX_RESULT_BYTES = 4 << 20


class RolloutView:
    """Reads one session of a run's journal; made for one answer and let go."""

    def __init__(self, run: Run, n: int) -> None:
        with run.lock:
            run.poll()
            if not 0 <= n < len(run.index.heads):
                raise ConfigError(f"{run.name} has no rollout number {n}")
            self.run, self.n = run, n
            self.head: RolloutHead = run.index.heads[n]
            self.record = run.index.record(n)
            heads = run.index.heads
            group = run.index.by_group.get(self.head.group_id, [n])
            self.siblings = sorted(group, key=lambda i: heads[i].sample)
        self.problems: list[Problem] = []
        if not self.record:
            message = "its line is damaged: only a part is shown"
            self.problems.append(Problem(run.index.path, self.head.offset, message))
        self.result = self._result(self.head.session_id)

    @cached_property
    def session(self) -> SessionRecord | None:
        head = self.head
        since = head.at - sum(head.timings.values()) if head.at else None
        return find_session(
            self.run.folder,
            head.session_id,
            since=since,
            until=head.at or None,
            problems=self.problems,
        )

    @cached_property
    def graph(self) -> SessionGraph | None:
        if self.session is None:
            return None
        try:
            return self.session.graph(self.problems)
        except ContractError as error:
            self._tell(f"the turns do not fit together: {error}")
            return None

    def _tell(self, message: str) -> None:
        self.problems.append(Problem(self.run.folder.turns, 0, message))

    def _result(self, session_id: str) -> Any:
        """As the agent returned it; None where none was kept."""
        try:
            path = self.run.folder.result(result_name(session_id))
            if path.stat().st_size > MAX_RESULT_BYTES:
                self.problems.append(Problem(path, 0, f"is larger than {MAX_RESULT_BYTES} bytes"))
                return None
            return json.loads(path.read_bytes())
        except FileNotFoundError:
            return None
        except (ConfigError, OSError, ValueError, RecursionError) as error:
            self.problems.append(Problem(self.run.folder.results, 0, f"a result: {error}"))
            return None

    # --- rows and advantages ----------------------------------------------------------------------

    def rows(self) -> list[Row]:
        if self.graph is None:
            return []
        try:
            rows = self.graph.rows()
        except ContractError as error:
            self._tell(f"no rows can be made: {error}")
            return []
        rewards = self._rewards(self.head, self.result)
        if rewards is not None:
            try:
                assign_rewards(rows, rewards)
            except ContractError:
                assign_rewards(rows, self.head.reward or 0.0)
        if self.head.failure is not None:
            for row in rows:
                row.status = RowStatus.FAILED
        return rows

    @staticmethod
    def _rewards(head: RolloutHead, result: Any) -> Rewards:
        """As trained: a failed agent has the configured reward, whatever it returned."""
        if head.reward is None or head.failure is not None or not isinstance(result, dict):
            return head.reward
        given = result.get("rewards")
        numbers = isinstance(given, list) and all(isinstance(v, int | float) for v in given)
        return [float(v) for v in given] if numbers and given else head.reward

    @cached_property
    def advantages(self) -> list[list[float] | None]:
        """For each sibling, by turn."""
        heads = [self.run.index.heads[n] for n in self.siblings]
        rewards = [
            self._rewards(head, self.result if n == self.n else self._result(head.session_id))
            for n, head in zip(self.siblings, heads, strict=True)
        ]
        scaled = bool(self.run.setting("train", "scale_by_std", True))
        turns = [
            len(value) if isinstance(value, list) and len(value) > 1 else max(1, head.turns)
            for value, head in zip(rewards, heads, strict=True)
        ]
        return turn_advantages(rewards, turns, scale_by_std=scaled)

    def worth(self, rows: list[Row]) -> dict[str, float]:
        """Advantage of each turn that is trained."""
        own = self.advantages[self.siblings.index(self.n)] or []
        spans = [span for row in rows for span in row.turns]
        return {s.turn_id: own[s.number] for s in spans if s.number < len(own)}

    # --- answers ----------------------------------------------------------------------------------

    def answer(self) -> dict[str, Any]:
        views: list[dict[str, Any]] = []
        rows: list[dict[str, Any]] = []
        drift: dict[str, int] = {}
        if self.session is not None and self.graph is not None:
            views = turn_views(self.session.turns, self.graph)
            drift = {k: getattr(self.graph.drift, k) for k in ("clean", "stitched", "forked")}
            made = self.rows()
            rows = [
                {"tokens": r.n_tokens, "trained": r.n_trained, "status": r.status.value}
                for r in made
            ]
            worth = self.worth(made)
            for view in views:
                view["advantage"] = worth.get(view["turn_id"])
        return {
            **self.run.line(self.n),
            "error": self.record.get("error"),
            "metrics": self.record.get("metrics"),
            "versions": self.record.get("versions"),
            "turn_list": views,
            "row_list": rows,
            "drift": drift,
            "alarm": self.graph.drift.alarm() if self.graph else None,
            "group": self._group(),
            "result": self.result,
            "rerun": self.rerun(),
            "problems": in_words(self.problems),
        }

    def _group(self) -> list[dict[str, Any]]:
        return [
            {**self.run.line(n), "advantage": None if own is None else own[0] if own else None}
            for n, own in zip(self.siblings, self.advantages, strict=True)
        ]

    def payload(self) -> dict[str, Any] | None:
        """What the agent was asked, without what the toolkit added."""
        found = self.result.get("payload") if isinstance(self.result, dict) else None
        if not isinstance(found, dict):
            return None
        return {key: value for key, value in found.items() if key != "_rollout"}

    def rerun(self) -> str | None:
        """The command that tries this task once more, on the agent as deployed; the model's address
        was the session's own and is left to say."""
        payload = self.payload()
        arns = [str(e["agent"]) for e in self.run.events if e.get("agent")]
        arn = arns[-1] if arns else self.run.setting("agent", "arn")
        if payload is None or not arn:
            return None
        before = ""
        if path := self.run.setting("agent", "path"):  # the run's own runtime ended with it
            before = shlex.join(["art", "deploy", str(path), "--local"]) + " && "
            arn = str(arn).rpartition("/")[2].rpartition("-")[0]
        words = ["art", "invoke", str(arn), json.dumps(payload, ensure_ascii=False), "--rollout"]
        name = self.run.setting("model", "served_name") or "policy"
        return before + shlex.join([*words, "--model-id", str(name), "--base-url", "MODEL_URL"])

    def export(self) -> dict[str, Any]:
        """Everything, for other programs."""
        return {**self.answer(), "rows": [to_dict(row) for row in self.rows()]}
