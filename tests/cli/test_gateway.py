"""``art gateway`` as a user types it: serve, call with the openai SDK, export."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from agentcore_rl_toolkit.gateway.session import OpenSession
from agentcore_rl_toolkit.gateway.setting import GatewaySettings, ModelSpec
from agentcore_rl_toolkit.gateway.thread import GatewayThread

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "gateway"))
from fake_vllm import FakeVLLM

ART = [sys.executable, "-m", "agentcore_rl_toolkit.cli.main", "gateway"]
ENV = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}


@pytest.fixture
def engine_url() -> Iterator[str]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    engine = FakeVLLM()
    asyncio.run_coroutine_threadsafe(engine.__aenter__(), loop).result(20)
    yield engine.url
    asyncio.run_coroutine_threadsafe(engine.__aexit__(None, None, None), loop).result(20)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.mark.parametrize("workers", ["1", "2"], ids=["one process", "two workers"])
def test_a_served_session_can_be_exported_as_rows(
    engine_url: str, tmp_path: Path, workers: str
) -> None:
    run_dir, out = tmp_path / "run", tmp_path / "rows.jsonl"
    command = [*ART, "serve", "--model", f"policy=vllm:{engine_url}", "--run-dir", str(run_dir)]
    command += ["--workers", workers]
    child = subprocess.Popen([*command, "--admin-token", "t"], stdout=subprocess.PIPE, env=ENV)
    assert child.stdout is not None
    with child, child.stdout:
        banner = child.stdout.readline().decode()
        url = re.search(r"http://\S+", banner)
        assert url is not None, banner
        import urllib.request

        request = urllib.request.Request(
            f"{url[0]}/sessions", data=b"{}", headers={"Authorization": "Bearer t"}, method="POST"
        )
        with urllib.request.urlopen(request) as answer:
            session = json.load(answer)
        with openai.OpenAI(base_url=session["base_url"], api_key="EMPTY") as client:
            reply = client.chat.completions.create(
                model="policy", messages=[{"role": "user", "content": "hello"}]
            )
        assert reply.choices[0].message.content
        child.send_signal(signal.SIGINT)
        child.stdout.read()
        assert child.wait(20) == 0
    done = subprocess.run(
        [*ART, "export", str(run_dir), "--out", str(out)], capture_output=True, text=True, env=ENV,
        check=False,
    )  # fmt: skip
    assert "1 rows in" in done.stdout, done.stderr
    row = json.loads(out.read_text())
    assert sum(row["loss_mask"]) > 0
    assert len(row["token_ids"]) == len(row["loss_mask"]) == len(row["logprobs"])


def test_a_recorded_run_is_served_again_without_its_engine(engine_url: str, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    settings = GatewaySettings(run_dir=run_dir, fsync=False)
    with GatewayThread([ModelSpec.parse(f"policy=vllm:{engine_url}")], settings) as thread:
        opened = thread.call(thread.gateway.open_session(OpenSession(session_id="s")))
        recorded = say(opened.base_url)
    command = [*ART, "replay", str(run_dir), "--session", "s", "--out", str(tmp_path / "again")]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, env=ENV)
    assert child.stdout is not None
    with child, child.stdout:
        url = re.search(r"http://\S+", child.stdout.readline().decode())
        assert url is not None
        assert say(f"{url[0]}/sessions/any/v1") == recorded
        child.send_signal(signal.SIGINT)
        assert f"base_url is {url[0]}/sessions/ID/v1" in child.stdout.read().decode()
        assert child.wait(20) == 0


def test_a_recording_of_a_model_that_is_not_trained_says_why_it_has_no_rows(
    engine_url: str, tmp_path: Path
) -> None:
    run_dir, out = tmp_path / "run", tmp_path / "rows.jsonl"
    spec = ModelSpec.parse(f"policy=chat:{engine_url}")
    with GatewayThread([spec], GatewaySettings(run_dir=run_dir, fsync=False)) as thread:
        opened = thread.call(thread.gateway.open_session(OpenSession(session_id="s")))
        assert say(opened.base_url)
    done = subprocess.run(
        [*ART, "export", str(run_dir), "--out", str(out)], capture_output=True, text=True, env=ENV,
        check=False,
    )  # fmt: skip
    assert "0 rows in" in done.stdout, done.stderr
    assert "1 turns are recorded, all of models that are not trained (policy)" in done.stderr


def say(base_url: str) -> str | None:
    with openai.OpenAI(base_url=base_url, api_key="EMPTY") as client:
        reply = client.chat.completions.create(
            model="policy", messages=[{"role": "user", "content": "hello"}]
        )
    return reply.choices[0].message.content


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["serve", "--model", "nonsense"], "write NAME=KIND:URL"),
        (["export", "/tmp"], "not a run folder"),
        (["replay", "/tmp"], "not a run folder"),
        (["serve", "--model", "p=vllm:http://x", "--normalise", "dates"], "billing, cache_marks"),
        (
            ["serve", "--model", "p=sglang:http://x"],
            "error: model 'p' has a sglang engine, which "
            "takes token ids: name its tokenizer (--tokenizer FOLDER)",
        ),
        (["serve", "--model", "p=sglang:http://x", "--tokenizer", "/nowhere"], "is not a folder"),
        (
            ["serve", "--model", "p=sglang:http://x", "--tokenizer", "models/policy"],
            "error: --tokenizer models/policy is not a folder",
        ),
    ],
    ids=[
        *("bad-model", "not-a-run-folder", "not-a-recording", "no-such-rule"),
        *("no-tokenizer", "no-such-tokenizer", "no-such-tokenizer-here"),
    ],
)
def test_a_wrong_call_says_what_to_do(arguments: list[str], message: str) -> None:
    done = subprocess.run([*ART, *arguments], capture_output=True, text=True, env=ENV, check=False)
    assert done.returncode == 1
    assert message in done.stderr
