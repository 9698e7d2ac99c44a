"""What a session reaches through the runtime, and what it does not."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest
from aiohttp import web

from agentcore_rl_toolkit.runtime import isolation
from agentcore_rl_toolkit.runtime.egress import Egress, authorities, listed
from agentcore_rl_toolkit.runtime.isolation import Compute
from agentcore_rl_toolkit.runtime.isolation.namespace import PROXY_PORT
from agentcore_rl_toolkit.runtime.objects import ObjectServer, ObjectStore
from agentcore_rl_toolkit.runtime.relay import Streams, relay
from agentcore_rl_toolkit.runtime.server import RuntimeServer

from .isolation.conftest import Workshop, run_inside

NAMESPACE = isolation.drivers()["namespace"].probe()
needs_namespaces = pytest.mark.skipif(not NAMESPACE.available, reason=NAMESPACE.reason)
STORE_PORT = 8585
SESSION = "s" * 36
FETCH = """
import urllib.request, urllib.error
try:
    with urllib.request.urlopen({url!r}, timeout=5) as answer:
        value = [answer.status, answer.read().decode()]
except urllib.error.HTTPError as error:
    value = [error.code, error.read().decode()]
"""


def rollout(**values: str) -> bytes:
    block = {"exp_id": "e", "input_id": "i", "s3_bucket": "rollouts", "session_id": SESSION}
    return json.dumps({"prompt": "x", "_rollout": block | values}).encode()


class Place:
    """A session with its egress, and a small web server outside."""

    def __init__(self, shop: Workshop, objects: ObjectServer) -> None:
        self.shop, self.objects = shop, objects
        self.egresses: list[Egress] = []
        self.port = 0

    async def session(self, **changes: Any) -> tuple[Compute, Egress]:
        agent = self.shop.agent(**changes)
        compute = await (await self.shop.prepare(agent)).spawn(self.shop.spec())
        egress = Egress(SESSION, agent, compute, STORE_PORT, self.objects.handle)
        self.egresses.append(egress)
        await egress.open()
        return compute, egress


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for part in ("one ", "two ", request.path):
            await response.write(part.encode())
        return response

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", stream)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    store = ObjectStore(tmp_path / "objects")
    store.ensure_bucket("rollouts")
    made = Place(Workshop(tmp_path, "namespace"), ObjectServer(store))
    made.port = runner.addresses[0][1]
    yield made
    for egress in made.egresses:
        await egress.close()
    await made.shop.close()
    await runner.cleanup()
    store.close()


@needs_namespaces
async def test_the_gateway_of_the_payload_is_reachable_on_its_own_port(place: Place) -> None:
    compute, egress = await place.session()
    url = f"http://127.0.0.1:{place.port}/v1/chat"
    with pytest.raises(RuntimeError, match="refused"):
        await run_inside(compute, FETCH.format(url=url))
    for _ in range(2):
        await egress.permit(rollout(base_url=f"http://127.0.0.1:{place.port}/v1"))
    assert await run_inside(compute, FETCH.format(url=url)) == [200, "one two /v1/chat"]


@needs_namespaces
async def test_a_session_does_not_see_what_another_may_reach(place: Place) -> None:
    compute, _ = await place.session()
    _, other = await place.session()
    await other.permit(rollout(base_url=f"http://127.0.0.1:{place.port}/v1"))
    with pytest.raises(RuntimeError, match="refused"):
        await run_inside(compute, FETCH.format(url=f"http://127.0.0.1:{place.port}/"))


@needs_namespaces
async def test_the_store_takes_the_sessions_result_and_nothing_else(place: Place) -> None:
    compute, egress = await place.session()
    put = (
        "import urllib.request, urllib.error\n"
        "def put(key):\n"
        f"    url = 'http://127.0.0.1:{STORE_PORT}/rollouts/' + key\n"
        "    request = urllib.request.Request(url, b'{}', method='PUT')\n"
        "    try:\n"
        "        return urllib.request.urlopen(request, timeout=5).status\n"
        "    except urllib.error.HTTPError as error:\n"
        "        return error.code\n"
        f"value = [put('e/i/{SESSION}.json'), put('e/i/{'o' * 36}.json'), put('e')]\n"
    )
    assert await run_inside(compute, put) == [403, 403, 403]
    await egress.permit(rollout())
    assert await run_inside(compute, put) == [200, 403, 403]


@needs_namespaces
async def test_the_proxy_refuses_what_was_not_named_and_says_so(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    compute, egress = await place.session(network="allowlist", allow=("localhost:9", "10.0.0.1"))
    await egress.permit(rollout(base_url="http://gateway.invalid:8000/v1"))
    with caplog.at_level(logging.WARNING):
        status, text = await run_inside(compute, FETCH.format(url="http://elsewhere.invalid/"))
    assert status == 403
    assert "may not reach elsewhere.invalid:80" in text
    assert "egress refused" in caplog.text
    status, text = await run_inside(compute, FETCH.format(url="http://gateway.invalid:8000/v1"))
    assert (status, "cannot reach gateway.invalid" in text) == (502, True)


@needs_namespaces
async def test_a_permitted_name_does_not_lead_to_this_machine(place: Place) -> None:
    compute, _ = await place.session(network="allowlist", allow=(f"*.localhost:{place.port}",))
    ask = (
        "import socket\n"
        "sock = socket.create_connection(('127.0.0.1', 3128), 5)\n"
        f"sock.sendall(b'CONNECT trick.localhost:{place.port} HTTP/1.1\\r\\n\\r\\n')\n"
        "value = sock.recv(4096).decode()\n"
    )
    answer = await run_inside(compute, ask)
    assert answer.startswith(("HTTP/1.1 403", "HTTP/1.1 502"))


@needs_namespaces
@pytest.mark.parametrize("network", ["model", "none"])
async def test_nothing_else_is_reachable(place: Place, network: str) -> None:
    compute, egress = await place.session(network=network)
    if network == "none":
        await egress.permit(rollout(base_url=f"http://127.0.0.1:{place.port}/v1"))
    ask = (
        "import socket\n"
        "value = []\n"
        f"for address in [('127.0.0.1', {place.port}), ('169.254.169.254', 80), ('1.1.1.1', 53)]:\n"
        "    try:\n"
        "        socket.create_connection(address, 3).close()\n"
        "        value.append('reached')\n"
        "    except OSError as error:\n"
        "        value.append(error.errno)\n"
    )
    refused, unreachable = 111, 101
    assert await run_inside(compute, ask) == [refused, unreachable, unreachable]


@needs_namespaces
async def test_open_shares_the_network_of_the_machine(place: Place) -> None:
    compute, egress = await place.session(network="open")
    assert not egress.active
    answer = await run_inside(compute, FETCH.format(url=f"http://127.0.0.1:{place.port}/x"))
    assert answer == [200, "one two /x"]


HOARD = """
import builtins, socket
builtins.kept = []
value = []
for port in {ports}:
    held = []
    try:
        while len(held) < {many}:
            sock = socket.create_connection(('127.0.0.1', port), 5)
            sock.sendall(b'GET / HTTP/1.1\\r\\n')
            held.append(sock)
    except OSError as error:
        pass
    open_ones = 0
    for sock in held:
        sock.settimeout(0.2 if open_ones < 2 else 0.001)
        try:
            open_ones += sock.recv(1) != b''
        except TimeoutError:
            open_ones += 1
        except OSError:
            pass
    kept.extend(held)
    value.append(open_ones)
