"""The app example: code that calls apps, in a world that it cannot reach into."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from . import snoop
from .conftest import EXAMPLES, signals_are_scoped

FOLDER = EXAMPLES / "strands_appworld_agent"
APPWORLD = Path.home() / ".cache/agentcore-rl-toolkit/appworld/bin/python"


class Example:
    def __init__(self, runner: ModuleType) -> None:
        names = ("oracle", "reward", "world", "tasks")
        self.oracle, self.reward, self.world, self.tasks = runner.load(FOLDER, *names)
        self.rows = {row["task_id"].partition("_")[0]: row for row in self.tasks.rows()}

    def play(self, row: dict[str, Any], *codes: str) -> tuple[float, list[str]]:
        with closing(self.world.make_world(row)) as world:
            said = [world.execute(code) for code in codes]
            return self.reward.AppReward()(world=world), said

    def solve(self, row: dict[str, Any]) -> list[str]:
        return list(self.oracle.steps(row["instruction"]))


@pytest.fixture(scope="module")
def example(runner: ModuleType) -> Example:
    return Example(runner)


KINDS = ("paid", "send", "song", "loans")
DONE = "apis.supervisor.complete_task()\n"


@pytest.mark.parametrize("kind", KINDS)
def test_the_oracle_does_every_task_and_nothing_is_worth_nothing(
    example: Example, kind: str
) -> None:
    row = example.rows[kind]
    reward, said = example.play(row, *example.solve(row))
    assert reward == 1.0, said
    assert example.play(row)[0] == 0.0
    assert example.play(row, DONE)[0] == 0.0


def test_another_seed_gives_other_phones_that_the_oracle_solves_too(example: Example) -> None:
    rows = list(example.tasks.rows(8, seed=5))
    assert [example.play(row, *example.solve(row))[0] for row in rows] == [1.0] * 8
    assert len({str(row["phone"]) for row in rows}) == 8
    assert len({row["task_id"] for row in rows}) == 8


def test_no_answer_of_a_drawn_task_is_there_without_work(example: Example) -> None:
    for seed in range(1, 60):
        for row in example.tasks.rows(4, seed):
            answer, changed = row["ground_truth"]["answer"], row["ground_truth"]["changed"]
            glances = {0, *(t["amount"] for t in row["phone"]["transactions"])}
            assert answer not in glances if answer is not None else changed


CHEATS = {
    "the-world-imported-and-its-checks-replaced": (
        f"import sys; sys.path.insert(0, {str(FOLDER)!r})\n"
        "import world\nworld.SmallWorld.evaluate = lambda self: world.TestTracker(['x'], [])\n"
        + DONE
    ),
    "the-expected-tasks-replayed-from-the-agent-s-folder": (
        f"import sys; sys.path.insert(0, {str(FOLDER)!r})\n"
        "import world\nfor task in getattr(world, 'TASKS', {}).values():\n"
        "    for app, name, arguments in task.actions:\n"
        "        getattr(getattr(apis, app), name)(**arguments)\n" + DONE
    ),
    "an-answer-written-to-the-pipe": (
        "import os\nfor fd in range(3, 9):\n"
        '    try: os.write(fd, b\'{"output": "done"}\\n\')\n    except OSError: pass\n' + DONE
    ),
    "the-data-reached-through-an-api": "apis.data.update(completed=True)\n" + DONE,
    "private-functions": "apis.wallet.__init__()\napis.supervisor._login(app='x')\n" + DONE,
    "process-ended": "import os; os._exit(0)",
}


@pytest.mark.parametrize("cheat", CHEATS)
def test_a_cheat_is_worth_nothing(example: Example, cheat: str) -> None:
    assert example.play(example.rows["send"], CHEATS[cheat])[0] == 0.0


def test_trying_several_answers_or_payments_is_worth_nothing(example: Example) -> None:
    row = example.rows["send"]
    *before, code = example.solve(row)
    assert example.play(row, *before, code, code)[0] == 0.0, "paid twice"
    row = example.rows["paid"]
    every = f"apis.supervisor.complete_task(answer={list(range(1000))})"
    reward, (said,) = example.play(row, every)
    assert reward == 0.0
    assert "must be one text or one number" in said
    text = f"apis.supervisor.complete_task(answer={' '.join(map(str, range(1000)))!r})"
    assert example.play(row, text)[0] == 0.0


def test_code_keeps_its_variables_and_sees_its_errors(example: Example) -> None:
    row = example.rows["send"]
    _, said = example.play(row, "x = 6", "print(x * 7)", "1 / 0", "apis.wallet.fly()")
    assert said[:2] == ["done", "42\n"]
    assert "ZeroDivisionError" in said[2]
    assert "there is no API wallet.fly" in said[3]


def test_an_interpreter_that_ended_starts_anew(example: Example) -> None:
    _, said = example.play(example.rows["send"], "import os; os._exit(1)", "print('again')")
    assert said[0].startswith("error")
    assert said[1] == "again\n"


SPEAK = "import os\nfor fd in range(3, 9):\n    try: os.write(fd, {0})\n    except OSError: pass\n"
NOISE = {
    "an-endless-print": "print('x' * 50_000_000)",
    "an-endless-line-to-the-agent": SPEAK.format("b'x' * 5_000_000"),
    "a-line-that-nests-too-deep": SPEAK.format("b'[' * 200_000 + b'\\n'"),
    "all-of-the-memory": "kept = bytearray(40 << 30)",
    "arguments-of-the-wrong-kind": "apis.music.search_songs(query=5)",
    "an-answer-that-is-huge": "apis.supervisor.complete_task(answer='9' * 5_000_000)",
}


@pytest.mark.parametrize("noise", NOISE)
def test_no_noise_disturbs_the_agent(example: Example, noise: str) -> None:
    reward, said = example.play(example.rows["send"], NOISE[noise], "print('still here')")
    assert reward == 0.0
    assert len(said[0]) <= 8000
    assert said[1] == "still here\n"


def test_a_model_s_code_can_neither_end_its_agent_nor_talk_to_it(
    runner: ModuleType, example: Example
) -> None:
    signals_are_scoped()
    said: list[str] = []
    codes = [
        "import os; os.kill(os.getppid(), 9)",
        "os.kill(-1, 9)",
        "import socket; socket.create_connection(('127.0.0.2', 8080), 5)",
        "import time\nfor _ in range(300):\n    if os.fork() == 0: os.setsid(), time.sleep(1000)",
    ]

    def reply(request: dict[str, Any]) -> tuple[str, list[Any]]:
        said[:] = [str(m["content"]) for m in request["messages"] if m["role"] == "tool"]
        here = len(said)
        return ("", [("execute", {"code": codes[here]})]) if here < len(codes) else ("Hm.", [])

    with runner.serve(reply) as model:
        rewards = dict(runner.run_tasks(FOLDER.name, "rl_app.py", [example.rows["send"]], model, 1))
    assert rewards == {0: 0.0}, "a rollout that is trained, not a session that was lost"
    assert "not permitted" in said[0], said
    assert "Permission" in said[2], said
    assert "BlockingIOError" in said[3], "processes without end leave the agent its own"


UNFENCED = """
import sys; sys.stdin.readline()
print('{"output": "another interpreter"}', flush=True)
"""


def test_an_interpreter_that_the_code_wrote_is_not_started(
    runner: ModuleType, tmp_path: Path
) -> None:
    copy = tmp_path / "agent"
    shutil.copytree(FOLDER, copy)
    world, tasks = runner.load(copy, "world", "tasks")
    with closing(world.make_world(next(tasks.rows()))) as made:
        made.execute(
            f"open({str(copy / 'repl.py')!r}, 'w').write({UNFENCED!r}); import os; os._exit(0)"
        )
        assert made.execute("print('the same one')") == "the same one\n"


def test_notes_are_short(example: Example) -> None:
    """They stay in the agent's memory."""
    *before, code = example.solve(example.rows["send"])
    _, said = example.play(example.rows["send"], *before, code.replace("lunch", "x" * 2000))
    assert "the note is too long" in said[-1]


