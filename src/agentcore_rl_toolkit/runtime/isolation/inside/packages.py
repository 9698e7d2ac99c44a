"""The packages that an agent's requirements brought, on the path of its interpreter.

Done in the zygote, once it is in its view: an interpreter reads such folders at its start, and may
run what it finds there.
"""

from __future__ import annotations

import os
import site
import sys


def use(folder: str) -> None:
    """They come before the interpreter's own packages, after the standard library."""
    before = list(sys.path)
    site.addsitedir(folder)
    added = [entry for entry in sys.path if entry not in before]
    own = [entry for entry in before if entry.endswith(("site-packages", "dist-packages"))]
    place = before.index(own[0]) if own else len(before)
    sys.path[:] = [*before[:place], *added, *before[place:]]
    # For whatever the agent starts, and for sessions that begin with a fresh interpreter.
    os.environ["PYTHONPATH"] = os.pathsep.join(
        entry for entry in (folder, os.environ.get("PYTHONPATH")) if entry
    )
    os.environ["PATH"] = os.pathsep.join((f"{folder}/bin", os.environ.get("PATH", os.defpath)))
