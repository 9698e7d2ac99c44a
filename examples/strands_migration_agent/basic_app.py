"""The agent as deployed: it answers with what it changed, as a patch."""

import difflib
import os
import tempfile
from pathlib import Path

from bedrock_agentcore.runtime import BedrockAgentCoreApp
from dataset import load_repo, prompt_of
from strands import Agent, tool
from strands.models.openai import OpenAIModel
from strands.tools.executors import SequentialToolExecutor
from tools import Workspace

SYSTEM_PROMPT = (
    "You move Java 8 projects to Java 17. All class files must have major version 61, and all "
    "tests must still pass, unchanged and without extra options for the virtual machine. "
    "Build with Maven where there is a pom.xml, else with 'sh build.sh', which reads "
    "build.properties. Work in the project's folder only. When you are done, say what you changed."
)

app = BedrockAgentCoreApp()


@app.entrypoint
def invoke(payload):
    model = OpenAIModel(
        client_args={"base_url": os.environ["MODEL_URL"], "api_key": os.environ["MODEL_KEY"]},
        model_id=os.environ["MODEL_ID"],
    )
    with tempfile.TemporaryDirectory() as scratch:
        workspace = Workspace(load_repo(payload["repo_uri"], Path(scratch)))
        before = texts(workspace.folder)
        tools = [tool(each) for each in workspace.tools()]
        agent = Agent(
            model,
            tools=tools,
            system_prompt=SYSTEM_PROMPT,
            tool_executor=SequentialToolExecutor(),  # calls of one message are about the same files
            callback_handler=None,
        )
        tests = sum("src/test/" in name for name in before)
        response = str(agent(prompt_of(payload, workspace.folder, tests)))
        return {"response": response, "patch": patch(before, texts(workspace.folder))}


def texts(folder):
    files = (p for p in sorted(folder.rglob("*")) if p.is_file() and "target" not in p.parts)
    pairs = ((str(p.relative_to(folder)), p.read_bytes()) for p in files)
    return {name: content.decode() for name, content in pairs if b"\0" not in content}


def patch(before, after):
    lines = []
    for name in sorted({**before, **after}):
        old, new = (side.get(name, "").splitlines(keepends=True) for side in (before, after))
        lines += difflib.unified_diff(old, new, f"a/{name}", f"b/{name}")
    return "".join(lines)


if __name__ == "__main__":
    app.run()
