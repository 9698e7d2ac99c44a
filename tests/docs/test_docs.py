"""The pages as a reader uses them: links lead somewhere, code is code, commands parse."""

from __future__ import annotations

import functools
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, get_args

import pytest
import typer
import yaml

from agentcore_rl_toolkit.cli.app import app
from agentcore_rl_toolkit.trainer.config import Backend, build

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
OWN = sorted(DOCS.glob("*.md"))
PAGES = [*OWN, DOCS / "llms.txt", ROOT / "README.md"]
COMMAND = re.compile(r"^(?:\$ )?(?:[A-Z_]+=\S+ )*(art .*)$")
IDS = [str(page.relative_to(ROOT)) for page in PAGES]
BLOCK = re.compile(r"^ *```(\w*)[^\n]*\n(.*?)^ *```", re.M | re.S)
PLACEHOLDERS = {"…", "..."}


def blocks(page: Path, *languages: str) -> list[str]:
    return [
        textwrap.dedent(body)
        for language, body in BLOCK.findall(page.read_text(encoding="utf-8"))
        if language in languages
    ]


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    found = set()
    for title in re.findall(r"^#+ (.+)$", text, re.M):
        plain = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        found.add(plain)
    return found


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        name, _, anchor = target.partition("#")
        other = (page.parent / name).resolve() if name else page
        assert other.exists(), f"{target} leads nowhere"
        if anchor:
            assert anchor in anchors(other), f"{target}: no such heading"


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_art_command_parses(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for block in BLOCK.findall(text):
        for line in joined(block[1]):
            if match := COMMAND.match(line.strip()):
                check_command(match[1], whole=True)
    for mention in re.findall(r"(?<!`)`(art [^`\n]+)`(?!`)", BLOCK.sub("", text)):
        check_command(mention, whole=False)


def joined(block: str) -> list[str]:
    """Lines of a shell, without what is continued, commented or sent to a file."""
    return [re.split(r"\s+#|\s+[>|&]", line)[0] for line in block.replace("\\\n", " ").splitlines()]


@functools.cache
def tree() -> Any:
    return typer.main.get_command(app)


def check_command(line: str, *, whole: bool) -> None:
    """As far as the parser goes; a mention in a sentence may leave arguments out."""
    words = [word for word in shlex.split(line)[1:] if word not in PLACEHOLDERS]
    command = tree()
    while getattr(command, "commands", None) and words and not words[0].startswith("-"):
        assert words[0] in command.commands, f"{line!r}: there is no {words[0]!r}"
        command = command.commands[words.pop(0)]
    known = {"-h", "--help"}.union(*({*p.opts, *p.secondary_opts} for p in command.params))
    for word in words:
        name = word.partition("=")[0]
        assert name in known or not re.match("--?[a-z]", name), f"{line!r}: there is no {name}"
    if not whole or "…" in line or {"--help", "--version"} & set(words):
        return
    try:
        command.make_context("art", [fill(word) for word in words], resilient_parsing=False)
    except Exception as error:
        message = getattr(error, "message", None) or getattr(error, "format_message", str)()
        pytest.fail(f"{line!r}: {message}")


def fill(word: str) -> str:
    return re.sub(r"\$\w+", "x", word)


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_python_block_compiles_and_imports_what_is_there(page: Path) -> None:
    for block in blocks(page, "python"):
        compile(block, str(page), "exec")
        for line in re.findall(r"^(?:from agentcore_rl_toolkit\S* import .+)$", block, re.M):
            exec(line, {})  # our own page


def test_examples_that_need_nothing_run() -> None:
    run = 0
    for page in OWN:
        for block in blocks(page, "python"):
            if "assert " in block:
                exec(compile(block, str(page), "exec"), {})
                run += 1
    assert run, "at least one page has such an example"


def test_every_configuration_on_the_train_page_is_valid() -> None:
    shown = [yaml.safe_load(block) for block in blocks(DOCS / "train.md", "yaml")]
    whole = [
        one for one in shown if isinstance(one, dict) and {"agent", "data", "model"} <= set(one)
    ]
    assert {build(one).backend for one in whole} == set(get_args(Backend))


@pytest.mark.parametrize("page", OWN, ids=lambda page: page.stem)
def test_every_page_says_its_limits_and_what_to_do_when(page: Path) -> None:
    assert "limits" in anchors(page)
    if page.stem != "reference":  # it lists what the others explain
        assert "troubleshooting" in anchors(page)


def test_there_are_at_most_ten_pages_and_the_overview_leads_to_each() -> None:
    assert len(OWN) <= 10
    others = [page.name for page in OWN if page.name != "index.md"]
    for list_of_pages in ("index.md", "llms.txt"):
        text = (DOCS / list_of_pages).read_text(encoding="utf-8")
        assert [name for name in others if f"({name}" not in text] == []


def test_the_reference_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, str(DOCS / "make_reference.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr or "run: python docs/make_reference.py"