def test_in_a_session_the_ground_truth_is_nowhere_to_be_found(
    runner: ModuleType, example: Example
) -> None:
    marker = "what-is-right-4711"
    row = {**example.rows["paid"]}
    row["ground_truth"] = {**row["ground_truth"], "answer": marker}
    planted = f"open('/tmp/planted', 'w').write({marker!r})"
    said: list[str] = []

    def reply(request: dict[str, Any]) -> tuple[str, list[Any]]:
        tools = [str(m["content"]) for m in request["messages"] if m["role"] == "tool"]
        said[:] = tools
        codes = [snoop.code(marker), planted, snoop.code(marker), DONE]
        return ("", [("execute", {"code": codes[len(tools)]})]) if len(tools) < 4 else ("Hm.", [])

    with runner.serve(reply) as model:
        rewards = dict(runner.run_tasks(FOLDER.name, "rl_app.py", [row], model, 1))
    assert rewards == {0: 0.0}
    assert snoop.NOTHING in said[0], said
    assert "seen in ['/tmp/planted']" in said[2], "it looks, and finds what there is to find"


def test_a_task_runs_on_the_local_runtime(runner: ModuleType) -> None:
    (oracle,) = runner.load(FOLDER, "oracle")
    with runner.serve(oracle.reply) as model:
        tasks = list(oracle.tasks())[2:]
        rewards = dict(runner.run_tasks(FOLDER.name, "rl_app.py", tasks, model, 2))
    assert rewards == {0: 1.0, 1: 1.0}


