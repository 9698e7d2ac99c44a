"""Runs one example on this machine, without a model: its oracle plays the model's part.

python examples/run.py NAME          # NAME is a folder beside this file; 'make example NAME=…'

Starts a local AgentCore Runtime, deploys the example's ``rl_app.py``, runs the shipped tasks as
rollouts, each in a session of its own, and prints their rewards. What a folder brings for that is
``oracle.py``: ``tasks()`` gives payloads and ``label(task)`` their names, ``reply(request)`` the
text and the tool calls that answer a chat request. Where needed also ``entries()``, the apps if
there are others than ``rl_app.py``, ``environment()``, variables for the sessions, and ``DIALECT``
when the agent does not speak OpenAI's.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import json
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ENTRY = "rl_app.py"
WIDTH = 80
"""Of a task's name on the screen."""
INIT_S = 120.0
"""For the imports of a framework on a machine that is busy."""
Reply = Callable[[dict[str, Any]], tuple[str, Sequence[tuple[str, Any]]]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0] if __doc__ else None)
    parser.add_argument("name", nargs="?", metavar="NAME", help=", ".join(names()))
    parser.add_argument("--concurrency", type=int, default=2)
    options = parser.parse_args()
    try:
        example = Example(options.name)
    except RuntimeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    started = time.perf_counter()
    print(
        f"{example.name} on a local runtime; a script plays the model\n\nreward  task", flush=True
    )
    rewards = []
    for label, reward in example.rollouts(options.concurrency):
        shown = label if len(label) <= WIDTH else f"{label[: WIDTH - 1]}…"
        print(f"{reward if isinstance(reward, float) else 'failed':<7} {shown}", flush=True)
        if not isinstance(reward, float):
            print(f"        {reward}", flush=True)
        rewards.append(reward)
    solved = sum(reward == 1.0 for reward in rewards)
    print(f"\n{solved} of {len(rewards)} solved in {time.perf_counter() - started:.0f} s")
    if solved == len(rewards):
        print("With a model of your own: examples/README.md")
    return 0 if rewards and solved == len(rewards) else 1


def names() -> list[str]:
    return sorted(file.parent.name for file in HERE.glob("*/oracle.py"))


class Example:
    """One that can be run here; RuntimeError says why another cannot, and what to do."""

    def __init__(self, name: str | None) -> None:
        if name not in names():
            raise RuntimeError(no_such_example(name))
        self.name = name
        (self.oracle,) = load(HERE / name, "oracle")
        self.tasks = list(self.oracle.tasks())
        self.entries = self.oracle.entries() if hasattr(self.oracle, "entries") else [ENTRY]
        environment = getattr(self.oracle, "environment", dict)
        self.environment: dict[str, str] = environment()

    def rollouts(self, concurrency: int = 2) -> Iterator[tuple[str, Any]]:
        """The reward of every shipped task, or what went wrong."""
        with contextlib.ExitStack() as stack:
            url = stack.enter_context(serve(self.oracle.reply))
            if hasattr(self.oracle, "DIALECT"):
                url = stack.enter_context(translated(url))
            for entry in self.entries:
                where = "" if entry == ENTRY else f"{entry.removesuffix('_rl_app.py')}: "
                for index, outcome in run_tasks(
                    self.name, entry, self.tasks, url, concurrency, self.environment
                ):
                    yield f"{where}{self.oracle.label(self.tasks[index])}", outcome


def no_such_example(name: str | None) -> str:
    choice = "".join(f"\n  make example NAME={each}" for each in names())
    if name and (HERE / name / "README.md").is_file():
        return (
            f"{name} has no tasks to run here: examples/{name}/README.md says what it is for. "
            f"Those that run on this machine:{choice}"
        )
    return f"{f'there is no example {name!r}' if name else 'no example named'}; there are:{choice}"


def run_tasks(
    name: str,
    entry: str,
    tasks: list[dict[str, Any]],
    model_url: str,
    concurrency: int,
    environment: dict[str, str] | None = None,
) -> Iterator[tuple[int, Any]]:
    from agentcore_rl_toolkit import RolloutClient

    with (
        deployed(name, entry, environment) as (url, arn),
        RolloutClient(
            agent_runtime_arn=arn,
            s3_bucket="rollouts",
            exp_id="example",
            base_url=model_url,
            model_id="scripted",
            endpoint_url=url,
        ) as client,
    ):
        for item in client.run_batch(tasks, concurrency, timeout=600):
            assert item.index is not None  # of a batch it never is
            yield item.index, (item.result or {}).get("rewards") if item.success else item.failure


@contextlib.contextmanager
def deployed(
    name: str, entry: str = ENTRY, environment: dict[str, str] | None = None
) -> Iterator[tuple[str, str]]:
    """A local runtime with one example on it: its URL and the agent's ARN."""
    from agentcore_rl_toolkit.cli.deploy import control_client, register
    from agentcore_rl_toolkit.runtime.thread import RuntimeThread

    with (
        tempfile.TemporaryDirectory(prefix="art-example-") as home,
        RuntimeThread(home=Path(home), init_timeout_s=INIT_S) as runtime,
    ):
        control = control_client(runtime.url)
        agent = register(control, name, HERE / name, entry, environment or {})
        yield runtime.url, agent["agentRuntimeArn"]


def load(folder: Path, *modules: str) -> list[Any]:
    """Modules of an example. Other folders have files of the same name, so nothing is kept."""
    own = {file.stem for file in folder.glob("*.py")}
    others = {name: sys.modules.pop(name) for name in own & sys.modules.keys()}
    sys.path.insert(0, str(folder))
    try:
        return [importlib.import_module(module) for module in modules]
    finally:
        sys.path.remove(str(folder))
        for name in own:
            sys.modules.pop(name, None)
        sys.modules.update(others)


@contextlib.contextmanager
def serve(reply: Reply) -> Iterator[str]:
    """An OpenAI-compatible server that answers by ``reply``; gives its base URL."""
    (scripted,) = load(HERE / "strands_math_agent", "scripted_model")
    script = scripted.Script()
    script.reply = lambda request: message(*reply(request))
    urls: list[str] = []
    ready, ended = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def run() -> None:
        running = await scripted.start(script=script)
        urls.append(running.url)
        ready.set()
        await ended.wait()
        await running.close()

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),), name="scripted model")
    thread.start()
    ready.wait(30)
    try:
        yield urls[0]
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
        loop.close()


@contextlib.contextmanager
def translated(model_url: str) -> Iterator[str]:
    """The same model behind a gateway, which speaks the other dialects, too."""
    from agentcore_rl_toolkit.gateway import ModelSpec
    from agentcore_rl_toolkit.gateway.session import OpenSession
    from agentcore_rl_toolkit.gateway.thread import GatewayThread

    with GatewayThread([ModelSpec.parse(f"*=chat:{model_url.removesuffix('/v1')}")]) as gateway:
        yield gateway.call(gateway.gateway.open_session(OpenSession())).base_url


def message(text: str, calls: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    said: dict[str, Any] = {"role": "assistant", "content": text or None}
    if calls:
        said["tool_calls"] = [
            {
                "id": f"call_{uuid.uuid4().hex[:12]}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for name, arguments in calls
        ]
    return said


if __name__ == "__main__":
    sys.exit(main())
