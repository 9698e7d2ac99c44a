"""Agents as people write them, made trainable: the result is run, not only compared."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from agentcore_rl_toolkit import FinalAnswer
from agentcore_rl_toolkit.deploy.adapt import adapt
from agentcore_rl_toolkit.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
HEAD = "from bedrock_agentcore import BedrockAgentCoreApp\napp = BedrockAgentCoreApp()\n"


def agent(body: str, head: str = HEAD) -> str:
    return f"{head}\n\n@app.entrypoint\ndef invoke(payload):\n{body}\n"


def run(text: str, payload: dict[str, Any], **names: Any) -> Any:
    """The handler of an adapted agent, with a reward that compares numbers."""
    reward = compile("from reward import reward", "", "exec")
    body = text.replace("from reward import reward", "")
    space: dict[str, Any] = {"reward": FinalAnswer(last_number=True), **names}
    assert reward.co_names, "it compiles"
    exec(compile(body, "rl_app.py", "exec"), space)
    return space["invoke"](payload)


def test_the_example_becomes_what_its_author_wrote() -> None:
    folder = ROOT / "examples" / "strands_math_agent"
    change = adapt((folder / "basic_app.py").read_text())
    written = ast.unparse(ast.parse((folder / "rl_app.py").read_text()))
    made = ast.unparse(ast.parse(change.after))
    for line in (
        "app = AgentCoreRLApp()",
        "@app.rollout_entrypoint",
        "cfg = payload['_rollout']",
        "client_args={'base_url': cfg['base_url'], 'api_key': cfg.get('api_key', 'EMPTY')}",
        "model_id=cfg['model_id']",
    ):
        assert line in written
        assert line in made
    assert "import os" not in made, "it was there for the model only"
    assert change.notes == []


def test_a_dict_keeps_its_keys_and_gets_a_reward() -> None:
    change = adapt(agent('    return {"response": "6 * 7 = 42", "n": 1}'))
    result = run(change.after, {"answer": "42"})
    assert result == {"response": "6 * 7 = 42", "n": 1, "rewards": 1.0}


def test_text_becomes_the_response() -> None:
    change = adapt(agent('    return "it is 41"'))
    assert run(change.after, {"answer": "42"}) == {"response": "it is 41", "rewards": 0.0}
    assert any("'response'" in note for note in change.notes)


def test_every_return_is_rewarded_also_one_behind_an_if() -> None:
    body = '    if payload.get("hard"): return {"response": "42"}\n    return {"response": "1"}'
    change = adapt(agent(body))
    assert run(change.after, {"answer": "42", "hard": True})["rewards"] == 1.0
    assert run(change.after, {"answer": "42"})["rewards"] == 0.0


def test_returns_of_functions_inside_the_handler_stay() -> None:
    body = (
        '    """Says a number."""\n'
        "    def tool():\n        return 42\n"
        "    return {\n        # kept\n        'response': str(tool()),\n    }"
    )
    change = adapt(agent(body))
    assert "return 42" in change.after
    assert "# kept" in change.after
    assert run(change.after, {"answer": "42"})["rewards"] == 1.0


def test_the_model_comes_from_the_rollout() -> None:
    body = (
        "    client = OpenAI(base_url=URL, api_key=KEY)\n"
        "    other = Search(api_key=KEY)\n"
        '    return {"response": client.ask(model="gpt", n=other)}'
    )
    change = adapt(agent(body))
    seen: dict[str, Any] = {}

    class OpenAI:
        def __init__(self, **given: Any) -> None:
            seen.update(given)

        def ask(self, **given: Any) -> str:
            seen.update(given)
            return "42"

    config = {"base_url": "http://model/v1", "model_id": "policy"}
    payload = {"answer": "42", "_rollout": config}
    result = run(change.after, payload, OpenAI=OpenAI, Search=dict, KEY="other", URL="")
    assert result["rewards"] == 1.0
    assert (seen["base_url"], seen["api_key"], seen["model"]) == (
        "http://model/v1",
        "EMPTY",
        "policy",
    )
    assert seen["n"] == {"api_key": "other"}, "a key of another service is not the model's"


def test_a_model_outside_the_handler_is_pointed_out() -> None:
    text = agent('    return {"response": ask()}', HEAD + 'client = OpenAI(base_url="http://x")\n')
    change = adapt(text)
    assert 'base_url="http://x"' in change.after
    assert any("outside the handler" in note for note in change.notes)


def test_a_client_that_would_go_to_its_vendor_is_given_the_rollouts_address() -> None:
    body = (
        "    model = ChatOpenAI(\n"
        '        model="gpt",\n'
        "        temperature=0,  # kept\n"
        "    )\n"
        '    return {"response": model.told}'
    )
    change = adapt(agent(body))
    assert "# kept" in change.after
    assert change.notes == []

    class ChatOpenAI:
        def __init__(self, **given: Any) -> None:
            self.told = given

    config = {"base_url": "http://model/v1", "model_id": "policy"}
    told = run(change.after, {"answer": "", "_rollout": config}, ChatOpenAI=ChatOpenAI)["response"]
    assert told == {
        "model": "policy",
        "temperature": 0,
        "base_url": "http://model/v1",
        "api_key": "EMPTY",
    }


STRANDS = HEAD + "from strands import Agent\n"


@pytest.mark.parametrize(
    "text",
    [
        agent('    return {"r": ask(BedrockModel(model_id="us.nova"))}'),
        agent('    return {"r": ask()}', HEAD + 'model = ChatBedrock(model_id="us.nova")\n'),
        agent('    return {"r": init_chat_model("x", model_provider="bedrock_converse")}'),
        agent('    return {"r": boto3.client("bedrock-runtime")}'),
        agent('    return {"r": Agent(model="us.nova")(payload["prompt"])}', STRANDS),
        agent('    return {"r": Agent(tools=[])(payload["prompt"])}', STRANDS),
    ],
    ids=["strands", "langchain-outside", "init", "boto3", "agent-by-name", "agent-by-default"],
)
def test_a_model_of_bedrock_is_left_and_pointed_out(text: str) -> None:
    change = adapt(text)
    assert [note for note in change.notes if "a model of Bedrock cannot be trained" in note]
    assert "cfg" not in change.after


def test_names_that_the_agent_has_are_not_taken_from_it() -> None:
    head = HEAD + "def reward(text):\n    return len(text)\n"
    body = (
        '    cfg = {"n": 3}\n'
        '    client = dict(base_url="http://x")\n'
        '    result = {"response": "42", "long": reward("abc"), "n": cfg["n"], **client}\n'
        "    return result"
    )
    change = adapt(agent(body, head))
    assert "from reward import reward as rollout_reward" in change.after
    text = change.after.replace("from reward import reward as rollout_reward", "")
    space: dict[str, Any] = {"rollout_reward": FinalAnswer(last_number=True)}
    exec(compile(text, "rl_app.py", "exec"), space)
    result = space["invoke"]({"answer": "42", "_rollout": {"base_url": "http://model"}})
    assert result == {
        "response": "42",
        "long": 3,
        "n": 3,
        "base_url": "http://model",
        "rewards": 1.0,
    }


def test_a_comment_behind_the_last_import_stays_there() -> None:
    text = agent('    return {"response": "42"}', "import json  # noqa: F401\n" + HEAD)
    text = text.replace("CoreApp\napp", "CoreApp  # the app\napp")
    assert "AgentCoreRLApp  # the app\nfrom reward import reward\n" in adapt(text).after
    assert "import json  # noqa: F401\n" in adapt(text).after


def test_an_import_that_nobody_used_before_is_not_our_business() -> None:
    assert "import os" in adapt(agent('    return {"response": "42"}', "import os\n" + HEAD)).after


def test_other_imports_and_an_alias_are_kept() -> None:
    head = (
        "from bedrock_agentcore.runtime import BedrockAgentCoreApp as App, RequestContext\n"
        "app = App()\n"
    )
    change = adapt(agent('    return {"response": "42"}', head))
    assert "from bedrock_agentcore.runtime import RequestContext" in change.after
    assert "app = AgentCoreRLApp()" in change.after


def test_letters_beyond_ascii_do_not_shift_the_places() -> None:
    change = adapt(agent('    word = "naïve café ✓"; return {"response": "42 " + word}'))
    assert run(change.after, {"answer": "42"})["response"] == "42 naïve café ✓"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("def broken(:\n", "not Python"),
        (HEAD, "0 functions under @app.entrypoint"),
        (agent('    yield "a"'), "streams"),
        (agent("    pass"), "returns nothing"),
        (agent("    return {}").replace("entrypoint", "rollout_entrypoint"), "already"),
        (agent("    return {}", "import x\napp = x.App()\n"), "does not import"),
        (HEAD + "@app.entrypoint\ndef invoke():\n    return {}\n", "takes no payload"),
        (HEAD + "@app.entrypoint\ndef invoke(p): return ask(model_id=1)\n", "on one line"),
    ],
    ids=lambda value: value if " " in value and "\n" not in value else "",
)
def test_what_cannot_be_a_rollout_is_refused_with_a_reason(text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        adapt(text)