# --- AppWorld's own package ------------------------------------------------------------------


@pytest.fixture(scope="module")
def appworld() -> Path:
    if not APPWORLD.is_file():
        pytest.skip(
            "AppWorld is not installed: examples/strands_appworld_agent/install_appworld.sh"
        )
    return APPWORLD


INTERFACE = """
import inspect, sys, types
sys.path.insert(0, sys.argv[1])
toolkit = sys.modules["agentcore_rl_toolkit"] = types.ModuleType("agentcore_rl_toolkit")
toolkit.RewardFunction = object
from appworld import AppWorld
from appworld.evaluator import TestTracker
from reward import AppReward
import world
asked = []
class Recorded(AppWorld):
    def __init__(self, *args, **kwargs):
        inspect.signature(AppWorld.__init__).bind(self, *args, **kwargs)
        asked.append(kwargs)
    def task_completed(self): return True
    def evaluate(self):
        inspect.signature(AppWorld.evaluate).bind(self)
        return self.tracker
sys.modules["appworld"].AppWorld = Recorded
made = world.make_world({"task_id": "82e2fac_1"})
assert asked[0]["task_id"] == "82e2fac_1"
for name, args in (("execute", ["code"]), ("evaluate", []), ("task_completed", []), ("close", [])):
    inspect.signature(getattr(AppWorld, name)).bind(made, *args)
made.tracker = TestTracker()
assert AppReward()(world=made) == 0.0, "no tests, no reward"
one = {"requirement": "r", "label": "no_op_fail"}
made.tracker.passes.append(one)
assert AppReward()(world=made) == 1.0
made.tracker.failures.append({**one, "trace": "t"})
assert AppReward()(world=made) == 0.0
print("as expected")
"""


@pytest.mark.timeout(120)
def test_appworld_s_package_has_the_interface_that_is_used(appworld: Path) -> None:
    done = subprocess.run(
        [appworld, "-c", INTERFACE, FOLDER], capture_output=True, text=True, check=False
    )
    assert done.stdout.endswith("as expected\n"), done.stderr


@pytest.mark.timeout(120)
def test_task_ids_come_from_appworld_s_own_loader(appworld: Path, tmp_path: Path) -> None:
    (tmp_path / "data/tasks").mkdir(parents=True)
    (tmp_path / "data/datasets").mkdir()
    (tmp_path / "data/datasets/train.txt").write_text("82e2fac_1\n82e2fac_2\n")
    done = subprocess.run(
        [appworld, FOLDER / "make_data.py", "--split", "train"],
        capture_output=True,
        text=True,
        env={"APPWORLD_ROOT": str(tmp_path)},
        check=False,
    )
    assert done.stdout == '{"task_id": "82e2fac_1"}\n{"task_id": "82e2fac_2"}\n', done.stderr
