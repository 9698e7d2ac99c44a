"""Who may look, and what the page may load."""

from __future__ import annotations

from pathlib import Path

import aiohttp
import pytest

from agentcore_rl_toolkit.dashboard import DashboardServer
from agentcore_rl_toolkit.errors import ConfigError

TOKEN = "a-token-of-the-test"


async def ask(url: str, **headers: str) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as http,
        http.get(url, headers=headers, allow_redirects=False) as answer,
    ):
        return answer.status, await answer.text()


REFUSED = [
    pytest.param({"Host": "attacker.invalid"}, id="a name that was rebound to loopback"),
    pytest.param({"Host": ""}, id="no host"),
    pytest.param({"Host": "[bad"}, id="a host that is none"),
    pytest.param({"Origin": "http://attacker.invalid"}, id="a page of somebody else"),
    pytest.param({"Origin": "null"}, id="a page in a sandbox"),
    pytest.param({"Origin": "http://["}, id="an origin that is none"),
    pytest.param({"Sec-Fetch-Site": "cross-site"}, id="an image of somebody else's page"),
    pytest.param({"Sec-Fetch-Site": "same-site"}, id="another port of this machine"),
]


@pytest.mark.parametrize("headers", REFUSED)
async def test_others_are_refused(dashboard: DashboardServer, headers: dict[str, str]) -> None:
    for path in ("/api/runs", "/static/app.js"):
        status, text = await ask(dashboard.url + path, **headers)
        assert status == 403, text


async def test_the_page_itself_is_answered(dashboard: DashboardServer) -> None:
    for path in ("/", "/api/runs", "/static/style.css"):
        origin = {"Origin": dashboard.url, "Sec-Fetch-Site": "same-origin"}
        assert (await ask(dashboard.url + path, **origin))[0] == 200
    assert (await ask(dashboard.url.replace("127.0.0.1", "localhost") + "/"))[0] == 200


async def test_nothing_can_be_written(dashboard: DashboardServer) -> None:
    async with aiohttp.ClientSession() as http:
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            async with http.request(method, f"{dashboard.url}/api/runs/one") as answer:
                assert answer.status == 405


PATHS = ["/", "/static/app.js", "/api/runs", "/api/runs/one/rollouts/1/export", "/nothing"]


@pytest.mark.parametrize("path", PATHS)
async def test_every_answer_forbids_foreign_content(dashboard: DashboardServer, path: str) -> None:
    async with aiohttp.ClientSession() as http, http.get(dashboard.url + path) as answer:
        policy = answer.headers["Content-Security-Policy"]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy


OUTSIDE = ["/static/..%2fserver.py", "/static/%2e%2e%2fguard.py", "/static/__init__.py", "/static/"]


@pytest.mark.parametrize("path", OUTSIDE)
async def test_only_files_of_the_page_are_served(dashboard: DashboardServer, path: str) -> None:
    from yarl import URL

    url = URL(dashboard.url + path, encoded=True)
    async with aiohttp.ClientSession() as http, http.get(url) as answer:
        assert answer.status == 404


def test_another_address_demands_a_token(runs: Path) -> None:
    with pytest.raises(ConfigError, match="token"):
        DashboardServer(runs, host="0.0.0.0", port=0)


async def test_a_token_opens_the_page_once_and_stays_in_a_cookie(runs: Path) -> None:
    async with DashboardServer(runs, host="0.0.0.0", port=0, token=TOKEN) as server:
        url = f"http://127.0.0.1:{server.port}"
        assert (await ask(f"{url}/api/runs"))[0] == 401
        assert (await ask(f"{url}/?token=wrong"))[0] == 401
        assert (await ask(f"{url}/api/runs?token={TOKEN}"))[0] == 401
        assert (await ask(f"{url}/api/runs", Authorization="Bearer \udcff"))[0] == 401
        assert (await ask(f"{url}/api/runs", Authorization=f"Bearer {TOKEN}"))[0] == 200
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(cookie_jar=jar) as http:
            async with http.get(f"{url}/?token={TOKEN}") as answer:
                assert (answer.status, answer.url.query_string) == (200, "")
                cookie = answer.history[0].headers["Set-Cookie"]
            async with http.get(f"{url}/api/runs") as answer:
                assert answer.status == 200
            async with http.get(f"{url}/api/runs", headers={"Origin": "http://x.invalid"}) as no:
                assert no.status == 403
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
