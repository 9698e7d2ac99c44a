"""The agent as trained: the deployed one, with the model of the rollout and a reward."""

from dataset import load_metadata, load_repo, prompt_of
from reward import MigrationReward
from strands import Agent, tool
from strands.models.openai import OpenAIModel
from strands.tools.executors import SequentialToolExecutor
from tools import Workspace, conceal, scratch_folder

from agentcore_rl_toolkit import AgentCoreRLApp

SYSTEM_PROMPT = (
    "You move Java 8 projects to Java 17. All class files must have major version 61, and all "
    "tests must still pass, unchanged and without extra options for the virtual machine. "
    "Build with Maven where there is a pom.xml, else with 'sh build.sh', which reads "
    "build.properties. Work in the project's folder only. When you are done, say what you changed."
)

app = AgentCoreRLApp()


@app.rollout_entrypoint
def invoke(payload):
    cfg = payload["_rollout"]
    model = OpenAIModel(
        client_args={"base_url": cfg["base_url"], "api_key": cfg.get("api_key", "EMPTY")},
        model_id=cfg["model_id"],
        params=cfg.get("sampling_params"),
    )
    conceal()
    metadata = load_metadata(payload.get("metadata_uri"))
    with scratch_folder() as scratch:
        workspace = Workspace(load_repo(payload["repo_uri"], scratch))
        reward = MigrationReward(
            workspace.folder, metadata.get("num_test_cases", 0), payload.get("held_out")
        )
        tools = [tool(each) for each in workspace.tools()]
        agent = Agent(
            model,
            tools=tools,
            system_prompt=SYSTEM_PROMPT,
            tool_executor=SequentialToolExecutor(),  # calls of one message are about the same files
            callback_handler=None,
        )
        prompt = prompt_of(payload, workspace.folder, len(reward.original.tests))
        response = str(agent(prompt))
        score = reward(folder=workspace.folder, escaped=workspace.escaped)
    verdict = reward.verdict
    return {
        "rewards": score,
        "response": response,
        "metrics": {"migrated": verdict.migrated, "passed": verdict.passed, "tests": verdict.total},
    }


if __name__ == "__main__":
    app.run()
