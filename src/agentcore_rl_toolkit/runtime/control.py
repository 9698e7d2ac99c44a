"""The control plane: runtimes, versions, endpoints and tags on the AWS wire.

Answers requests that ``check.py`` has read; ``deployment.py`` does the work.
"""

from __future__ import annotations

import base64
from bisect import bisect_right
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import unquote

from aiohttp import web

from .. import local
from . import wire
from .awsquota import Control, Meter
from .check import (
    check_config,
    check_name,
    check_same,
    check_size,
    check_tags,
    check_text,
    check_token,
    read_json,
    tagged,
)
from .deployment import Deployments, timeouts_of
from .registry import DEFAULT_ENDPOINT, PENDING, Endpoint, Runtime, Version
from .session import Sessions

T = TypeVar("T")
KINDS: dict[str, Control] = {"GET": "gets", "POST": "lists"}
"""Of the methods that change nothing; lists are POST here."""


class ControlPlane:
    def __init__(
        self, deployments: Deployments, sessions: Sessions, meter: Meter | None = None
    ) -> None:
        self.deployments, self.sessions = deployments, sessions
        self.meter = meter or Meter()
        self.registry = deployments.registry

    async def handle(self, request: web.Request, segments: list[str]) -> web.Response:
        """``segments``: the path after ``/runtimes/``; the last is empty for the trailing slash."""
        self.meter.control(KINDS.get(request.method, "mutations"))
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
        config, token = self.check(body)
        runtime = self.registry.by_token(token) or self.registry.by_name(name)
        if runtime is not None:
            version = self.repeated(runtime, name, token)
            check_same(name == runtime.name and version.config == config)
        else:
            self.meter.room("runtimes", len(self.registry.runtimes))
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

    def check(self, body: dict[str, Any]) -> tuple[dict[str, Any], str]:
        quotas = self.meter.quotas
        config = check_config(body, quotas.shortest_s or 1)
        check_size(config.get("environmentVariables") or {}, quotas.variables_bytes)
        return config, check_token(body)

    def repeated(self, runtime: Runtime, name: str, token: str) -> Version:
        """The first version of a runtime that is there already: only the same request may have
        it."""
        if not token or runtime.client_token != token:
            raise wire.conflict(f"An agent runtime with the name {name!r} exists already")
        version = runtime.versions.get("1")
        if version is None:
            raise wire.conflict(f"The agent runtime {name!r} is being created")
        return version

    async def update(self, runtime: Runtime, body: dict[str, Any]) -> web.Response:
        config, token = self.check(body)
        if runtime.versions and (kept := runtime.latest.config.get("platformVersion")):
            config.setdefault("platformVersion", kept)
        version = next(
            (v for v in runtime.versions.values() if token and v.client_token == token), None
        )
        if version is not None:
            check_same(version.config == config)
        else:
            self.check_settled(runtime)
            self.meter.room("versions", len(runtime.versions))
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
        page, token = paginate(request, self.registry.ordered, lambda r: r.runtime_id)
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
        token, description = check_token(body), check_text(body, "description", 256)
        endpoint = runtime.endpoints.get(name)
        if endpoint is not None and (not token or endpoint.client_token != token):
            raise wire.conflict(f"The endpoint {name!r} exists already")
        if endpoint is not None:
            check_same(
                endpoint.description == description
                and body.get("agentRuntimeVersion") in (None, endpoint.target)
            )
        else:
            version = self.ready_version(runtime, body.get("agentRuntimeVersion"))
            tags = check_tags(body)
            self.meter.room("endpoints", len(runtime.endpoints))
            endpoint = self.registry.add_endpoint(runtime, name, version.number)
            endpoint.live, endpoint.client_token = version.number, token
            endpoint.description, endpoint.tags = description, tags
            self.registry.save(runtime)
        members = endpoint_members(runtime, endpoint)
        return wire.json_response({**members, "endpointName": name}, 202)

    def update_endpoint(
        self, runtime: Runtime, endpoint: Endpoint, body: dict[str, Any]
    ) -> web.Response:
        check_token(body)
        description = check_text(body, "description", 256)
        if endpoint.name == DEFAULT_ENDPOINT:
            raise wire.conflict("DEFAULT follows the latest version and cannot be moved")
        if body.get("agentRuntimeVersion") is not None:
            version = self.ready_version(runtime, body["agentRuntimeVersion"])
            endpoint.target = endpoint.live = version.number
        if description:
            endpoint.description = description
        self.registry.touch(runtime, endpoint)
        self.deployments.retire_unused(runtime)
        return wire.json_response(endpoint_members(runtime, endpoint), 202)

    async def delete_endpoint(self, runtime: Runtime, endpoint: Endpoint) -> web.Response:
        if endpoint.name == DEFAULT_ENDPOINT:
            raise wire.conflict("DEFAULT goes with its agent runtime and cannot be deleted alone")
        del runtime.endpoints[endpoint.name]
        self.registry.save(runtime)
        for session in self.sessions.of_runtime(runtime.runtime_id):
            if session.key.qualifier == endpoint.name:
                await self.sessions.end(session, "the endpoint was deleted")
        self.deployments.retire_unused(runtime)
        return wire.json_response({"status": "DELETING"}, 202)

    def list_endpoints(self, runtime: Runtime, request: web.Request) -> web.Response:
        endpoints = sorted(runtime.endpoints.values(), key=lambda e: e.name)
        page, token = paginate(request, endpoints, lambda e: e.name)
        items = [endpoint_members(runtime, endpoint) for endpoint in page]
        return listing("runtimeEndpoints", items, token)

    def ready_version(self, runtime: Runtime, number: str | None) -> Version:
        version = self.version(runtime, number)
        if version.status != "READY":
            raise wire.conflict(f"Version {version.number} is {version.status}, not READY")
        return version

    # --- tags ---------------------------------------------------------------------------------

    async def tags(self, request: web.Request, segment: str) -> web.Response:
        self.meter.control("gets" if request.method == "GET" else "mutations")
        runtime_id, name = tagged(segment)
        runtime = self.deployments.runtime(runtime_id)
        owner = self.deployments.find(runtime_id, name)[1] if name else runtime
        if request.method == "GET":
            return wire.json_response({"tags": owner.tags})
        if request.method == "POST":
            owner.tags = check_tags(await read_json(request), owner.tags)
        elif request.method == "DELETE":
            for key in request.query.getall("tagKeys", []):
                owner.tags.pop(key, None)
        else:
            raise wire.not_implemented(f"{request.method} {request.path}")
        self.registry.save(runtime)
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
    request: web.Request, ordered: list[T], key: Callable[[T], str]
) -> tuple[list[T], str | None]:
    """Tokens are the last key given out: stable while items come and go."""
    raw = request.query.get("maxResults", "100")
    if not raw.isdecimal() or not 1 <= int(raw) <= 100:
        raise wire.invalid(f"maxResults must be 1 to 100, got {raw!r}", "maxResults")
    after = read_token(request.query.get("nextToken", ""))
    start = bisect_right(ordered, after, key=key)
    page = ordered[start : start + int(raw)]
    more = start + len(page) < len(ordered)
    return page, base64.urlsafe_b64encode(key(page[-1]).encode()).decode() if more else None


def read_token(token: str) -> str:
    try:
        return base64.b64decode(token, b"-_", validate=True).decode()
    except ValueError as error:
        raise wire.invalid("nextToken is not one that was given out", "nextToken") from error
