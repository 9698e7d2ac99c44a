"""Writes ``reference.md`` from the code: public names, commands, settings.

python docs/make_reference.py            writes it
python docs/make_reference.py --check    exits with 1 when it is not up to date
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import importlib
import inspect
import itertools
import re
import sys
import textwrap
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

import agentcore_rl_toolkit
from agentcore_rl_toolkit.cli.app import app
from agentcore_rl_toolkit.trainer import config, setting

TARGET = Path(__file__).with_name("reference.md")
MODULES = ["gateway", "collect", "sandbox", "backends.slime"]
"""With a public door of their own, besides the toolkit's."""
SECTIONS = [
    ("agent", config.AgentConfig),
    ("data", config.DataConfig),
    ("model", config.ModelConfig),
    ("rollout", config.RolloutSection),
    ("train", setting.TrainSetting),
    ("train", config.LoopSetting),
    ("train.lora", setting.LoraSetting),
    ("track", config.TrackConfig),
]
HEAD = """# Reference

Made from the code by `python docs/make_reference.py`; a test checks that it is up to date. The pages before this one explain; this one lists.

- [Public names](#public-names)
- [Commands](#commands)
- [Settings of art train](#settings-of-art-train)
- [Variables](#variables)
- [Limits](#limits)
"""  # noqa: E501
TAIL = """
## Variables

| variable | read by | meaning |
|---|---|---|
| `ART_HOME` | all | state folder of the local parts; default `~/.local/state/agentcore-rl-toolkit` |
| `ART_ACCESS_KEYS` | runtime, client, `art` | file of access keys of a local runtime beyond loopback |
| `ART_ADMIN_TOKEN` | `art gateway serve` | admin token, in place of a new one |
| `ART_DASHBOARD_TOKEN` | `art dashboard` | token of the page beyond loopback |
| `AWS_ENDPOINT_URL`, `AWS_ENDPOINT_URL_BEDROCK_AGENTCORE` | client, `art` | URL of the local runtime, in place of the one that is found |
| `ART_ISOLATION`, `ART_NETWORK`, `ART_ALLOW`, `ART_PYTHON`, `ART_ZYGOTE`, `ART_FREEZE_S`, `ART_LIMITS`, `ART_INIT_S` | local runtime | settings of one agent, given with `art deploy --local --env`; see [Local runtime](local-runtime.md#settings-of-an-agent) |

## Limits

Names that are not on this page may change in any release. Those that are keep their parameters; new ones are keyword-only.
"""  # noqa: E501


def main() -> int:
    text = make()
    if "--check" in sys.argv:
        return int(TARGET.read_text(encoding="utf-8") != text)
    TARGET.write_text(text, encoding="utf-8")
    return 0


def make() -> str:
    parts = [HEAD, *public_names(), "\n## Commands\n", *commands(), *settings(), TAIL]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts)).rstrip() + "\n"


# --- names ------------------------------------------------------------------------------------


def public_names() -> Iterator[str]:
    yield "\n## Public names\n"
    yield "From `agentcore_rl_toolkit`, with the base install:\n"
    for name in agentcore_rl_toolkit.__all__:
        yield from describe(name, getattr(agentcore_rl_toolkit, name))
    for module in MODULES:
        found = importlib.import_module(f"agentcore_rl_toolkit.{module}")
        here = [n for n in found.__all__ if n not in agentcore_rl_toolkit.__all__]
        yield f"\nFrom `agentcore_rl_toolkit.{module}`:\n"
        for name in sorted(here):
            yield from describe(name, getattr(found, name))


def describe(name: str, value: Any) -> Iterator[str]:
    yield f"### {name}\n"
    if inspect.isclass(value) and issubclass(value, typing.cast(type, BaseException)):
        bases = ", ".join(base.__name__ for base in value.__bases__)
        yield f"Exception, a kind of {bases}. {first_lines(value)}".rstrip() + "\n"
        return
    if inspect.isclass(value) and issubclass(value, enum.Enum):
        yield f"One of {', '.join(f'`{one.value}`' for one in value)}. {first_lines(value)}\n"
        return
    if not inspect.isclass(value):
        yield f"```\n{call(name, value)}\n```\n\n{first_lines(value)}\n"
        return
    own = list(members(value))
    lines = [call(name, value).removesuffix(" -> None")]
    lines += [textwrap.indent(said, "    ") for _, said, _ in own]
    yield "```\n" + "\n".join(lines) + "\n```\n"
    yield first_lines(value) + "\n"
    noted = [(n, note) for n, _, note in own if note]
    if dataclasses.is_dataclass(value):
        noted = [*field_notes(value).items(), *noted]
    yield "\n".join(f"- `{n}`: {note}" for n, note in noted) + "\n"


def members(value: type) -> Iterator[tuple[str, str, str]]:
    """Public ones that are defined here: name, how it is written, what it does."""
    for base in reversed(value.__mro__):
        if not base.__module__.startswith("agentcore_rl_toolkit"):
            continue
        for name, member in vars(base).items():
            if name.startswith("_"):
                continue
            if isinstance(member, property):
                result = call("", member.fget).rpartition("-> ")[2]
                yield name, f".{name}: {result}", first_lines(member)
            elif inspect.isfunction(inspect.unwrap(member)) or isinstance(member, classmethod):
                bound = getattr(value, name)
                mark = "await " if inspect.iscoroutinefunction(bound) else ""
                yield name, f"{mark}.{call(name, bound)}", first_lines(bound)


