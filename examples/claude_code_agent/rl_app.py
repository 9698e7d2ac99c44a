"""The CLI as trained: the same command, its model's address from the rollout, and a reward."""

import shutil
import tempfile
from pathlib import Path

from claude_code import claude, conceal
from reward import RepoReward

from agentcore_rl_toolkit import AgentCoreRLApp

REPOS = Path(__file__).resolve().parent / "repos"

app = AgentCoreRLApp()


@app.rollout_entrypoint
def invoke(payload):
    cfg = payload["_rollout"]
    conceal()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch) / payload["repo"]
        shutil.copytree(REPOS / payload["repo"], folder)
        response = claude(
            payload["prompt"],
            folder,
            cfg["model_id"],
            cfg["base_url"].removesuffix("/v1"),  # the gateway speaks Anthropic's dialect beside it
            cfg.get("api_key", "EMPTY"),
        )
        score = RepoReward()(folder=folder, repo=payload["repo"], checks=payload["checks"])
    return {"rewards": score, "response": response}


if __name__ == "__main__":
    app.run()
