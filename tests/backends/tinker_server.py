"""A server of Tinker's API on this machine: SkyRL on JAX, in its own environment.

    python tinker_server.py PORT MODEL_FOLDER STATE_FOLDER

SkyRL starts its engine with ``uv run``, which would make an environment of its own; here the
engine runs in the environment that is there. SkyRL's names, of version 0.3.0.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    port, model, state = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]).resolve()
    import uvicorn  # type: ignore[import-not-found]
    from skyrl.tinker import api  # type: ignore[import-not-found]
    from skyrl.tinker.config import EngineConfig, config_to_argv  # type: ignore[import-not-found]

    def engine_command(parent: Any, config: Any) -> list[str]:
        return [sys.executable, "-m", "skyrl.tinker.engine", *config_to_argv(config)]

    api._build_uv_run_cmd_engine = engine_command
    state.mkdir(parents=True, exist_ok=True)
    os.chdir(state)
    api.app.state.engine_config = EngineConfig(
        base_model=model,
        backend="jax",
        backend_config={
            # one more than runs that are alive: a resumed run and the one before it
            "max_lora_adapters": 8,
            "max_lora_rank": 8,
            "train_micro_batch_size": 8,
            "sample_max_num_sequences": 16,
        },
        checkpoints_base=str(state / "checkpoints"),
        database_url=f"sqlite:///{state}/tinker.db",
    )
    uvicorn.run(api.app, host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    main()
