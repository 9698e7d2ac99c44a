"""``make demo``: a batch of real rollouts of the Strands math agent, on this machine alone.

Starts a local AgentCore Runtime and a scripted model (an HTTP server that speaks chat
completions), deploys ``rl_app.py``, runs every problem as a rollout in a session of its own, shows
what happens, and stops everything again, also on Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
START_TIMEOUT_S = 60.0


def main() -> int:
    options = parse_arguments()
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="art-demo-")))
        os.environ["ART_HOME"] = str(home)
        say("starting a local AgentCore Runtime and a scripted model ...")
        model_url = stack.enter_context(scripted_model(options.error_rate))
        runtime_url = stack.enter_context(local_runtime(home))
        say(f"  runtime  {runtime_url}  (plain boto3 works against it)")
        say(f"  model    {model_url}")
        arn = deploy(runtime_url)
        say(f"  agent    {arn}")
        return run(arn, model_url, options.rollouts, options.concurrency)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else None)
    parser.add_argument("--rollouts", type=int, default=64)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--error-rate", type=float, default=0.2, help="of the scripted model")
    return parser.parse_args()


def run(arn: str, model_url: str, rollouts: int, concurrency: int) -> int:
    from make_data import problems

    from agentcore_rl_toolkit import RolloutClient
    from agentcore_rl_toolkit.cli.show import live_line

    rewards: list[float] = []
    failures: list[str] = []
    started = time.perf_counter()
    say(f"\n{rollouts} rollouts, {concurrency} sessions at a time")
    with (
        RolloutClient(
            agent_runtime_arn=arn,
            s3_bucket="rollouts",
            exp_id="demo",
            base_url=model_url,
            model_id="scripted",
            tps_limit=100,
        ) as client,
        live_line() as live,
    ):
        for item in client.run_batch(problems(rollouts), concurrency, timeout=120):
            if item.success and item.result is not None:
                rewards.append(float(item.result["rewards"]))
            else:
                failures.append(str(item.error))
            done = len(rewards) + len(failures)
            if live is not None:
                live.update(bar(done, rollouts, rewards, time.perf_counter() - started))
            elif done % 16 == 0:
                say("  " + bar(done, rollouts, rewards, time.perf_counter() - started))
        report = client.report()
    elapsed = time.perf_counter() - started
    say(f"\naccounted for: {report}")
    for error in failures[:3]:
        say(f"failed: {error}")
    say(f"{len(rewards)} rollouts in {elapsed:.1f} s, {len(failures)} failures")
    success = 100 * sum(rewards) / max(1, len(rewards))
    say(f"success: {success:.0f} % (the scripted model errs on purpose)")
    return 1 if failures else 0


def bar(done: int, total: int, rewards: list[float], elapsed: float) -> str:
    width = 32
    filled = width * done // total
    mean = sum(rewards) / len(rewards) if rewards else 0.0
    return (
        f"{'█' * filled}{'░' * (width - filled)} {done}/{total}"
        f"   mean reward {mean:.2f}   {done / elapsed:.0f}/s"
    )


def deploy(runtime_url: str) -> str:
    from agentcore_rl_toolkit.cli.deploy import control_client, register

    runtime = register(control_client(runtime_url), "strands_math_agent", HERE, "rl_app.py", {})
    return str(runtime["agentRuntimeArn"])


@contextmanager
def local_runtime(home: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "agentcore_rl_toolkit.runtime", "--port", "0"]
    with process(command, home / "runtime.log") as child:
        state = home / "runtime.json"
        wait_for(state.is_file, child, home / "runtime.log", "the runtime")
        yield str(json.loads(state.read_text())["endpoint_url"])


@contextmanager
def scripted_model(error_rate: float) -> Iterator[str]:
    command = [sys.executable, str(HERE / "scripted_model.py"), "--port", "0"]
    command += ["--error-rate", str(error_rate)]
    log = Path(os.environ["ART_HOME"]) / "model.log"
    with process(command, log) as child:
        wait_for(lambda: b"http://" in log.read_bytes(), child, log, "the scripted model")
        yield next(word for word in log.read_text().split() if word.startswith("http://"))


@contextmanager
def process(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as out:
        child = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)
    try:
        yield child
    finally:
        child.terminate()
        try:
            child.wait(15)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def wait_for(ready: object, child: subprocess.Popen[bytes], log: Path, what: str) -> None:
    assert callable(ready)
    deadline = time.monotonic() + START_TIMEOUT_S
    while not ready():
        if child.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"{what} did not start:\n{log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.05)


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("\nstopped; nothing is left running")