"""


@needs_namespaces
async def test_a_session_that_hoards_connections_leaves_its_neighbour_some(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("relay", "egress"):
        monkeypatch.setattr(f"agentcore_rl_toolkit.runtime.{module}.MAX_CONNECTIONS", 20)
    greedy, egress = await place.session()
    neighbour, other = await place.session()
    for one in (egress, other):
        await one.permit(rollout(base_url=f"http://127.0.0.1:{place.port}/v1"))
    before = len(os.listdir("/proc/self/fd"))
    ports = [place.port, STORE_PORT, PROXY_PORT]
    held = await run_inside(greedy, HOARD.format(ports=ports, many=60))
    assert all(0 < count <= 20 for count in held), held
    # One end of every connection at each door, the other of those that lead on; all in this test.
    assert len(os.listdir("/proc/self/fd")) - before < 20 * 6
    url = f"http://127.0.0.1:{place.port}/v1/chat"
    assert await run_inside(neighbour, FETCH.format(url=url)) == [200, "one two /v1/chat"]


async def test_a_relay_passes_on_each_half_close() -> None:
    heard = asyncio.get_running_loop().create_future()

    async def far(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"before")
        heard.set_result(await reader.read())  # until the near side has closed its half
        writer.write(b" after")
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(far, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()

    async def dial() -> Streams:
        return await asyncio.open_connection(*address)

    listener = socket.create_server(("127.0.0.1", 0))
    near = listener.getsockname()
    door = await relay(listener, dial)
    reader, writer = await asyncio.open_connection(*near)
    assert await reader.readexactly(6) == b"before"
    writer.write(b"question")
    writer.write_eof()
    assert await asyncio.wait_for(heard, 5) == b"question"
    assert await reader.read() == b" after"
    writer.close()
    await writer.wait_closed()
    await door.close()
    server.close()
    await server.wait_closed()


LISTED = {
    "the host on a web port": (("api.x.com",), "api.x.com", 443, True),
    "another port needs naming": (("api.x.com",), "api.x.com", 8443, False),
    "a named port": (("api.x.com:8443",), "api.x.com", 8443, True),
    "below a domain": (("*.x.com",), "a.b.x.com", 80, True),
    "not the domain itself": (("*.x.com",), "x.com", 80, False),
    "not a longer name": (("x.com",), "evilx.com", 80, False),
    "not a suffix without a dot": (("*.x.com",), "evilx.com", 80, False),
}


@pytest.mark.parametrize(("allow", "host", "port", "expected"), LISTED.values(), ids=LISTED)
def test_allowlist(allow: tuple[str, ...], host: str, port: int, expected: bool) -> None:
    assert listed(allow, host, port) is expected


def test_authorities_of_urls() -> None:
    urls = ["http://127.0.0.1:8000/sessions/k/v1", "https://Gateway.example/x", "http://[::1]:99/"]
    assert authorities([*urls, "no url", None]) == [
        ("127.0.0.1", 8000),
        ("gateway.example", 443),
        ("::1", 99),
    ]
    assert authorities([5, "http://h:notaport/", "ftp://h/"]) == []


@needs_namespaces
async def test_what_the_deployed_environment_names_is_reachable(place: Place) -> None:
    compute, _ = await place.session(env={"TOOL_URL": f"http://127.0.0.1:{place.port}/tool"})
    answer = await run_inside(compute, FETCH.format(url=f"http://127.0.0.1:{place.port}/tool"))
    assert answer == [200, "one two /tool"]


AGENT = """
import urllib.request
from agentcore_rl_toolkit import AgentCoreRLApp
app = AgentCoreRLApp()
@app.rollout_entrypoint
def handler(payload):
    url = payload["_rollout"]["base_url"] + "/chat"
    return {"rewards": 1.0, "heard": urllib.request.urlopen(url, timeout=10).read().decode()}
