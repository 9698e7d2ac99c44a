"""The reward of the office agent: OfficeBench's checks on the files at the end.

A check is ``{"function": …, "args": …}``. All must hold. OfficeBench's own look for keywords; those
in the second half of this file are exact and refuse an answer that holds more than was asked for.
"""

from __future__ import annotations

import email
import email.policy
import itertools
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import formats

from agentcore_rl_toolkit import RewardFunction

Snapshot = dict[str, bytes]


def snapshot(testbed: Path) -> Snapshot:
    files = (p for p in testbed.rglob("*") if p.is_file() and not p.is_symlink())
    return {str(p.relative_to(testbed)): p.read_bytes() for p in files}


class OfficeReward(RewardFunction):
    """1.0 when every check of the task holds, else 0.0."""

    def __init__(self, testbed: Path) -> None:
        """Before the agent starts: keeps how things were."""
        self.before = snapshot(testbed)

    def __call__(
        self, *, testbed: Path | None = None, evaluation: Sequence[Any] = (), **_: Any
    ) -> float:
        if testbed is None or not evaluation:
            return 0.0
        for check in evaluation:
            if check["function"] not in CHECKS:
                known = ", ".join(CHECKS)
                raise ValueError(f"unknown check {check['function']!r}; there are {known}")
            try:
                holds = CHECKS[check["function"]](testbed, check["args"], self.before)
            except (OSError, KeyError, ValueError, AttributeError, SyntaxError, BadZipFile):
                holds = False  # a file that is missing or broken
            if not holds:
                return 0.0
        return 1.0


def text_of(testbed: Path, kind: str, args: dict[str, Any]) -> str:
    if kind == "email":
        folder = testbed / "emails" / args["username"]
        return "\n".join(formats.read_eml(file) for file in sorted(folder.glob("*.eml")))
    file = testbed / args["file"]
    if kind == "xlsx":
        cells = sorted(formats.read_xlsx(file).items())
        return "\n".join(f"({row}, {column}): {text}" for (row, column), text in cells)
    if kind in ("doc", "docx"):
        return "\n".join(formats.read_docx(file))
    if kind == "pdf":
        return "\n".join(formats.read_pdf(file))
    return str(file.read_text())


def contain(testbed: Path, args: dict[str, Any], before: Snapshot) -> bool:
    text = text_of(testbed, args["doc_type"], args).lower()
    plain = text.replace(",", "")
    return all(str(word).lower() in text or str(word) in plain for word in args["keywords"])


def not_contain(testbed: Path, args: dict[str, Any], before: Snapshot) -> bool:
    """None of the words; in a file that is missing there are none."""
    try:
        text = text_of(testbed, args["doc_type"], args).lower()
    except OSError:
        return True
    return not any(str(word).lower() in text for word in args["keywords"])


def file_exist(testbed: Path, args: dict[str, Any], before: Snapshot) -> bool:
    return bool((testbed / args["file"]).exists())


def file_not_exist(testbed: Path, args: dict[str, Any], before: Snapshot) -> bool:
    return not (testbed / args["file"]).exists()


def excel_cell_value(testbed: Path, args: dict[str, Any], before: Snapshot) -> bool:
    cells = formats.read_xlsx(testbed / args["file"])
    return all(cells.get((m["row"], m["col"]), "") == str(m["value"]) for m in args["matches"])


def calendar_no_overlap(testbed: Path, args: dict[str, Any], before: Snapshot) -> bool:
    events = formats.read_ics(testbed / "calendar" / f"{args['username']}.ics")
    return all(one.end <= after.start for one, after in itertools.pairwise(events))


def exact_match(testbed: Path, args: dict[str, Any], before: Snapshot) -> bool:
    """The expected file is the one from before: the agent can reach the one in the testbed."""
    kind = args["doc_type"]
    right = _text_before(before, kind, args["expected_file"])
    return text_of(testbed, kind, {"file": args["result_file"]}) == right


def diff_contain_text(testbed: Path, args: dict[str, Any], before: Snapshot) -> bool:
    """The input is the one from before, for the same reason."""
    kind = args["doc_type"]
    old = _text_before(before, kind, args["input_file"])
    new = text_of(testbed, kind, {"file": args["output_file"]})
    changed = "\n".join(set(old.splitlines()) ^ set(new.splitlines()))
    return bool(changed) and all(str(word) in changed for word in args["keywords"])


def _text_before(before: Snapshot, kind: str, file: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / Path(file).name
        copy.write_bytes(before[str(Path(file))])
        return text_of(Path(folder), kind, {"file": copy.name})


# --- exact ones, beside OfficeBench's ----------------------------------------------------------


def untouched(testbed: Path, args: dict[str, Any], before: Snapshot) -> bool:
    """All files but the named ones are as they were, and there are no others."""
    now, free = snapshot(testbed), set(args["but"])
    return {k: v for k, v in now.items() if k not in free} == {
        k: v for k, v in before.items() if k not in free
    }


def text_is(testbed: Path, args: dict[str, Any], before: Snapshot) -> bool:
    """The whole text is one of the given ones; where lines of a PDF end says nothing."""
    kind = args["doc_type"]
    between = " " if kind == "pdf" else "\n"
    text = between.join(_lines(text_of(testbed, kind, args)))
    return text in [between.join(_lines(one)) for one in args["texts"]]


def sheet_is(testbed: Path, args: dict[str, Any], before: Snapshot) -> bool:
    cells = formats.read_xlsx(testbed / args["file"])
    return cells == {
        (r, c): text for r, row in enumerate(args["rows"], 1) for c, text in enumerate(row, 1)
    }


def calendar_is(testbed: Path, args: dict[str, Any], before: Snapshot) -> bool:
    events = formats.read_ics(testbed / "calendar" / f"{args['username']}.ics")
    return events == sorted(formats.Event(*event) for event in args["events"])


def mail_is(testbed: Path, args: dict[str, Any], before: Snapshot) -> bool:
    """Sender, subject and the whole text, which is one of the given ones."""
    content = (testbed / args["file"]).read_bytes()
    message = email.message_from_bytes(content, policy=email.policy.default)
    body = message.get_body(("plain",))
    text = " ".join(_lines(body.get_content() if body else ""))
    head = (str(message["From"]), str(message["Subject"]))
    return head == (args["sender"], args["subject"]) and text in args["texts"]


def _lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


CHECKS: dict[str, Callable[[Path, dict[str, Any], Snapshot], bool]] = {
    f"evaluate_{check.__name__}": check
    for check in (
        contain, not_contain, file_exist, file_not_exist, excel_cell_value, calendar_no_overlap,
        exact_match, diff_contain_text,
        untouched, text_is, sheet_is, calendar_is, mail_is,
    )
}  # fmt: skip
