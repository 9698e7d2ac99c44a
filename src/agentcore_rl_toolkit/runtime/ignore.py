"""What an agent's ``.dockerignore`` leaves out of a deployment, here and on AWS alike.

Docker's rules: one pattern a line, from the folder's root; ``*`` stays within a name, ``**`` does
not; a folder's pattern covers all that is in it; ``!`` takes back, and the last match decides.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path, PurePosixPath

FILE = ".dockerignore"
_PARTS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def ignored_in(folder: Path) -> Callable[[PurePosixPath], bool]:
    """Whether a path, relative to the folder, stays behind."""
    rules = [rule for line in lines_of(folder) if (rule := _rule(line)) is not None]

    def ignored(path: PurePosixPath) -> bool:
        matches = [out for out, pattern in rules if pattern.match(str(path))]
        return bool(matches) and matches[-1]

    return ignored


def lines_of(folder: Path) -> list[str]:
    file = folder / FILE
    return file.read_text(errors="replace").splitlines() if file.is_file() else []


def _rule(line: str) -> tuple[bool, re.Pattern[str]] | None:
    text = line.strip()
    if not text or text.startswith("#"):
        return None
    back = text.startswith("!")
    text = text.removeprefix("!").strip().removeprefix("./").strip("/")
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", text)
    pattern = "".join(_PARTS.get(part) or re.escape(part) for part in parts)
    return not back, re.compile(f"{pattern}(?:/.*)?$", re.DOTALL)
