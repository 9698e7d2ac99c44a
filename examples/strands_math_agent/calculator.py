"""The agent's one tool: arithmetic on numbers, parsed rather than evaluated."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

MAX_CHARS = 200
MAX_DIGITS = 30

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}


def calculate(expression: str) -> int | float:
    """ValueError for anything but numbers, + - * / // % and parentheses."""
    if len(expression) > MAX_CHARS:
        raise ValueError(f"the expression is longer than {MAX_CHARS} characters")
    try:
        value = _value(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, ZeroDivisionError, OverflowError, RecursionError) as error:
        raise ValueError(f"cannot compute {expression!r}: {error}") from None
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _value(node: ast.expr) -> int | float:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        if abs(node.value) < 10**MAX_DIGITS:
            return node.value  # type: ignore[return-value]
    elif isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        return _BINARY[type(node.op)](_value(node.left), _value(node.right))
    elif isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
        return _UNARY[type(node.op)](_value(node.operand))
    raise ValueError(f"cannot compute {ast.unparse(node)!r}: use numbers and + - * / // % ( )")


def calculator(expression: str) -> str:
    """Compute an arithmetic expression.

    Args:
        expression: Numbers combined with + - * / // % and parentheses, such as "12 * (3 + 4)".
    """
    try:
        return str(calculate(expression))
    except ValueError as error:
        return f"error: {error}"
