"""The app example: code that calls apps, in a world that it cannot reach into."""

from __future__ import annotations

from contextlib import closing
from types import ModuleType
from typing import Any

import pytest

from .conftest import EXAMPLES

FOLDER = EXAMPLES / "strands_appworld_agent"


class Example:
    def __init__(self, runner: ModuleType) -> None:
        self.oracle, self.reward, self.world = runner.load(FOLDER, "oracle", "reward", "world")

    def play(self, task: str, *codes: str) -> tuple[float, list[str]]:
        with closing(self.world.make_world(task)) as world:
            said = [world.execute(code) for code in codes]
            return self.reward.AppReward()(world=world), said


@pytest.fixture(scope="module")
def example(runner: ModuleType) -> Example:
    return Example(runner)


@pytest.mark.parametrize("task", ["paid_to_mia", "lunch", "blue_door", "loans"])
def test_the_oracle_does_every_task_and_nothing_is_worth_nothing(
    example: Example, task: str
) -> None:
    reward, said = example.play(task, *example.oracle.STEPS[task])
    assert reward == 1.0, said
    assert example.play(task)[0] == 0.0
    assert example.play(task, "apis.supervisor.complete_task()")[0] == 0.0


LOGIN = "token = apis.wallet.login(password='w-7741')\n"
SEND = "apis.wallet.send_money(access_token=token, to='mia@mail', amount=25, note='lunch')\n"
DONE = "apis.supervisor.complete_task()\n"
CHEATS: dict[str, Any] = {
    "the-checks-replaced": (
        f"import sys; sys.path.insert(0, {str(FOLDER)!r})\n"
        "import world\nworld.SmallWorld.evaluate = lambda self: world.Evaluation(3, 3)\n" + DONE
    ),
    "an-answer-written-to-the-pipe": (
        "import os\nfor fd in range(3, 9):\n"
        '    try: os.write(fd, b\'{"output": "done"}\\n\')\n    except OSError: pass\n' + DONE
    ),
    "paid-twice": LOGIN + 2 * SEND + DONE,
    "the-data-reached-through-an-api": "apis.data.update(completed=True)\n" + DONE,
    "private-functions": "apis.wallet.__init__()\napis.supervisor._login(app='x')\n" + DONE,
    "process-ended": "import os; os._exit(0)",
}


@pytest.mark.parametrize("cheat", CHEATS)
def test_a_cheat_is_worth_nothing(example: Example, cheat: str) -> None:
    assert example.play("lunch", CHEATS[cheat])[0] == 0.0


def test_code_keeps_its_variables_and_sees_its_errors(example: Example) -> None:
    _, said = example.play("lunch", "x = 6", "print(x * 7)", "1 / 0", "apis.wallet.fly()")
    assert said[:2] == ["done", "42\n"]
    assert "ZeroDivisionError" in said[2]
    assert "there is no API wallet.fly" in said[3]


def test_an_interpreter_that_ended_starts_anew(example: Example) -> None:
    _, said = example.play("lunch", "import os; os._exit(1)", "print('again')")
    assert said[0].startswith("error")
    assert said[1] == "again\n"


def test_a_task_runs_on_the_local_runtime(runner: ModuleType) -> None:
    (oracle,) = runner.load(FOLDER, "oracle")
    with runner.serve(oracle.reply) as model:
        tasks = list(oracle.tasks())[2:]
        rewards = dict(runner.run_tasks(FOLDER.name, "rl_app.py", tasks, model, 2))
    assert rewards == {0: 1.0, 1: 1.0}
