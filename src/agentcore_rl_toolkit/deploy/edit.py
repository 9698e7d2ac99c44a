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