def call(name: str, value: Any) -> str:
    try:
        signature = str(inspect.signature(value)).replace("'", "")
    except (TypeError, ValueError):
        return name
    signature = re.sub(r"\(self(, )?", "(", signature)
    signature = re.sub(r"<factory>|<object object at [^>]*>", "…", signature)
    signature = re.sub(r"ForwardRef\(\"?([^()\"]*)\"?\)", r"\1", signature)
    signature = re.sub(r"frozenset\(\{([^}]*)\}\)", in_order, signature)
    signature = re.sub(r"(?:[a-z_]+\.)+([A-Z])", r"\1", signature)  # types by their own names
    if len(name) + len(signature) <= 96:
        return name + signature
    inner = signature[1:].rpartition(") ->")
    body, result = (inner[0], f" ->{inner[2]}") if inner[1] else (signature[1:-1], "")
    parts = split(body)
    return f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){result}"


def in_order(found: re.Match[str]) -> str:
    """A set's own order is another one in every process."""
    return "{" + ", ".join(sorted(found[1].split(", "))) + "}"


def split(text: str) -> list[str]:
    """At commas that no bracket holds."""
    parts, depth, last = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "([{") - (c in ")]}")
        if c == "," and depth == 0:
            parts.append(text[last:i].strip())
            last = i + 1
    return [*parts, text[last:].strip()]


def first_lines(value: Any) -> str:
    """The first paragraph of its docstring; of its module's, for the class a module is named by."""
    text = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
    if not text or text.startswith(f"{getattr(value, '__name__', '')}("):  # dataclass's own
        module = value.__module__ if inspect.isclass(value) else ""
        named_by = value.__name__.lower().endswith(module.rpartition(".")[2]) if module else False
        text = sys.modules[module].__doc__ if named_by else ""
    return " ".join(textwrap.dedent(text or "").strip().split("\n\n")[0].split()).replace("``", "`")


# --- commands ---------------------------------------------------------------------------------


def commands() -> Iterator[str]:
    root = typer.main.get_command(app)
    for path, command in walk(root, ["art"]):
        if getattr(command, "commands", None):
            continue
        arguments = [p for p in command.params if p.param_type_name == "argument"]
        words = [p.name.upper() if p.required else f"[{p.name.upper()}]" for p in arguments]
        options = [p for p in command.params if p.required and p not in arguments]
        names = " ".join([*words, *(f"{p.opts[0]} {p.name.upper()}" for p in options)])
        yield f"### {' '.join(path)}\n"
        yield f"`{' '.join([*path, names]).strip()}`: {' '.join((command.help or '').split())}\n"
        rows = [option_row(p) for p in command.params if p.name != "help"]
        if rows:
            yield "| option | meaning | default |\n|---|---|---|\n" + "\n".join(rows) + "\n"


def walk(command: Any, path: list[str]) -> Iterator[tuple[list[str], Any]]:
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        yield from walk(child, [*path, name])


def option_row(parameter: Any) -> str:
    is_option = parameter.param_type_name == "option"
    names = [*parameter.opts, *parameter.secondary_opts] if is_option else [parameter.name.upper()]
    default = parameter.default
    shown = "" if callable(default) or default in (None, False, "") else f"`{shorten(default)}`"
    if parameter.required:
        shown = "needed"
    text = (parameter.help or "").replace("|", "\\|")
    return f"| {', '.join(f'`{n}`' for n in names)} | {text} | {shown} |"


# --- settings ---------------------------------------------------------------------------------


def settings() -> Iterator[str]:
    yield "\n## Settings of art train\n"
    yield "| setting | default | meaning |\n|---|---|---|"
    for section, kind in SECTIONS:
        notes = field_notes(kind)
        for field in dataclasses.fields(kind):
            yield setting_row(f"{section}.{field.name}", field, notes.get(field.name, ""))
    notes = field_notes(config.TrainConfig)
    known = {section for section, _ in SECTIONS} | {"loop"}
    for field in dataclasses.fields(config.TrainConfig):
        if field.name not in known:
            note = notes.get(field.name, "")
            if not note and field.name != "backend":
                note = f"Passed on to the backend `{field.name}`."
            yield setting_row(field.name, field, note)
    choices = ", ".join(f"`{name}`" for name in typing.get_args(config.Backend))
    yield f"\n`backend` is one of {choices}.\n"


def setting_row(name: str, field: Any, note: str) -> str:
    if field.default is not dataclasses.MISSING:
        default = "none" if field.default is None else f"`{shorten(field.default)}`"
    elif field.default_factory is not dataclasses.MISSING:
        default = f"`{shorten(field.default_factory())}`"
    else:
        default = "needed"
    return f"| `{name}` | {default} | {note} |"


def shorten(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text.replace("|", "\\|")


def field_notes(kind: type) -> dict[str, str]:
    """Docstrings under fields, which Python itself does not keep."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    body = typing.cast(ast.ClassDef, tree.body[0]).body
    found = {}
    for field, after in itertools.pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(after, ast.Expr):
            text = ast.literal_eval(after.value)
            name = typing.cast(ast.Name, field.target).id
            found[name] = " ".join(text.split()).replace("``", "`").replace("|", "\\|")
    return found


if __name__ == "__main__":
    sys.exit(main())
