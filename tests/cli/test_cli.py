"""The commands as a user types them, against a real runtime."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentcore_rl_toolkit.cli import aws, deploy, doctor
from agentcore_rl_toolkit.errors import ConfigError
from agentcore_rl_toolkit.runtime.thread import RuntimeThread

ROOT = Path(__file__).resolve().parents[2]
ECHO = ROOT / "tests" / "agents" / "echo_agent"


def art(*arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "agentcore_rl_toolkit.cli.main", *arguments],
        capture_output=True,
        text=True,
        input=stdin,
        timeout=100,
        env={**os.environ, "COLUMNS": "200", "NO_COLOR": "1"},
        check=False,
    )


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RuntimeThread]:
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ART_HOME", str(home))
        with RuntimeThread(port=0, home=home) as runtime:
            yield runtime


@pytest.fixture(scope="module")
def arn(runtime: RuntimeThread) -> str:
    done = art("deploy", str(ECHO), "--local")
    assert done.returncode == 0, done.stderr
    found = re.search(r"arn:aws:\S+", done.stdout)
    assert found is not None
    assert "art invoke echo_agent @row.json" in done.stdout, "the next command is printed"
    assert "--rollout --base-url" in done.stdout, "as this agent needs it"
    return found[0]


def test_deploying_again_makes_a_new_version(arn: str) -> None:
    done = art("deploy", str(ECHO / "rl_app.py"), "--local")
    assert "version 2" in done.stdout
    assert arn in done.stdout


def test_invoke_prints_the_production_answer(arn: str) -> None:
    done = art("invoke", arn, '{"return": {"answer": 42}}')
    assert json.loads(done.stdout) == {"answer": 42}


def test_invoke_as_rollout_prints_the_stored_result(arn: str) -> None:
    done = art("invoke", arn, "-", "--rollout", stdin='{"return": {"rewards": 0.5}}')
    result = json.loads(done.stdout)
    assert (result["rewards"], result["status_code"]) == (0.5, 200)


def test_invoke_says_so_when_a_result_has_no_rewards(arn: str) -> None:
    done = art("invoke", arn, '{"return": {"reward": 0.5}}', "--rollout")
    assert done.returncode == 0
    assert "the result has no 'rewards'" in done.stderr


def test_invoke_tells_what_the_agent_said(arn: str) -> None:
    done = art("invoke", arn, '{"raise": "no such file"}')
    assert done.returncode == 1
    assert "Agent said: no such file" in done.stderr
    assert "CloudWatch" not in done.stderr, "its log is not on AWS"
    assert "max retries" not in done.stderr, "boto3's words"
    log = re.search(r"art logs ([^\s.]+)", done.stderr)
    assert log is not None
    assert art("logs", log[1]).returncode == 0


def test_an_agent_is_found_by_its_name(arn: str, tmp_path: Path) -> None:
    assert json.loads(art("invoke", "echo_agent", '{"return": {"x": 1}}').stdout) == {"x": 1}
    data, out = tmp_path / "data.jsonl", tmp_path / "out.jsonl"
    data.write_text('{"return": {"rewards": 1}}\n')
    done = art("eval", str(data), "--agent", "echo_agent", "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert json.loads(out.read_text())["agent"] == arn
    unknown = art("invoke", "eco_agent", "{}")
    assert "no agent 'eco_agent', it has" in unknown.stderr
    assert "echo_agent" in unknown.stderr


def test_a_model_that_is_not_there_is_one_sentence(runtime: RuntimeThread, tmp_path: Path) -> None:
    body = "import openai; openai.OpenAI(base_url=payload['_rollout']['base_url'], api_key='x'"
    body += ", max_retries=0).models.list()"
    arn = deployed(agent_folder(tmp_path / "calls_model", body))
    model = ["--base-url", "http://127.0.0.1:9/v1", "--model-id", "m"]
    done = art("invoke", arn, "{}", "--rollout", *model)
    assert done.returncode == 1
    assert done.stderr.startswith("error: model: ")
    assert "http://127.0.0.1:9/v1" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Traceback" in json.loads(done.stdout)["traceback"], "programs have it"

    data, out = tmp_path / "data.jsonl", tmp_path / "out.jsonl"
    data.write_text('{"x": 1}\n{"x": 2}\n')
    failed = art("eval", str(data), "--agent", arn, "--out", str(out), "--retry", "0", *model)
    assert failed.returncode == 1
    assert "2/2 done, 0 succeeded, 2 failed" in failed.stdout
    assert "2 x model: " in failed.stdout
    assert "art doctor --from-session" in failed.stdout
    assert "2 did not run to an end" in failed.stderr
    assert sorted(path.name for path in tmp_path.glob("out*")) == ["out.jsonl"]


def test_progress_is_said_where_there_is_no_terminal(runtime: RuntimeThread) -> None:
    done = art("deploy", str(ECHO), "--local", "--name", "said")
    assert "starting echo_agent/rl_app.py once" in done.stderr


def test_eval_writes_a_line_per_row_and_sums_up(arn: str, tmp_path: Path) -> None:
    data, out = tmp_path / "data.jsonl", tmp_path / "out.jsonl"
    rows = [{"return": {"rewards": 1}}, {"return": {"rewards": 0}}, {"raise": "lost its way"}]
    data.write_text("\n".join(json.dumps(row) for row in rows))
    done = art("eval", str(data), "--agent", arn, "--out", str(out))
    assert done.returncode == 0, done.stderr
    entries = {e["index"]: e for e in map(json.loads, out.read_text().splitlines())}
    assert [entries[i]["success"] for i in range(3)] == [True, True, False]
    assert entries[2]["failure"] == "agent"
    assert "3/3 done, 2 succeeded, 1 failed, mean reward 0.500" in done.stdout
    assert "lost its way" in done.stdout

    again = art("eval", str(data), "--agent", arn, "--out", str(out))
    assert again.returncode == 0
    assert "2 of 3 rows are done" in again.stderr, "what failed is tried again"
    assert len(out.read_text().splitlines()) == 3, "a line a row"

    data.write_text(json.dumps({"return": {"rewards": 7}}) + "\n")
    other = art("eval", str(data), "--agent", arn, "--out", str(out))
    assert other.returncode == 1
    assert "holds results of other data" in other.stderr
    assert "--overwrite" in other.stderr
    anew = art("eval", str(data), "--agent", arn, "--out", str(out), "--overwrite")
    assert anew.returncode == 0, anew.stderr
    assert [json.loads(line)["reward"] for line in out.read_text().splitlines()] == [7.0]


def test_doctor_finds_the_runtime_and_the_isolation_levels(runtime: RuntimeThread) -> None:
    done = art("doctor", "--json")
    checks = {check["what"]: check for check in json.loads(done.stdout)}
    assert checks["local runtime"]["state"] == "ok"
    assert runtime.url in checks["local runtime"]["said"]
    assert "used by default" in " ".join(c["said"] for c in checks.values())


def test_only_what_every_command_needs_makes_the_doctor_fail() -> None:
    assert doctor.check_extra("train", ["no_such_module"]).state == "note"
    assert doctor.check_extra("local", ["no_such_module"]).state == "no"


def test_requirements_are_looked_for_in_the_interpreter_of_the_runtime(
    runtime: RuntimeThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert deploy.python_of(runtime.url) is None, "it is this one"
    about = {"python": "/its/own/python"}
    monkeypatch.setattr(deploy, "about_runtime", lambda url: about)
    assert deploy.python_of(runtime.url) == "/its/own/python"


ON_AWS = "arn:aws:bedrock-agentcore:us-west-2:123456789012:runtime/agent-AbCdEf1234"
BAD_CALLS = [
    pytest.param(["invoke", "arn:nonsense", "{}"], "is not an AgentCore Runtime ARN", id="bad-arn"),
    pytest.param(["invoke", "ARN", "[1]"], "must be a JSON object", id="payload-not-object"),
    pytest.param(
        ["invoke", "ARN", "{'prompt': 1}"],
        """is not JSON, such as '{"prompt": "hello"}'""",
        id="payload-not-json",
    ),
    pytest.param(["invoke", "ARN", "@/no/such"], "cannot be read", id="payload-file-missing"),
    pytest.param(
        ["deploy", "/no/such", "--local"], "make one with 'art init'", id="folder-missing"
    ),
    pytest.param(["deploy", "/tmp", "--local"], "no rl_app.py", id="folder-without-agent"),
    pytest.param(["deploy", "."], "say where", id="neither-local-nor-aws"),
    pytest.param(
        ["deploy", str(ECHO), "--local", "--plan"], "goes with --aws", id="option-of-the-other"
    ),
    pytest.param(
        ["deploy", str(ROOT / "README.md"), "--local"], "not a Python script", id="not-a-script"
    ),
    pytest.param(
        ["deploy", str(ECHO), "--local", "--name", "bad name!"], "a runtime's name", id="bad-name"
    ),
    pytest.param(
        ["deploy", str(ECHO), "--local", "--endpoint", "foo"], "foo", id="endpoint-not-a-url"
    ),
    pytest.param(["eval", "/no/such", "--agent", "ARN"], "cannot be read", id="data-missing"),
    pytest.param(
        ["deploy", str(ECHO), "--local", "--env", "ART_LIMIT=memory_mb=2048"],
        "error: ART_LIMIT is no setting of an agent: did you mean ART_LIMITS?",
        id="a-setting-that-is-none",
    ),
    pytest.param(
        ["invoke", "ARN", "{}", "--base-url", "127.0.0.1:8001/v1"],
        "is it http://127.0.0.1:8001/v1 ?",
        id="base-url-without-http",
    ),
    pytest.param(
        ["eval", "/no/such", "--agent", "ARN", "--base-url", "htp://model/v1"],
        "is it http://model/v1 ?",
        id="base-url-of-no-scheme",
    ),
    pytest.param(
        ["invoke", "ARN", "{}", "--rollout", "--session-id", "short"], "33", id="short-session-id"
    ),
    pytest.param(["invoke", ON_AWS, "{}", "--rollout"], "needs --bucket", id="no-bucket-on-aws"),
    pytest.param(["eval", __file__, "--agent", ON_AWS], "needs --bucket", id="eval-without-bucket"),
]


@pytest.mark.parametrize(("call", "message"), BAD_CALLS)
def test_a_wrong_call_says_what_to_do(arn: str, call: list[str], message: str) -> None:
    done = art(*(arn if part == "ARN" else part for part in call))
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_an_agent_that_does_not_import_shows_its_traceback(
    runtime: RuntimeThread, tmp_path: Path
) -> None:
    folder = tmp_path / "broken_agent"
    folder.mkdir()
    (folder / "rl_app.py").write_text("import no_such_module\n")
    done = art("deploy", str(folder), "--local")
    assert done.returncode == 1
    assert "No module named 'no_such_module'" in done.stderr
    assert "belongs into the agent's requirements.txt" in done.stderr


def test_without_a_runtime_the_user_is_told_to_start_one(tmp_path: Path) -> None:
    done = art("deploy", str(ECHO), "--local", "--endpoint", "http://127.0.0.1:9")
    assert done.returncode == 1
    assert "art runtime serve" in done.stderr


def test_a_failed_rollout_ends_invoke_with_an_error(arn: str) -> None:
    done = art("invoke", arn, '{"raise": "no luck"}', "--rollout")
    assert done.returncode == 1
    assert json.loads(done.stdout)["stop_reason"] == "no luck"
    assert "\nRuntimeError: no luck\n" in done.stderr, "the traceback, as lines"
    assert "agent: status 500: no luck" in done.stderr


def test_eval_does_not_mix_models_or_touch_its_input(arn: str, tmp_path: Path) -> None:
    data, out = tmp_path / "data.jsonl", tmp_path / "out.jsonl"
    data.write_text(json.dumps({"return": {"rewards": 1}}) + "\n")
    assert art("eval", str(data), "--agent", arn, "--out", str(out)).returncode == 0
    mixed = art("eval", str(data), "--agent", arn, "--out", str(out), "--model-id", "other")
    assert mixed.returncode == 1
    assert "choose another --out" in mixed.stderr
    same = art("eval", str(data), "--agent", arn, "--out", str(data))
    assert same.returncode == 1
    assert len(data.read_text().splitlines()) == 1


def agent_folder(folder: Path, body: str) -> Path:
    folder.mkdir(exist_ok=True)
    lines = [
        "from agentcore_rl_toolkit import AgentCoreRLApp",
        "",
        "app = AgentCoreRLApp()",
        "",
        "",
    ]
    lines += ["@app.rollout_entrypoint", "def run(payload):", f"    {body}", ""]
    (folder / "rl_app.py").write_text("\n".join(lines) + "\napp.run()\n")
    return folder


def deployed(folder: Path) -> str:
    done = art("deploy", str(folder), "--local")
    found = re.search(r"arn:aws:\S+", done.stdout)
    assert found is not None, done.stderr
    return found[0]


def test_eval_tries_a_mended_agent_again_and_does_not_mix_versions(
    runtime: RuntimeThread, tmp_path: Path
) -> None:
    data, out = tmp_path / "data.jsonl", tmp_path / "out.jsonl"
    data.write_text('{"x": 1}\n{"x": 2}\n')
    folder = tmp_path / "mended"
    command = ["eval", str(data), "--out", str(out)]
    arn = deployed(agent_folder(folder, "return {'rewards': 1 / 0}"))
    broken = art(*command, "--agent", arn)
    assert broken.returncode == 1, "nothing succeeded"
    assert "2 x agent: status 500: ZeroDivisionError: division by zero" in broken.stdout

    assert deployed(agent_folder(folder, "return {'rewards': [0.5, 1.5]}")) == arn
    mended = art(*command, "--agent", arn)
    assert mended.returncode == 0, mended.stderr
    assert "2/2 done, 2 succeeded, mean reward 2.000" in mended.stdout
    assert {json.loads(line)["version"] for line in out.read_text().splitlines()} == {"2"}

    (folder / "rl_app.py").write_text("raise SystemExit(1)\n")
    assert art("deploy", str(folder), "--local").returncode == 1
    again = art(*command, "--agent", arn)
    assert again.returncode == 0, "the version that answers is still the second"

    assert deployed(agent_folder(folder, "return {'rewards': 0.0}")) == arn
    mixed = art(*command, "--agent", arn)
    assert mixed.returncode == 1
    assert "version 2" in mixed.stderr
    assert "another --out" in mixed.stderr


@pytest.mark.parametrize(
    ("row", "message"),
    [
        pytest.param({"return": {"answer": 1}}, "no 'rewards'", id="no-rewards"),
        pytest.param({"return": {"rewards": "good"}}, "return a number", id="rewards-are-text"),
        pytest.param({"return": 5}, "not a dict", id="no-dict"),
    ],
)
def test_eval_stops_at_what_would_recur_on_every_row(
    arn: str, tmp_path: Path, row: dict[str, object], message: str
) -> None:
    data, out = tmp_path / "data.jsonl", tmp_path / "out.jsonl"
    data.write_text((json.dumps(row) + "\n") * 9)
    done = art("eval", str(data), "--agent", arn, "--out", str(out), "--concurrency", "1")
    assert done.returncode == 1
    assert "error: row 1: contract: " in done.stderr
    assert message in done.stderr
    assert len(out.read_text().splitlines()) == 1


def test_without_a_model_the_command_says_what_to_add_and_goes_on_with_it(
    runtime: RuntimeThread, tmp_path: Path
) -> None:
    body = "return {'rewards': float(payload['_rollout']['base_url'] > '')}"
    arn = deployed(agent_folder(tmp_path / "asks_model", body))
    invoked = art("invoke", arn, "{}", "--rollout")
    assert "no --base-url given" in invoked.stderr
    assert "agent: status 500: KeyError: 'base_url'" in invoked.stderr

    data, out = tmp_path / "data.jsonl", tmp_path / "out.jsonl"
    data.write_text('{"x": 1}\n')
    command = ["eval", str(data), "--agent", arn, "--out", str(out)]
    bare = art(*command)
    assert bare.returncode == 1
    assert "no --base-url given" in bare.stderr
    full = art(*command, "--base-url", "http://127.0.0.1:9/v1", "--model-id", "m")
    assert full.returncode == 0, full.stderr


@pytest.fixture
def no_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REGION", "DEFAULT_REGION", "PROFILE", "ACCESS_KEY_ID", "SECRET_ACCESS_KEY"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    for name in ("CONFIG_FILE", "SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(f"AWS_{name}", "/nonexistent")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.mark.usefixtures("no_aws")
def test_without_aws_a_name_to_destroy_is_a_local_one(
    runtime: RuntimeThread, capsys: pytest.CaptureFixture[str]
) -> None:
    art("deploy", str(ECHO), "--local", "--name", "goes")
    aws.destroy("goes")
    assert "on the local runtime\nnothing was done" in capsys.readouterr().err
    aws.destroy("goes", yes=True)
    with pytest.raises(ConfigError, match=r"no AWS region.*The local runtime has no 'goes'"):
        aws.destroy("goes")
    with pytest.raises(ConfigError, match="nothing of 'goes' here: is it another runtime's"):
        aws.destroy("goes", endpoint=runtime.url)


@pytest.mark.usefixtures("no_aws")
def test_a_name_to_destroy_on_aws_never_ends_the_local_one(arn: str) -> None:
    with pytest.raises(ConfigError, match=f"no AWS credentials.*art destroy {arn}"):
        aws.destroy("echo_agent", region="us-west-2", yes=True)


def test_ctrl_c_while_modules_are_read_is_an_end_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt\n")
    done = subprocess.run(
        [sys.executable, "-m", "agentcore_rl_toolkit.cli.main", "runs"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (130, "")
