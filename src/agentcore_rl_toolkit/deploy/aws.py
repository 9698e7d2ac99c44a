"""An agent on AWS: what is there is compared with what is wanted, and the difference is made.

``plan`` only reads. ``apply`` does the steps that are not "keep", in order; run again after a
failure it goes on where it stopped. Names follow from account, region and content, so nothing is
remembered between runs. A runtime's settings that are not ours (network, lifetime, authoriser) are
kept on update: UpdateAgentRuntime replaces everything.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import ConfigError
from . import image, package, resources
from .call import call, find
from .step import Account, Step, Wanted, code_key, nothing, repository_name

READY_S = 600.0
"""Snapshot platforms take minutes."""
ROLE_S = 60.0
"""How long a new role may be unknown to the service."""
POLL_S = (0.05, 2.0)


@dataclass
class Deployment:
    wanted: Wanted
    account: Account
    install: package.Install = package.install_for_arm

    def __post_init__(self) -> None:
        self.bucket = self.wanted.bucket or self.account.bucket()
        self.control = self.account.client("bedrock-agentcore-control")
        self.runtime: dict[str, Any] | None = None
        self._new_role = False

    # --- what is to be done -------------------------------------------------------------------

    def plan(self) -> list[Step]:
        wanted = self.wanted
        digest = digest_of(wanted)
        steps = [resources.bucket_step(self.account, self.bucket)]
        if wanted.image or wanted.container:
            steps += resources.image_steps(self.account, wanted, digest)
        else:
            steps.append(
                resources.code_step(self.account, wanted, self.bucket, digest, self.install)
            )
        role = resources.role_step(self.account, wanted, self.bucket)
        self._new_role = role.action == "create"
        steps.append(role)
        body = self.body(digest)
        steps.append(self.runtime_step(body))
        if wanted.qualifier:
            steps.append(self.endpoint_step(wanted.qualifier, steps[-1]))
        return steps

    def body(self, digest: str) -> dict[str, Any]:
        wanted, account = self.wanted, self.account
        if wanted.image or wanted.container:
            uri = wanted.image or account.image(repository_name(wanted.name), digest)
            artifact: dict[str, Any] = {"containerConfiguration": {"containerUri": uri}}
        else:
            place = {"bucket": self.bucket, "prefix": code_key(wanted.name, digest)}
            artifact = {
                "codeConfiguration": {
                    "code": {"s3": place},
                    "runtime": f"PYTHON_{package.PYTHON.replace('.', '_')}",
                    "entryPoint": [wanted.entry],
                }
            }
        return {
            "agentRuntimeArtifact": artifact,
            "roleArn": wanted.role or account.role_arn(wanted.name),
            "environmentVariables": dict(wanted.env),
        }

    def runtime_step(self, body: dict[str, Any]) -> Step:
        name = self.wanted.name
        found = find_runtime(self.control, name)
        if found is None:
            return Step("runtime", name, "create", do=lambda: self.create(body))
        self.runtime = found
        changed = [key for key, value in body.items() if (found.get(key) or {}) != value]
        if not changed and found["status"] == "READY":
            return Step("runtime", name, "keep", f"version {found['agentRuntimeVersion']}")
        why = ", ".join(changed) or f"it is {found['status']}"
        return Step("runtime", name, "update", f"new version: {why}", lambda: self.update(body))

    def endpoint_step(self, name: str, runtime: Step) -> Step:
        found = None
        if self.runtime is not None:
            runtime_id = self.runtime["agentRuntimeId"]
            found = find(
                self.control,
                "get_agent_runtime_endpoint",
                agentRuntimeId=runtime_id,
                endpointName=name,
            )
        if found is None:
            return Step("endpoint", name, "create", do=lambda: self.point(name, new=True))
        assert self.runtime is not None, "it has an endpoint"
        live, latest = found.get("liveVersion"), self.runtime["agentRuntimeVersion"]
        if runtime.action == "keep" and live == latest:
            return Step("endpoint", name, "keep", f"version {live}")
        return Step("endpoint", name, "update", f"from {live}", lambda: self.point(name, new=False))

    # --- doing it -----------------------------------------------------------------------------

    def apply(self, steps: list[Step], show: Callable[[Step], None]) -> dict[str, Any]:
        """The runtime's description, once it is READY."""
        for step in steps:
            show(step)
            if step.do is not nothing:
                step.do()
        assert self.runtime is not None, "one step makes it"
        return self.runtime

    def create(self, body: dict[str, Any]) -> None:
        network = {"networkMode": "PUBLIC"}
        deadline = time.monotonic() + (ROLE_S if self._new_role else 0.0)
        while True:
            try:
                made = call(
                    self.control,
                    "create_agent_runtime",
                    agentRuntimeName=self.wanted.name,
                    networkConfiguration=network,
                    **body,
                )
                break
            except ConfigError as error:
                # the service may not have heard of a role that was made a second ago
                if "role" not in str(error).lower() or time.monotonic() > deadline:
                    raise
                time.sleep(POLL_S[1])
        self.runtime = wait_ready(self.control, made["agentRuntimeId"])

    def update(self, body: dict[str, Any]) -> None:
        assert self.runtime is not None, "it was found"
        members = self.control.meta.service_model.operation_model("UpdateAgentRuntime")
        known = members.input_shape.members
        kept = {key: value for key, value in self.runtime.items() if key in known and value != ""}
        made = call(self.control, "update_agent_runtime", **{**kept, **body})
        self.runtime = wait_ready(self.control, made["agentRuntimeId"])

    def point(self, name: str, *, new: bool) -> None:
        assert self.runtime is not None, "made before its endpoint"
        where = {"agentRuntimeId": self.runtime["agentRuntimeId"]}
        version = self.runtime["agentRuntimeVersion"]
        if new:
            operation, named = "create_agent_runtime_endpoint", {"name": name}
        else:
            operation, named = "update_agent_runtime_endpoint", {"endpointName": name}
        call(self.control, operation, agentRuntimeVersion=version, **where, **named)


def digest_of(wanted: Wanted) -> str:
    """What names the zip or the image; nothing where one was given."""
    if wanted.image:
        return ""
    if wanted.container:
        return image.digest(wanted.folder, wanted.name, wanted.entry)
    return package.digest(wanted.folder)


def find_runtime(control: Any, name: str) -> dict[str, Any] | None:
    token: dict[str, str] = {}
    while True:
        page = call(control, "list_agent_runtimes", **token)
        for item in page["agentRuntimes"]:
            if item["agentRuntimeName"] == name:
                return call(control, "get_agent_runtime", agentRuntimeId=item["agentRuntimeId"])
        if not page.get("nextToken"):
            return None
        token = {"nextToken": page["nextToken"]}


def wait_ready(control: Any, runtime_id: str) -> dict[str, Any]:
    deadline, pause = time.monotonic() + READY_S, POLL_S[0]
    while True:
        found = call(control, "get_agent_runtime", agentRuntimeId=runtime_id)
        status = str(found["status"])
        if status == "READY":
            return found
        if status.endswith("_FAILED"):
            reason = found.get("failureReason", "no reason given")
            raise ConfigError(f"AWS could not start the agent ({status}): {reason}")
        if time.monotonic() > deadline:
            raise ConfigError(
                f"the runtime is still {status} after {READY_S:.0f} s: run the command again"
            )
        time.sleep(pause)
        pause = min(1.5 * pause, POLL_S[1])
