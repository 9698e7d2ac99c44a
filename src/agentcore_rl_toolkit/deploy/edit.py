"""Changes to a source text by the places of its syntax tree, so that all else stays as it was."""

from __future__ import annotations

import ast
from typing import NamedTuple


class Edit(NamedTuple):
    start: int
    end: int
    text: str


class Source:
    """A text, and where its nodes are. Edits are collected and applied at once."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tree = ast.parse(text)
        self._edits: list[Edit] = []
        self._lines = [0]
        for line in text.encode().splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))

    def place(self, line: int, column: int) -> int:
        """Of the tree's own counting: lines from 1, columns in bytes."""
        return self._lines[line - 1] + column

    def start(self, node: ast.expr | ast.stmt) -> int:
        return self.place(node.lineno, node.col_offset)

    def end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None, "parsed from text"
        assert node.end_col_offset is not None, "parsed from text"
        return self.place(node.end_lineno, node.end_col_offset)

    def said(self, node: ast.expr | ast.stmt) -> str:
        return self.text.encode()[self.start(node) : self.end(node)].decode()

    def begins_line(self, node: ast.stmt) -> bool:
        line = self.text.encode()[self.place(node.lineno, 0) : self.start(node)]
        return not line.strip()

    def replace_span(self, start: int, end: int, text: str) -> None:
        self._edits.append(Edit(start, end, text))

    def replace(self, node: ast.expr | ast.stmt, text: str) -> None:
        self.replace_span(self.start(node), self.end(node), text)

    def insert(self, at: int, text: str) -> None:
        self.replace_span(at, at, text)

    def insert_before(self, node: ast.stmt, line: str) -> None:
        """A line of its own, indented as the node is."""
        self.insert(self.start(node), f"{line}\n{' ' * node.col_offset}")

    def insert_after_line(self, node: ast.stmt, line: str) -> None:
        """Below the node's last line, with whatever stands behind it there."""
        assert node.end_lineno is not None, "parsed from text"
        at = self._lines[node.end_lineno]
        if self.text.encode()[:at].endswith(b"\n"):
            self.insert(at, f"{line}\n")
        else:
            self.insert(at, f"\n{line}")

    def add_arguments(self, call: ast.Call, texts: list[str]) -> None:
        """Behind those that are there; on lines of their own where those are."""
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        last = max(given, key=self.end, default=None)
        if last is None:
            self.insert(self.end(call) - 1, ", ".join(texts))
            return
        between = ", "
        if last.lineno != call.lineno:
            line = self.text.encode()[self.place(last.lineno, 0) :]
            between = ",\n" + " " * (len(line) - len(line.lstrip()))
        self.insert(self.end(last), "".join(between + text for text in texts))

    def free_name(self, wanted: str) -> str:
        """``wanted``, or with a prefix where the text has it already."""
        taken = {node.id for node in ast.walk(self.tree) if isinstance(node, ast.Name)}
        taken |= {node.arg for node in ast.walk(self.tree) if isinstance(node, ast.arg)}
        taken |= {getattr(node, "name", "") or "" for node in ast.walk(self.tree)}
        return wanted if wanted not in taken else self.free_name(f"rollout_{wanted}")

    def remove_line(self, node: ast.stmt) -> None:
        """With the empty line after it, when there is one before it as well."""
        assert node.end_lineno is not None, "parsed from text"
        lines = ["", *self.text.splitlines(), ""]
        last = node.end_lineno
        if not lines[node.lineno - 1].strip() and not lines[last + 1].strip():
            last = min(last + 1, len(self._lines) - 1)
        self.replace_span(self.place(node.lineno, 0), self._lines[last], "")

    def result(self) -> str:
        out = self.text.encode()
        for edit in sorted(self._edits, reverse=True):
            out = out[: edit.start] + edit.text.encode() + out[edit.end :]
        return out.decode()
