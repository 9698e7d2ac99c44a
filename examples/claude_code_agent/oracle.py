"""Mends the repositories through the CLI's own tools."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import make_data
from claude_code import find

DIALECT = "anthropic"
"""What the agent speaks, so that a gateway stands between it and the script."""
SUBTRACTIVE = """VALUES = [
    ("M", 1000), ("CM", 900), ("D", 500), ("CD", 400), ("C", 100), ("XC", 90), ("L", 50),
    ("XL", 40), ("X", 10), ("IX", 9), ("V", 5), ("IV", 4), ("I", 1),
]"""
COMMANDS = {
    "roman": [
        "python3 -m unittest discover -s tests -t . 2>&1 | tail -5; cat roman.py",
        f"cat > new.py <<'END'\n{SUBTRACTIVE}\nEND\n"
        "sed -i -e '/^VALUES/{r new.py' -e 'd}' roman.py; rm new.py; python3 -c 'import roman'",
    ],
    "wallet": [
        "cat wallet.py",
        "sed -i 's|// people for _ |// people + (i < cents % people) for i |' wallet.py",
    ],
}


def tasks() -> Iterator[dict[str, Any]]:
    return make_data.rows()


def label(task: dict[str, Any]) -> str:
    return str(task["repo"])


def reply(request: dict[str, Any]) -> tuple[str, list[tuple[str, dict[str, str]]]]:
    messages = request["messages"]
    asked = " ".join(str(m["content"]) for m in messages if m["role"] == "user")
    steps = next((steps for repo, steps in COMMANDS.items() if f"Mend {repo}.py" in asked), [])
    done = sum(m["role"] == "tool" for m in messages)
    if done < len(steps):
        return "", [("Bash", {"command": steps[done], "description": f"step {done + 1}"})]
    return "The tests pass now.", []


def environment() -> dict[str, str]:
    """The CLI's folder is made visible to the sessions by way of PYTHONPATH."""
    command = find()
    folder = command.partition("/node_modules/")[0]
    return {"CLAUDE_CLI": command, "PYTHONPATH": folder}
