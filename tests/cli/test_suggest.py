"""The command after a deployment: its payload is one that the handler can read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentcore_rl_toolkit.cli.suggest import print_next

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
AGENT = """
@app.{decorator}
{kind} invoke({payload}, context=None):
    {body}
"""


def said(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    body: str,
    decorator: str = "rollout_entrypoint",
    kind: str = "def",
    payload: str = "payload",
) -> tuple[str, str]:
    script = tmp_path / "rl_app.py"
    script.write_text(AGENT.format(decorator=decorator, kind=kind, payload=payload, body=body))
    print_next(script, "my_agent", rollout=" --bucket b")
    out, err = capsys.readouterr()
    return out.splitlines()[-1].strip(), err.strip()


@pytest.mark.parametrize(
    "body",
    ["return f(payload['prompt'])", "return f(payload['prompt'], payload['answer'])"],
)
def test_an_agent_that_reads_a_prompt_gets_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], body: str
) -> None:
    command, _ = said(tmp_path, capsys, body, kind="async def")
    payload = command.split("'")[1]
    assert set(json.loads(payload)) == {"prompt", "answer"}, "most rewards need an answer"
    assert command.endswith("--rollout --base-url MODEL_URL --model-id MODEL --bucket b")


def test_an_agent_in_production_gets_no_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command, _ = said(tmp_path, capsys, "return f(payload['prompt'])", "entrypoint")
    assert command == """art invoke my_agent '{"prompt": "hello"}'"""


def test_fields_that_nobody_can_guess_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body = "return g(row['_rollout'], row['repo'], row['prompt'])"
    command, told = said(tmp_path, capsys, body, payload="row")
    assert command.startswith("art invoke my_agent @row.json --rollout")
    assert told == "row.json is one payload, a row of the agent's data: repo, prompt"


@pytest.mark.parametrize("body", ["return f(payload)", "return f(payload['prompt'], payload)"])
def test_a_payload_that_is_handed_on_may_need_anything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], body: str
) -> None:
    assert "@row.json" in said(tmp_path, capsys, body)[0]


@pytest.mark.parametrize("source", ["", "def f(:\n", "app.entrypoint(handler)\n"])
def test_a_script_that_tells_nothing_is_no_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], source: str
) -> None:
    script = tmp_path / "main.py"
    script.write_text(source)
    assert not print_next(script, "my_agent"), "whether it takes a model is not known"
    assert "art invoke my_agent @row.json" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("strands_math_agent", "'{"),
        ("claude_code_agent", "repo, prompt, checks"),
        ("strands_migration_agent", "repo_uri"),
        ("strands_officebench_agent", "evaluation and more"),
    ],
)
def test_our_own_agents(name: str, fields: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert print_next(EXAMPLES / name / "rl_app.py", name)
    assert fields in "".join(capsys.readouterr())
