"""Answers the questions through the tools; the same script for every framework."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator
from typing import Any

from warehouse import STOCK, questions

NEEDS = {
    "langgraph_rl_app.py": "langgraph",
    "openai_rl_app.py": "openai",
    "agents_sdk_rl_app.py": "openai-agents",
}
"""The distribution that each app is about."""


def entries() -> list[str]:
    """The apps whose framework is installed."""
    return [entry for entry, package in NEEDS.items() if installed(package)]


def installed(distribution: str) -> bool:
    try:
        importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def tasks() -> Iterator[dict[str, Any]]:
    return questions(3)


def label(task: dict[str, Any]) -> str:
    return str(task["prompt"])


def reply(request: dict[str, Any]) -> tuple[str, list[tuple[str, dict[str, str]]]]:
    messages = request["messages"]
    question = str(next(m["content"] for m in messages if m["role"] == "user"))
    items = [item for item in STOCK if f" {item} " in question]
    found = [int(str(m["content"])) for m in messages if m["role"] == "tool"]
    if not found:
        tools = ["count", "price"] if "worth" in question else ["count", "count"]
        chosen = items * 2 if "worth" in question else items
        return "", [(tool, {"item": item}) for tool, item in zip(tools, chosen, strict=True)]
    return f"#### {found[0] * found[1] if 'worth' in question else sum(found)}", []
