"""verl on a machine without an accelerator: a platform, and rollouts from a vLLM over HTTP.

Loaded by verl itself (``VERL_USE_EXTERNAL_MODULES=verl_cpu VERL_PLATFORM=cpu``) in every one of
its processes. It stands in for what verl brings on a GPU; the agent loop under test is the real
one. ``ART_VLLM_URL`` is the server, ``ART_WEIGHTS`` a folder in which checkpoints are handed over.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import ray
import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from verl.checkpoint_engine import CheckpointEngineRegistry
from verl.checkpoint_engine.base import CheckpointEngine
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry
from verl.workers.rollout import base as rollout_base
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry, TokenOutput
from verl.workers.rollout.utils import ensure_async_iterator

NAME = "vllm_http"
URL = os.environ["ART_VLLM_URL"]
PASSED = ("temperature", "top_p", "top_k", "repetition_penalty", "stop_token_ids", "max_tokens")


class Device(ModuleType):
    """What ``torch.cuda`` would be asked, answered for a CPU."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("memory", "max_memory")):
            return lambda *_, **__: 0
        if name.startswith(("reset", "manual_seed", "set_device", "empty", "ipc", "synchronize")):
            return lambda *_, **__: None
        return getattr(torch.cpu, name)

    def is_available(self) -> bool:
        return True

    is_initialized = is_available

    def device_count(self) -> int:
        return 1

    def current_device(self) -> int:
        return 0

    def mem_get_info(self, *_: Any) -> tuple[int, int]:
        return 8 << 30, 16 << 30

    def get_rng_state(self, *_: Any) -> Any:
        return torch.get_rng_state()

    def set_rng_state(self, state: Any, *_: Any) -> None:
        torch.set_rng_state(state)

    def get_device_name(self, *_: Any) -> str:
        return "cpu"


@PlatformRegistry.register(platform="cpu")
class Cpu(PlatformBase):
    device_name = vendor_name = property(lambda _: "cpu")
    device_module = property(lambda _: Device("cpu_device"))

    def is_available(self) -> bool:
        return True

    def current_device(self) -> str:
        return "cpu"

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: Any) -> None: ...

    def synchronize(self, device_index: Any = None) -> None: ...

    def empty_cache(self) -> None: ...

    def set_allocator_settings(self, settings: Any) -> None: ...

    def profiler_start(self) -> None: ...

    def profiler_stop(self) -> None: ...

    def cudart(self) -> None: ...

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    def ray_resource_name(self) -> str:
        return "GPU"  # pretended to Ray by num_gpus=1

    def ray_noset_envvars(self) -> list[str]:
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def is_ipc_supported(self) -> bool:
        return False

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield


def _gloo(backend: Any = None, *args: Any, **kwargs: Any) -> Any:
    # verl joins the device's backend with the CPU's, which are the same here
    same = backend is not None and "cpu:gloo" in str(backend)
    return _init("gloo" if same else backend, *args, **kwargs)


_init = dist.init_process_group
dist.init_process_group = dist.distributed_c10d.init_process_group = _gloo


def _log(self: logging.Logger, *args: Any, flush: bool = False, **kwargs: Any) -> None:
    # verl 0.9.1 passes print's flush to a logger in separate_async without hybrid servers
    _plain_log(self, *args, **kwargs)


_plain_log = logging.Logger._log
logging.Logger._log = _log  # type: ignore[method-assign]


