"""The control plane: runtimes, versions, endpoints and tags on the AWS wire.

Answers requests that ``check.py`` has read; ``deployment.py`` does the work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar
from urllib.parse import unquote

from aiohttp import web

from .. import local
from . import wire
from .check import check_config, check_name, check_tags, read_json, runtime_id_of
from .deployment import Deployments, timeouts_of
from .registry import DEFAULT_ENDPOINT, PENDING, Endpoint, Runtime, Version
from .session import Sessions

T = TypeVar("T")


class ControlPlane:
    def __init__(self, deployments: Deployments, sessions: Sessions) -> None:
        self.deployments, self.sessions = deployments, sessions
        self.registry = deployments.registry

    async def handle(self, request: web.Request, segments: list[str]) -> web.Response:
        """``segments``: the path after ``/runtimes/``; the last is empty for the trailing slash."""
        match request.method, segments:
            case "PUT", [""]:
                return await self.create(await read_json(request))
            case "POST", [""]:
                return self.list_runtimes(request)
            case "GET", [runtime_id, ""]:
                return self.get(self.runtime(runtime_id), request.query.get("version"))
            case "PUT", [runtime_id, ""]:
                return await self.update(self.runtime(runtime_id), await read_json(request))
            case "DELETE", [runtime_id, ""]:
                return await self.delete(self.runtime(runtime_id), request.query.get("version"))
            case "POST", [runtime_id, "versions", ""]:
                return self.list_versions(self.runtime(runtime_id), request)
            case "POST", [runtime_id, "runtime-endpoints", ""]:
                return self.list_endpoints(self.runtime(runtime_id), request)
            case "PUT", [runtime_id, "runtime-endpoints", ""]:
                return self.create_endpoint(self.runtime(runtime_id), await read_json(request))
            case method, [runtime_id, "runtime-endpoints", name, ""]:
                return await self.endpoint(request, method, self.runtime(runtime_id), unquote(name))
        raise wire.not_implemented(f"{request.method} {request.path}")

    def runtime(self, segment: str) -> Runtime:
        return self.deployments.runtime(unquote(segment))

    # --- runtimes -----------------------------------------------------------------------------

    async def create(self, body: dict[str, Any]) -> web.Response:
        name = check_name(body.get("agentRuntimeName"), "agentRuntimeName")
        config = check_config(body)
        token = str(body.get("clientToken") or "")
        runtime = self.registry.by_name(name)
        if runtime is not None:
            if not token or runtime.client_token != token:
                raise wire.conflict(f"An agent runtime with the name {name!r} exists already")
            version = runtime.versions.get("1")
            if version is None:
                raise wire.conflict(f"The agent runtime {name!r} is being created")
        else:
            runtime = await self.deployments.create(name, config, token, check_tags(body))
            version = runtime.versions["1"]
        return wire.json_response(
            {
                "agentRuntimeArn": local.runtime_arn(runtime.runtime_id),
                "agentRuntimeId": runtime.runtime_id,
                "agentRuntimeVersion": version.number,
                "createdAt": wire.timestamp(runtime.created),
                "status": version.status,
            },
            202,
        )

    async def update(self, runtime: Runtime, body: dict[str, Any]) -> web.Response:
        config = check_config(body)
        token = str(body.get("clientToken") or "")
        version = next(
            (v for v in runtime.versions.values() if token and v.client_token == token), None
        )
        if version is None:
            self.check_settled(runtime)
            version = await self.deployments.add_version(runtime, config, token)
        return wire.json_response(
            {
                "agentRuntimeArn": local.runtime_arn(runtime.runtime_id),
                "agentRuntimeId": runtime.runtime_id,
                "agentRuntimeVersion": version.number,
                "createdAt": wire.timestamp(runtime.created),
                "lastUpdatedAt": wire.timestamp(runtime.updated),
                "status": version.status,
            },
            202,
        )

    def get(self, runtime: Runtime, number: str | None) -> web.Response:
        version = self.version(runtime, number)
        timeouts = timeouts_of(version.config)
        members = {
            **version.config,
            **summary(runtime, version),
            "createdAt": wire.timestamp(runtime.created),
            "lifecycleConfiguration": {
                "idleRuntimeSessionTimeout": int(timeouts.idle_s),
                "maxLifetime": int(timeouts.lifetime_s),
            },
        }
        if version.failure:
            members["failureReason"] = version.failure
        return wire.json_response(members)

    async def delete(self, runtime: Runtime, number: str | None) -> web.Response:
        self.check_settled(runtime)
        members = {"status": "DELETING", "agentRuntimeId": runtime.runtime_id}
        if number is None:
            # Out of the registry first: nothing can start a session of it any more.
            self.deployments.unregister(runtime)
            await self.end_sessions(runtime, None, "the agent runtime was deleted")
            self.deployments.discard(runtime)
            return wire.json_response(members, 202)
        version = self.version(runtime, number)
        serving = [e.name for e in runtime.endpoints.values() if number in (e.live, e.target)]
        if serving:
            raise wire.conflict(f"Version {number} is served by the endpoint {serving[0]}")
        self.deployments.unregister(runtime, version.number)
        await self.end_sessions(runtime, number, "the version was deleted")
        self.deployments.discard(runtime, version.number)
        return wire.json_response({**members, "agentRuntimeVersion": number}, 202)

    async def end_sessions(self, runtime: Runtime, number: str | None, reason: str) -> None:
        for session in self.sessions.of_runtime(runtime.runtime_id, number):
            await self.sessions.end(session, reason)

    def list_runtimes(self, request: web.Request) -> web.Response:
        runtimes = [r for r in self.registry.runtimes.values() if r.versions]
        page, token = paginate(request, runtimes, lambda r: r.runtime_id)
        return listing("agentRuntimes", [summary(r, r.latest) for r in page], token)

    def list_versions(self, runtime: Runtime, request: web.Request) -> web.Response:
        versions = sorted(runtime.versions.values(), key=lambda v: int(v.number))
        page, token = paginate(request, versions, lambda v: v.number.zfill(8))
        return listing("agentRuntimes", [summary(runtime, v) for v in page], token)

    def version(self, runtime: Runtime, number: str | None) -> Version:
        if number is None and runtime.versions:
            return runtime.latest
        found = runtime.versions.get(number or "")
        if found is None:
            raise wire.not_found(f"{runtime.runtime_id} has no version {number}")
        return found

    def check_settled(self, runtime: Runtime) -> None:
        if not runtime.versions or runtime.latest.status in PENDING:
            raise wire.conflict(
                f"The agent runtime {runtime.runtime_id} is being changed: wait until it is READY"
            )

    # --- endpoints ----------------------------------------------------------------------------

    async def endpoint(
        self, request: web.Request, method: str, runtime: Runtime, name: str
    ) -> web.Response:
        _, endpoint = self.deployments.find(runtime.runtime_id, name)
        if method == "GET":
            return wire.json_response(endpoint_members(runtime, endpoint))
        if method == "PUT":
            return self.update_endpoint(runtime, endpoint, await read_json(request))
        if method == "DELETE":
            return await self.delete_endpoint(runtime, endpoint)
        raise wire.not_implemented(f"{method} {request.path}")

    def create_endpoint(self, runtime: Runtime, body: dict[str, Any]) -> web.Response:
        name = check_name(body.get("name"), "name")
        token = str(body.get("clientToken") or "")
        endpoint = runtime.endpoints.get(name)
        if endpoint is not None and (not token or endpoint.client_token != token):
            raise wire.conflict(f"The endpoint {name!r} exists already")
        if endpoint is None:
            version = self.ready_version(runtime, body.get("agentRuntimeVersion"))
            endpoint = self.registry.add_endpoint(runtime, name, version.number)
            endpoint.live, endpoint.client_token = version.number, token
            endpoint.description = str(body.get("description") or "")
            self.registry.save()
        members = endpoint_members(runtime, endpoint)
        return wire.json_response({**members, "endpointName": name}, 202)

    def update_endpoint(
        self, runtime: Runtime, endpoint: Endpoint, body: dict[str, Any]
    ) -> web.Response:
        if endpoint.name == DEFAULT_ENDPOINT:
            raise wire.conflict("DEFAULT follows the latest version and cannot be moved")
        if body.get("agentRuntimeVersion") is not None:
            version = self.ready_version(runtime, body["agentRuntimeVersion"])
            endpoint.target = endpoint.live = version.number
        if body.get("description") is not None:
            endpoint.description = str(body["description"])
        self.registry.touch(endpoint)
        self.deployments.retire_unused(runtime)
        return wire.json_response(endpoint_members(runtime, endpoint), 202)

    async def delete_endpoint(self, runtime: Runtime, endpoint: Endpoint) -> web.Response:
        if endpoint.name == DEFAULT_ENDPOINT:
            raise wire.conflict("DEFAULT goes with its agent runtime and cannot be deleted alone")
        del runtime.endpoints[endpoint.name]
        self.registry.save()
        for session in self.sessions.of_runtime(runtime.runtime_id):
            if session.key.qualifier == endpoint.name:
                await self.sessions.end(session, "the endpoint was deleted")
        self.deployments.retire_unused(runtime)
        return wire.json_response({"status": "DELETING"}, 202)

    def list_endpoints(self, runtime: Runtime, request: web.Request) -> web.Response:
        page, token = paginate(request, list(runtime.endpoints.values()), lambda e: e.name)
        items = [endpoint_members(runtime, endpoint) for endpoint in page]
        return listing("runtimeEndpoints", items, token)

    def ready_version(self, runtime: Runtime, number: str | None) -> Version:
        version = self.version(runtime, number)
        if version.status != "READY":
            raise wire.conflict(f"Version {version.number} is {version.status}, not READY")
        return version

    # --- tags ---------------------------------------------------------------------------------

    async def tags(self, request: web.Request, segment: str) -> web.Response:
        runtime = self.deployments.runtime(runtime_id_of(segment))
        if request.method == "GET":
            return wire.json_response({"tags": runtime.tags})
        if request.method == "POST":
            runtime.tags |= check_tags(await read_json(request))
        elif request.method == "DELETE":
            for key in request.query.getall("tagKeys", []):
                runtime.tags.pop(key, None)
        else:
            raise wire.not_implemented(f"{request.method} {request.path}")
        self.registry.save()
        return web.Response(status=204)


# --- shapes -----------------------------------------------------------------------------------


def summary(runtime: Runtime, version: Version) -> dict[str, Any]:
    return {
        "agentRuntimeArn": local.runtime_arn(runtime.runtime_id),
        "agentRuntimeId": runtime.runtime_id,
        "agentRuntimeVersion": version.number,
        "agentRuntimeName": runtime.name,
        "description": version.config.get("description") or "",
        "lastUpdatedAt": wire.timestamp(runtime.updated),
        "status": version.status,
    }


def endpoint_members(runtime: Runtime, endpoint: Endpoint) -> dict[str, Any]:
    arn = local.runtime_arn(runtime.runtime_id)
    target = runtime.versions[endpoint.target]
    members = {
        "agentRuntimeEndpointArn": f"{arn}/runtime-endpoint/{endpoint.name}",
        "agentRuntimeArn": arn,
        "name": endpoint.name,
        "id": endpoint.endpoint_id,
        "status": target.status,
        "createdAt": wire.timestamp(endpoint.created),
        "lastUpdatedAt": wire.timestamp(endpoint.updated),
        "targetVersion": endpoint.target,
        "description": endpoint.description,
    }
    if endpoint.live:
        members["liveVersion"] = endpoint.live
    if target.failure:
        members["failureReason"] = target.failure
    return members


def listing(name: str, items: list[dict[str, Any]], token: str | None) -> web.Response:
    return wire.json_response({name: items} | ({"nextToken": token} if token else {}))


def paginate(
    request: web.Request, items: Iterable[T], key: Callable[[T], str]
) -> tuple[list[T], str | None]:
    """Tokens are the last key given out: stable while items come and go."""
    raw = request.query.get("maxResults", "100")
    if not raw.isdecimal() or not 1 <= int(raw) <= 100:
        raise wire.invalid(f"maxResults must be 1 to 100, got {raw!r}", "maxResults")
    after = request.query.get("nextToken", "")
    rest = sorted((item for item in items if key(item) > after), key=key)
    page = rest[: int(raw)]
    return page, key(page[-1]) if len(rest) > len(page) else None
