"""What every level gives a session."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import sys
from pathlib import Path

import pytest

from agentcore_rl_toolkit.errors import ConfigError, IsolationError
from agentcore_rl_toolkit.runtime import isolation
from agentcore_rl_toolkit.runtime.isolation.inside import tree

from .conftest import ASGI, PLAIN, Workshop, call, eventually, ping, run_inside


async def test_a_session_is_forked_and_answers(workshop: Workshop) -> None:
    template = await workshop.template()
    compute = await template.spawn(workshop.spec())
    assert await ping(compute) == "Healthy"
    assert (template.level, template.mode, template.note) == (workshop.level, "zygote", "")
    assert compute.stats().processes == 2
    assert 0 < compute.stats().memory_bytes < 100e6


async def test_connections_made_before_the_agent_serves_are_answered(workshop: Workshop) -> None:
    slow = "import time\nfrom agent import run\n"
    agent = workshop.agent(slow + "time.sleep(0.3)\nrun()\n", zygote=False)
    (agent.folder / "agent.py").write_text(ASGI)
    compute = await (await workshop.prepare(agent)).spawn(workshop.spec())
    assert await ping(compute) == "Healthy"


async def test_sessions_share_neither_memory_nor_files(workshop: Workshop) -> None:
    template = await workshop.template()
    one, two = [await template.spawn(workshop.spec()) for _ in range(2)]
    write = (
        "COUNTER['value'] += 1; value = COUNTER['value']\n"
        "for place in ('.', os.environ['HOME'], os.environ['TMPDIR']):\n"
        "    open(os.path.join(place, 'mine'), 'x').close()"
    )
    assert await run_inside(one, write) == 1
    assert await run_inside(two, write) == 1
    folder = template.agent.folder  # type: ignore[attr-defined]
    assert os.listdir(folder) == ["rl_app.py"]


async def test_a_session_works_in_its_own_view_of_the_agents_folder(workshop: Workshop) -> None:
    agent = workshop.agent()
    (agent.folder / "data").mkdir()
    (agent.folder / "data" / "prompt.txt").write_text("original")
    compute = await (await workshop.prepare(agent)).spawn(workshop.spec())
    code = "open('data/prompt.txt', 'w').write('changed'); value = open('data/prompt.txt').read()"
    assert await run_inside(compute, code) == "changed"
    assert (agent.folder / "data" / "prompt.txt").read_text() == "original"


async def test_only_the_given_environment_is_there(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_HOST", "x")
    template = await workshop.template(env={"OF_AGENT": "a", "BOTH": "agent"})
    one, two = [await template.spawn(workshop.spec(BOTH=str(n))) for n in range(2)]
    seen = await run_inside(one, "value = dict(os.environ)")
    assert seen["OF_AGENT"] == "a"
    assert seen["BOTH"] == "0"
    assert await run_inside(two, "value = os.environ['BOTH']") == "1"
    assert set(seen) <= {
        *("PATH", "LANG", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "LC_CTYPE"),
        "OPENBLAS_NUM_THREADS",
        *("HOME", "TMPDIR", "OF_AGENT", "BOTH", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
        *("http_proxy", "https_proxy", "no_proxy", "PYTHONPATH"),
    }


async def test_generators_of_forked_sessions_differ(workshop: Workshop) -> None:
    template = await workshop.template("import numpy, random\n" + PLAIN)
    assert template.mode == "zygote"
    draw = "value = [numpy.random.random(), random.random(), os.urandom(8).hex()]"
    drawn = [await run_inside(await template.spawn(workshop.spec()), draw) for _ in range(3)]
    for column in zip(*drawn, strict=True):
        assert len(set(column)) == 3


@pytest.mark.slow
async def test_the_generator_of_torch_is_seeded_anew_in_every_session(workshop: Workshop) -> None:
    pytest.importorskip("torch")
    template = await workshop.template("import torch\n" + PLAIN, init_timeout_s=120)
    assert (template.mode, template.note) == ("zygote", "")
    draw = "value = torch.rand(1).item()"
    drawn = [await run_inside(await template.spawn(workshop.spec()), draw) for _ in range(2)]
    assert drawn[0] != drawn[1]


async def test_what_the_app_registers_is_redone_in_every_session(workshop: Workshop) -> None:
    source = (
        "import os\n"
        "from agentcore_rl_toolkit import AgentCoreRLApp\n"
        "app = AgentCoreRLApp()\n"
        "made_by = os.getpid()\n"
        "@app.after_fork\n"
        "def again():\n"
        "    global made_by\n"
        "    made_by = os.getpid()\n"
        "@app.entrypoint\n"
        "def handler(payload):\n"
        "    return [made_by, os.getpid()]\n"
        "if __name__ == '__main__':\n    app.run()\n"
    )
    template = await workshop.template(source)
    assert (template.mode, template.note) == ("zygote", "")
    for _ in range(2):
        compute = await template.spawn(workshop.spec())
        made_by, here = await call(compute, "/invocations", "{}")
        assert made_by == here


async def test_output_goes_to_the_sessions_log(workshop: Workshop) -> None:
    template = await workshop.template("print('at import')\n" + PLAIN)
    spec = workshop.spec()
    compute = await template.spawn(spec)
    await run_inside(compute, "print('out'); print('err', file=sys.stderr); os.system('echo sub')")
    assert spec.log_path.read_text().split() == ["out", "err", "sub"]
    assert spec.log_path.stat().st_mode & 0o777 == 0o600
    assert await run_inside(compute, "value = sys.stdin.read()") == ""


async def test_a_failing_import_carries_the_agents_traceback(workshop: Workshop) -> None:
    with pytest.raises(IsolationError) as caught:
        await workshop.template("def broken():\n    raise KeyError('of the agent')\nbroken()\n")
    text = str(caught.value)
    assert "KeyError: 'of the agent'" in text
    assert "in broken" in text
    assert "script.py" not in text


async def test_a_script_that_never_serves_is_refused(workshop: Workshop) -> None:
    with pytest.raises(IsolationError, match=r"without serving.*app\.run") as caught:
        await workshop.template("print('nothing to do')\n")
    assert "nothing to do" in str(caught.value)
    with pytest.raises(IsolationError, match="exit code 3"):
        await workshop.template("raise SystemExit(3)\n")


async def test_a_script_that_kills_its_process_is_refused(workshop: Workshop) -> None:
    with pytest.raises(IsolationError, match="ended its process"):
        await workshop.template("import os\nprint('last words', flush=True)\nos._exit(0)\n")


async def test_a_hanging_import_is_given_up(workshop: Workshop) -> None:
    with pytest.raises(IsolationError, match=r"within 0\.5 s"):
        await workshop.template("import time\ntime.sleep(60)\n", init_timeout_s=0.5)


async def test_a_missing_interpreter_is_named(workshop: Workshop) -> None:
    with pytest.raises(IsolationError, match="/no/such/python"):
        await workshop.template(python="/no/such/python")


THREAD = (
    "import threading, time\nthreading.Thread(target=time.sleep, args=(9,), daemon=True).start()\n"
)
UNFORKABLE = {
    "a thread": (THREAD, "thread"),
    "a socket": ("import socket\nkept = socket.socket()\n", "socket"),
    "an event loop": ("import asyncio\nloop = asyncio.new_event_loop()\n", "open"),
}


@pytest.mark.parametrize(("source", "reason"), UNFORKABLE.values(), ids=UNFORKABLE)
async def test_an_agent_that_cannot_be_forked_gets_fresh_interpreters(
    workshop: Workshop, source: str, reason: str
) -> None:
    template = await workshop.template(source + PLAIN)
    assert template.mode == "exec"
    assert reason in template.note
    one, two = await asyncio.gather(*(template.spawn(workshop.spec(N=n)) for n in "12"))
    assert await ping(one) == await ping(two) == "Healthy"
    assert await run_inside(one, "value = [os.environ['N'], __name__]") == ["1", "__main__"]
    await one.kill()
    assert await ping(two) == "Healthy"


async def test_the_zygote_can_be_switched_off(workshop: Workshop) -> None:
    template = await workshop.template(zygote=False)
    compute = await template.spawn(workshop.spec())
    assert template.mode == "exec"
    assert await ping(compute) == "Healthy"
    assert "_ART_FRESH" not in await run_inside(compute, "value = dict(os.environ)")


async def test_the_real_app_runs(workshop: Workshop) -> None:
    source = (
        "from bedrock_agentcore import BedrockAgentCoreApp\n"
        "app = BedrockAgentCoreApp()\n"
        "@app.entrypoint\n"
        "def handler(payload, context):\n"
        "    return {'got': payload, 'session': context.session_id}\n"
        "if __name__ == '__main__':\n    app.run()\n"
    )
    template = await workshop.template(source)
    compute = await template.spawn(workshop.spec())
    assert (template.mode, template.note) == ("zygote", "")
    answer = await call(compute, "/invocations", '{"x": 1}')
    assert answer == {"got": {"x": 1}, "session": None}


async def test_why_a_session_ended_is_told(workshop: Workshop) -> None:
    template = await workshop.template()
    ends = {"os._exit(3)": "exit code 3", "os.kill(os.getpid(), 9)": "signal 9"}
    for code, reason in ends.items():
        compute = await template.spawn(workshop.spec())
        with pytest.raises(ValueError, match="Expecting value"):
            await run_inside(compute, code)
        assert await compute.wait() == reason
    compute = await template.spawn(workshop.spec())
    await asyncio.gather(compute.kill(), compute.kill())
    await compute.kill()
    assert await compute.wait() == "stopped"


DAEMON = (
    "import subprocess, time\n"
    "subprocess.Popen(['/bin/sh', '-c', 'setsid setsid sleep 600 & setsid sleep 601 &'])\n"
    "while len(os.popen('pgrep -x sleep').read().split()) < 2: time.sleep(0.01)\n"
    "value = os.getpid()\n"
)


async def test_daemonised_grandchildren_end_with_the_session(workshop: Workshop) -> None:
    template = await workshop.template(
        ASGI + "import signal\nsignal.signal(15, signal.SIG_IGN)\nrun()"
    )
    compute = await template.spawn(workshop.spec())
    await run_inside(compute, DAEMON)
    family = [compute.pid, *tree.descendants(compute.pid)]
    assert len(family) >= 4
    await compute.kill()
    assert not alive(family)


async def test_daemonised_grandchildren_end_when_the_agent_exits(workshop: Workshop) -> None:
    template = await workshop.template()
    compute = await template.spawn(workshop.spec())
    await run_inside(compute, DAEMON)
    family = [compute.pid, *tree.descendants(compute.pid)]
    with pytest.raises(ValueError, match="Expecting value"):
        await run_inside(compute, "os._exit(0)")
    assert await compute.wait() == "exit code 0"
    assert not alive(family)


def alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if os.path.exists(f"/proc/{pid}/exe") or _running(pid)]


def _running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


async def test_a_killed_zygote_takes_its_sessions_and_is_replaced(workshop: Workshop) -> None:
    template = await workshop.template()
    compute = await template.spawn(workshop.spec())
    await run_inside(compute, DAEMON)
    zygote = tree.parents()[compute.pid]
    family = [zygote, compute.pid, *tree.descendants(compute.pid)]
    os.kill(zygote, 9)
    await compute.wait()
    await eventually(lambda: not alive(family))
    again = await template.spawn(workshop.spec())
    assert await ping(again) == "Healthy"


async def test_a_killed_init_takes_its_session_only(workshop: Workshop) -> None:
    template = await workshop.template()
    one, two = [await template.spawn(workshop.spec()) for _ in range(2)]
    await run_inside(one, DAEMON)
    family = [one.pid, *tree.descendants(one.pid)]
    os.kill(one.pid, 9)
    assert await one.wait() == "killed"
    await eventually(lambda: not alive(family))
    assert await ping(two) == "Healthy"


RUNTIME = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from conftest import Workshop, run_inside
async def main():
    shop = Workshop(Path(sys.argv[1]), sys.argv[2])
    template = await shop.template()
    computes = [await template.spawn(shop.spec()) for _ in range(3)]
    await run_inside(computes[0], {daemon!r})
    computes[1].freeze()
    print(*(compute.pid for compute in computes), flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


async def test_a_killed_runtime_leaves_nothing_running(level: str, tmp_path: Path) -> None:
    source = RUNTIME.format(tests=str(Path(__file__).parent), daemon=DAEMON)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    env = {**os.environ, "TMPDIR": str(temporary)}
    runtime = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", source, str(tmp_path), level),
        stdout=asyncio.subprocess.PIPE,
        env=env,
    )
    assert runtime.stdout is not None
    pids = [int(word) for word in (await runtime.stdout.readline()).split()]
    family = [*pids, *tree.descendants(runtime.pid)]
    assert len(alive(family)) > 8
    runtime.kill()
    await runtime.wait()
    await eventually(lambda: not alive(family))
    assert list(temporary.glob("art-session-*")), "a killed runtime cannot remove its own"
    start = "from agentcore_rl_toolkit.runtime.template import Templates\nTemplates(lambda _: None)"
    following = await asyncio.create_subprocess_exec(sys.executable, "-c", start, env=env)
    assert await following.wait() == 0
    assert not list(temporary.glob("art-*"))


@pytest.mark.parametrize("zygote", [True, False], ids=["forked", "fresh"])
async def test_an_agent_that_is_asked_to_end_does_so_at_once(
    workshop: Workshop, zygote: bool
) -> None:
    """uvicorn is not left to look for it: see ``script.TICK_S``."""
    compute = await (await workshop.template(zygote=zygote)).spawn(workshop.spec())
    await run_inside(compute, "import signal; os.kill(os.getpid(), signal.SIGTERM); value = 1")
    assert await asyncio.wait_for(compute.wait(), 60) in ("signal 15", "exit code 0")


async def test_closing_a_template_ends_its_sessions(workshop: Workshop) -> None:
    template = await workshop.template()
    computes = [await template.spawn(workshop.spec()) for _ in range(3)]
    family = [pid for one in computes for pid in (one.pid, *tree.descendants(one.pid))]
    await template.close()
    assert not alive(family)
    assert [await compute.wait() for compute in computes] == ["stopped"] * 3


async def test_a_network_level_that_cannot_be_kept_is_refused(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, "process")
    with pytest.raises(IsolationError, match="'none' needs isolation level 'namespace'"):
        await shop.template(network="none")


def test_auto_takes_the_strongest_level_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    strongest = isolation.drivers()["namespace"]
    if strongest.probe().available:
        assert isolation.select("auto") is strongest
    monkeypatch.setattr(type(strongest), "probe", lambda _: isolation.Probe(False, "forbidden"))
    assert isolation.select("auto").level == "process"
    with pytest.raises(IsolationError, match=r"'namespace' does not work here: forbidden\."):
        isolation.select("namespace")


def test_an_unknown_level_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="'container' is not one of auto, "):
        isolation.select("container")


OWN_PORT = """
import http.server, json
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        data = json.dumps({"status": "Healthy"}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
http.server.HTTPServer(("0.0.0.0", 8080), Handler).serve_forever()
"""


@pytest.mark.parametrize("program", [False, True], ids=["python", "a program"])
async def test_an_agent_with_its_own_port_is_dialled_in_its_network(
    workshop: Workshop, program: bool
) -> None:
    agent = workshop.agent(OWN_PORT)
    if program:
        start = agent.folder / "start"
        start.write_text(f"#!/bin/sh\nexec {sys.executable} /app/rl_app.py\n")
        start.chmod(0o755)
        agent = dataclasses.replace(agent, entry="start")
    if workshop.level == "process":
        with pytest.raises(IsolationError, match="binds port 8080 itself"):
            await workshop.prepare(agent)
        return
    template = await workshop.prepare(agent)
    assert template.mode == "exec"
    assert ("not Python" if program else "binds port 8080") in template.note
    computes = [await template.spawn(workshop.spec()) for _ in range(2)]
    assert [await ping(compute) for compute in computes] == ["Healthy"] * 2


async def test_a_uvicorn_that_is_run_in_an_own_way_serves_too(workshop: Workshop) -> None:
    own = (
        "import asyncio\n"
        "config = uvicorn.Config(app, port=8080, log_level='warning')\n"
        "asyncio.run(uvicorn.Server(config).serve())\n"
    )
    template = await workshop.template(ASGI + own)
    assert template.mode == "exec"
    assert "event loop of its own" in template.note
    assert await ping(await template.spawn(workshop.spec())) == "Healthy"


async def test_a_frozen_session_stands_still_and_answers_again(workshop: Workshop) -> None:
    template = await workshop.template()
    compute = await template.spawn(workshop.spec())
    reader, writer = await asyncio.open_connection(sock=await compute.connect())
    assert compute.freeze()
    writer.write(b"GET /ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    answer = asyncio.ensure_future(reader.read())
    await asyncio.sleep(0.05)
    assert not answer.done()
    compute.thaw()
    assert (await answer).startswith(b"HTTP/1.1 200")
    writer.close()
    compute.freeze()
    assert await ping(compute) == "Healthy", "a new connection thaws"
    compute.freeze()
    await compute.kill()
    assert await compute.wait() == "stopped"
    assert not compute.freeze()


@pytest.mark.parametrize("port", [8080, 80, 40123])
async def test_the_runtime_can_listen_inside_on_any_port(workshop: Workshop, port: int) -> None:
    compute = await (await workshop.template()).spawn(workshop.spec())
    listener = await compute.listen_inside(port)
    if workshop.level == "process":
        assert listener is None
        return
    assert listener is not None
    listener.setblocking(False)
    loop = asyncio.get_running_loop()
    code = f"import socket\nwith socket.create_connection(('127.0.0.1', {port}), 5): value = 1"
    asked = asyncio.ensure_future(run_inside(compute, code))
    connection, _ = await asyncio.wait_for(loop.sock_accept(listener), 60)
    connection.close()
    assert await asked == 1
    with pytest.raises(OSError, match="in use"):
        await compute.listen_inside(port)
    listener.close()
    await compute.kill()
    with pytest.raises(OSError, match="ended"):
        await compute.listen_inside(port + 1)
