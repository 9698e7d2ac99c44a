"""Our gateway in the place of rllm's: same protocol, ids in and ids out at the engine.

rllm's gateway asks its Tinker engine for a chat answer and renders every turn anew; ours continues
from the exact ids of the turn before. rllm's sampling client changes with every weight update, so
it is looked up at every call. Lives from rllm's ``start`` to its ``stop``, on a loop of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rllm.gateway.manager import GatewayManager  # type: ignore[import-not-found]

from ...errors import ConfigError
from ...gateway import GatewaySettings
from ...gateway.engines.tinker import TinkerEngine
from ...gateway.route import Pool
from ...gateway.text.family import choose_renderer
from ...gateway.thread import GatewayThread

DEFAULT_NAME = "default"
"""As rllm names a model to its agents when the configuration does not."""


class Following:
    """The sampling client that rllm's engine has now."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    async def sample_async(self, prompt: Any, num_samples: int, sampling_params: Any) -> Any:
        return await self._engine.sampling_client.sample_async(
            prompt=prompt, num_samples=num_samples, sampling_params=sampling_params
        )


class Capture(GatewayManager):  # type: ignore[misc]
    run_dir: Path

    def start(self, rollout_engine: Any) -> None:
        settings = GatewaySettings(
            host=self.host, port=self._port(), run_dir=self.run_dir, open=True, fsync=False
        )
        self._ours = GatewayThread([self._pool(rollout_engine)], settings).start()
        self.port = int(self._ours.url.rpartition(":")[2])
        self._train_sampling_params = rollout_engine.train_sampling_params
        self._val_sampling_params = rollout_engine.val_sampling_params
        if self.tunnel_backend and not self.public_url:
            self._start_tunnel()

    def stop(self) -> None:
        super().stop()
        if hasattr(self, "_ours"):
            self._ours.stop()

    def _port(self) -> int:
        """rllm's own default is one fixed port; ours is any."""
        return 0 if self.port == 9090 else self.port

    def _pool(self, rollout_engine: Any) -> Pool:
        if type(rollout_engine).__name__ != "TinkerEngine":
            raise ConfigError("our gateway takes rllm's place with its Tinker backend only")
        engine = TinkerEngine(rollout_engine.base_url or "https://tinker", model=self.model)
        engine.use(Following(rollout_engine), "0")
        renderer = choose_renderer(rollout_engine.tokenizer)
        return Pool(self.model or DEFAULT_NAME, [engine], train=True, renderer=renderer)


def make_manager(run_dir: Path) -> type[Capture]:
    return type("Capture", (Capture,), {"run_dir": run_dir})
