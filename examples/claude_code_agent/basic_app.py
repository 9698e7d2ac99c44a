"""The CLI as deployed: it works on a repository and answers with the files that it changed."""

import os
import shutil
import tempfile
from pathlib import Path

from bedrock_agentcore.runtime import BedrockAgentCoreApp
from claude_code import claude

REPOS = Path(__file__).resolve().parent / "repos"

app = BedrockAgentCoreApp()


@app.entrypoint
def invoke(payload):
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / payload["repo"]
        shutil.copytree(REPOS / payload["repo"], folder)
        model, key = os.environ["MODEL_ID"], os.environ["MODEL_KEY"]
        response = claude(payload["prompt"], folder, model, os.environ["MODEL_URL"], key)
        texts = {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*.py")}
    return {"response": response, "files": texts}


if __name__ == "__main__":
    app.run()