class Server:
    """verl's server actor: ids in, ids out."""

    def __init__(self) -> None:
        self.http = httpx.AsyncClient(base_url=URL, timeout=300)
        self.steps = 0

    async def generate(
        self, prompt_ids: list[int], sampling_params: dict[str, Any], request_id: str, **_: Any
    ) -> TokenOutput:
        params = {k: v for k, v in sampling_params.items() if k in PASSED and v is not None}
        body = {"token_ids": list(prompt_ids), "sampling_params": {**params, "logprobs": 0}}
        reply = await self.http.post("/inference/v1/generate", json=body)
        reply.raise_for_status()
        (choice,) = reply.json()["choices"]
        return TokenOutput(
            token_ids=choice["token_ids"],
            log_probs=[entry["logprob"] for entry in choice["logprobs"]["content"]],
            stop_reason="aborted" if choice["finish_reason"] == "abort" else "completed",
            extra_fields={"global_steps": self.steps},
        )

    async def set_steps(self, steps: int) -> None:
        self.steps = steps

    async def sleep(self) -> None: ...

    async def wake_up(self) -> None: ...

    async def release_kv_cache(self) -> None: ...

    async def resume_kv_cache(self) -> None: ...

    async def clear_kv_cache(self) -> None:
        await self.http.post("/reset_prefix_cache")

    async def abort_all_requests(self, reject_request: bool = False) -> None:
        await self.http.post("/pause", params={"mode": "abort"})

    async def resume_generation(self) -> None:
        await self.http.post("/resume")


class Replica(RolloutReplica):
    async def launch_servers(self) -> None:
        options = {"name": f"{NAME}_{self.replica_rank}", "num_cpus": 0, "max_concurrency": 1000}
        self._server_handle = ray.remote(Server).options(**options).remote()
        self.servers = [self._server_handle]
        self._server_address = URL.removeprefix("http://")


async def gathered(weights: AsyncIterator[Any] | Iterator[Any]) -> dict[str, torch.Tensor]:
    tensors = {}
    async for name, tensor in ensure_async_iterator(weights):
        whole = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
        tensors[name] = whole.detach().float().contiguous().clone()
    return tensors


@CheckpointEngineRegistry.register("disk")
class Disk(CheckpointEngine):
    """Weights from the trainer to rollout servers of their own, for ``separate_async``."""

    def __init__(self, bucket_size: int, is_master: bool = False, **_: Any) -> None: ...

    def prepare(self) -> dict[str, Any]:
        return {}

    @classmethod
    def build_topology(cls, *_: Any) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        return {}, {}

    def init_process_group(self, **_: Any) -> None: ...

    def finalize(self) -> None: ...

    @staticmethod
    def path(steps: int | None) -> Path:
        return Path(os.environ["ART_WEIGHTS"]) / f"sent-{steps}.safetensors"

    async def send_weights(self, weights: Any, global_steps: int | None = None) -> dict[str, Any]:
        path = self.path(global_steps)
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(await gathered(weights), f"{path}.part")
        Path(f"{path}.part").rename(path)
        return {}

    async def receive_weights(self, global_steps: int | None = None) -> AsyncIterator[Any]:
        while not self.path(global_steps).exists():
            await asyncio.sleep(0.05)
        for name, tensor in load_file(self.path(global_steps)).items():
            yield name, tensor


class Adapter(BaseRollout):
    """The trainer's end of a weight update: a checkpoint on disk that vLLM loads."""

    async def resume(self, tags: Any) -> None: ...

    async def release(self) -> None: ...

    async def update_weights(
        self, weights: AsyncIterator[Any] | Iterator[Any], global_steps: Any = None, **_: Any
    ) -> None:
        folder = Path(os.environ["ART_WEIGHTS"]) / str(global_steps)
        shutil.copytree(self.model_config.local_path, folder, dirs_exist_ok=True)
        tensors = await gathered(weights)
        save_file(tensors, str(folder / "model.safetensors"), metadata={"format": "pt"})
        call = {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}}
        async with httpx.AsyncClient(base_url=URL, timeout=300) as http:
            await http.post("/pause", params={"mode": "wait"})
            (await http.post("/collective_rpc", json=call)).raise_for_status()
            await http.post("/reset_prefix_cache")
            await http.post("/resume")
        await ray.get_actor(f"{NAME}_0").set_steps.remote(global_steps)


RolloutReplicaRegistry.register(NAME, lambda: Replica)
rollout_base._ROLLOUT_REGISTRY[NAME, "async"] = f"{__name__}.Adapter"