if __name__ == "__main__":
    app.run()
"""


@needs_namespaces
async def test_a_rollout_goes_through_the_whole_runtime(place: Place, tmp_path: Path) -> None:
    folder = tmp_path / "agent"
    folder.mkdir()
    (folder / "rl_app.py").write_text(AGENT)
    server = RuntimeServer(port=0, home=tmp_path / "home", isolation="namespace")
    async with server as runtime, aiohttp.ClientSession(runtime.url) as http:
        body = {
            "agentRuntimeName": "whole",
            "agentRuntimeArtifact": {
                "containerConfiguration": {"containerUri": f"{folder.as_uri()}#rl_app.py"}
            },
            "roleArn": "arn:aws:iam::000000000000:role/local",
        }
        if packages := os.environ.get("PYTHONPATH"):  # as ``test_ordinary_user`` runs it
            body["environmentVariables"] = {"PYTHONPATH": packages}
        async with http.put("/runtimes/", json=body) as answer:
            arn = quote((await answer.json())["agentRuntimeArn"], safe="")
        headers = {"X-Amzn-Bedrock-AgentCore-Runtime-Session-Id": SESSION}
        payload = rollout(base_url=f"http://127.0.0.1:{place.port}/v1")
        async with http.post(
            f"/runtimes/{arn}/invocations", data=payload, headers=headers
        ) as answer:
            assert (await answer.json())["status"] == "processing", await answer.text()
        result = await stored(http, f"/rollouts/e/i/{SESSION}.json")
    assert result["rewards"] == 1.0
    assert result["heard"] == "one two /v1/chat"


async def stored(http: aiohttp.ClientSession, path: str) -> Any:
    for _ in range(1000):
        async with http.get(path) as answer:
            if answer.status == 200:
                return json.loads(await answer.read())
        await asyncio.sleep(0.02)
    raise AssertionError("the result never came")
