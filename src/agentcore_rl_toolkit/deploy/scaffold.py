"""A small agent to start from. Its trainable form is made by ``adapt``, as any other agent's."""

from __future__ import annotations

import re
from pathlib import Path

from ..errors import ConfigError
from .adapt import Adapted, adapt

BASIC, TRAINABLE, REWARD = "basic_app.py", "rl_app.py", "reward.py"

BASIC_APP = '''"""The agent in production: one model, one question, one answer."""

import os

from bedrock_agentcore import BedrockAgentCoreApp
from openai import OpenAI

SYSTEM_PROMPT = "Think, then end with a line that holds '#### ' and the number, nothing else."

app = BedrockAgentCoreApp()


@app.entrypoint
def invoke(payload):
    client = OpenAI(base_url=os.environ["MODEL_URL"], api_key=os.environ["MODEL_KEY"])
    answer = client.chat.completions.create(
        model=os.environ["MODEL_ID"],
        messages=[
            {"role": "system", "content": SYSTEM_PROMPT},
            {"role": "user", "content": payload["prompt"]},
        ],
    )
    return {"response": answer.choices[0].message.content}


if __name__ == "__main__":
    app.run()
'''

NUMBER_REWARD = '''"""What a good answer is."""

from agentcore_rl_toolkit import FinalAnswer

# 1.0 when the number after the last '####' of the response is that of the row's "answer"
reward = FinalAnswer()
'''

OPEN_REWARD = '''"""What a good answer is."""

from agentcore_rl_toolkit import RewardFunction


class Reward(RewardFunction):
    """Gets the row of data and what the handler returned, all by name."""

    def __call__(self, *, response=None, answer=None, **kwargs) -> float:
        raise NotImplementedError("say in reward.py what a good answer is")


reward = Reward()
'''

README = """# {name}

| file | what it is |
|---|---|
| `basic_app.py` | the agent in production: model from `MODEL_URL`, `MODEL_KEY`, `MODEL_ID` |
| `rl_app.py` | the same agent, trainable: model from the rollout, a reward in its answer |
| `reward.py` | what a good answer is |
| `data.jsonl` | tasks; a row is the payload of a rollout |

With `art runtime serve` running, and a model at `http://127.0.0.1:8000/v1`:

```
art deploy {path} --local
art eval {path}/data.jsonl --agent {agent} --base-url http://127.0.0.1:8000/v1 --model-id MODEL
```
"""

ROWS = [("What is 6 * 7?", 42), ("What is 12 + 30 - 5?", 37), ("What is 9 * 9 - 1?", 80)]
DATA = "".join(f'{{"prompt": "{prompt}", "answer": "{answer}"}}\n' for prompt, answer in ROWS)


def scaffold(folder: Path) -> list[Path]:
    """Writes a new agent; ConfigError when the folder is not empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} is not empty: name a new folder, or an agent's {BASIC}")
    usable = re.fullmatch(r"[a-zA-Z][a-zA-Z0-9_]{0,47}", folder.name)
    agent = folder.name if usable else "ARN"
    files = {
        BASIC: BASIC_APP,
        TRAINABLE: adapt(BASIC_APP).after.replace("in production", "in training"),
        REWARD: NUMBER_REWARD,
        "data.jsonl": DATA,
        "requirements.txt": "openai>=1.60\n",
        "README.md": README.format(name=folder.name, path=folder, agent=agent),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in files]


def adapted(script: Path) -> Adapted:
    try:
        return adapt(script.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{script} is not a text in UTF-8 ({error}): save it as such") from None
    except ConfigError as error:
        raise ConfigError(f"{script}: {error}") from None


def apply(script: Path, change: Adapted) -> list[Path]:
    """Writes the trainable agent beside the script, which stays; never over a file."""
    target, reward = script.with_name(TRAINABLE), script.with_name(REWARD)
    if target.exists():
        raise ConfigError(f"{target} exists already: move it away, or compare by hand")
    target.write_text(change.after, encoding="utf-8")
    if reward.exists():
        return [target]
    reward.write_text(OPEN_REWARD, encoding="utf-8")
    return [target, reward]
