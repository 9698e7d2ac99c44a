"""One rollout as one HTML file: to mail, to attach, to keep when the run folder is gone.

The dashboard's own modules and style sheet, inlined, over the answers that they would have asked
the server for. The file loads nothing and may run nothing but that script: its policy names the
script's hash, and what agents wrote is data in a block that is not executed.
"""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path
from urllib.parse import quote

import msgspec

from .rollout import RolloutView
from .token import token_answer

STATIC = Path(__file__).parent / "static"
IMPORT = re.compile(r'^import (\{[^}]*\}) from "\./(\w+)\.js";$', re.MULTILINE)
EXPORT = re.compile(r"^export (async function|function|const) (\w+)", re.MULTILINE)


def single_page(view: RolloutView, log: str | None = None) -> str:
    """``log``: what the agent printed, where a runtime still has it."""
    script = bundle("app")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "base-uri 'none'; form-action 'none'"
    )
    kept = msgspec.json.encode(answers(view, log), enc_hook=str).decode()
    parts = {
        '<link rel="icon" href="/static/icon.svg" type="image/svg+xml">': (
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        ),
        '<link rel="stylesheet" href="/static/style.css">': (
            f"<style>{(STATIC / 'style.css').read_text()}</style>"
        ),
        '<script type="module" src="/static/app.js"></script>': "",
        "</body>": (
            '<script type="application/json" id="kept">'
            + kept.replace("<", "\\u003c")
            + f'</script>\n<script type="module">{script}</script>\n</body>'
        ),
    }
    page = (STATIC / "index.html").read_text()
    for old, new in parts.items():
        page = page.replace(old, new, 1)
    return page


def answers(view: RolloutView, log: str | None) -> dict[str, object]:
    """By path and query, as ``api.js`` asks for them; ``""`` is where the page begins."""
    answer = view.answer()
    run = quote(view.run.name, safe="!'()*")  # as encodeURIComponent does
    n = answer["n"]
    here = f"runs/{run}/rollouts/{n}"
    kept: dict[str, object] = {"": f"#/run/{run}/rollout/{n}"}
    kept[here] = answer
    kept[f"{here}/log"] = {"log": log}
    for row in range(max(1, len(answer["row_list"]))):
        kept[f"{here}/tokens?row={row}"] = token_answer(view, row)
    return kept


def bundle(name: str) -> str:
    """A module and what it imports as one script: each a function that returns its exports."""
    done: dict[str, str] = {}
    _add(name, done)
    return "\n".join(done.values())


def _add(name: str, done: dict[str, str]) -> None:
    text = (STATIC / f"{name}.js").read_text()
    for _, other in IMPORT.findall(text):
        if other not in done:
            _add(other, done)
    exports = ", ".join(found for _, found in EXPORT.findall(text))
    text = IMPORT.sub(r"const \1 = module_\2;", text)
    text = EXPORT.sub(r"\1 \2", text)
    done[name] = f"const module_{name} = (() => {{\n{text}\nreturn {{ {exports} }};\n}})();"
