"""Success of the deployed app agent, with any OpenAI-compatible model.

python make_data.py > tasks.jsonl
python evaluate.py tasks.jsonl --agent ARN --base-url http://127.0.0.1:8000/v1 --model-id my-model
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from evaluation import evaluate

if __name__ == "__main__":
    evaluate("app agent", concurrency=16, timeout=600.0)
