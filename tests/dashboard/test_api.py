"""What the server answers: the shape of every answer, and what it makes of damage."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from agentcore_rl_toolkit.dashboard import DashboardServer
from agentcore_rl_toolkit.dashboard.live import endpoint_of
from agentcore_rl_toolkit.dashboard.rollout import RolloutView
from agentcore_rl_toolkit.dashboard.run import Run
from agentcore_rl_toolkit.dashboard.server import encode
from agentcore_rl_toolkit.dashboard.sums import stages
from agentcore_rl_toolkit.dashboard.token import token_answer
from agentcore_rl_toolkit.run.index import RolloutHead

from .sample import AT, TIMINGS, Sample, conversation, whole


async def get(server: DashboardServer, path: str, status: int = 200) -> Any:
    async with aiohttp.ClientSession() as http, http.get(f"{server.url}/api/{path}") as answer:
        assert answer.status == status, await answer.text()
        return await answer.json() if status == 200 else await answer.text()


async def test_the_list_of_runs_says_how_each_stands(dashboard: DashboardServer) -> None:
    (run,) = (await get(dashboard, "runs"))["runs"]
    assert (run["name"], run["state"], run["step"], run["steps"]) == ("one", "ended", 1, 2)
    assert (run["rollouts"], run["reward"], run["first_success"]) == (8, 0.5, 0.25)
    assert (run["agent"], run["model"], run["rewards"]) == ("math", "model", [0.5])


async def test_a_folder_that_is_a_run_itself_is_the_only_run(runs: Path) -> None:
    async with DashboardServer(runs / "one", port=0) as server:
        assert [run["name"] for run in (await get(server, "runs"))["runs"]] == ["one"]


async def test_where_the_rollouts_went_sums_to_all_of_them(dashboard: DashboardServer) -> None:
    run = await get(dashboard, "runs/one")
    counts = {part["name"]: part["count"] for part in run["where"]}
    assert counts == {"trained": 3, "session_lost": 1, "equal": 2, "waiting": 1, "evaluated": 1}
    assert sum(part["share"] for part in run["where"]) == pytest.approx(1.0)
    assert run["problems"] == []
    assert [m["kind"] for m in run["metrics"]] == ["eval", "step"]
    assert run["config"].startswith("agent:")
    assert run["stages"] == {
        "rollouts": 8,
        "seconds": pytest.approx(TIMINGS),
        "slow": TIMINGS,
        "slow_whole": pytest.approx(3.95),
    }


async def test_each_stage_of_a_rollout_is_told(runs: Path) -> None:
    """Also of a run from before rewards were told apart: without that stage."""
    sample = Sample(runs / "old")
    old = {name: value for name, value in TIMINGS.items() if name != "reward_s"}
    sample.rollout("train-000000-0000", 0, 1.0, timings=old)
    sample.close()
    async with DashboardServer(runs, port=0) as dashboard:
        assert (await get(dashboard, "runs/one/rollouts/1"))["timings"] == TIMINGS
        (line,) = (await get(dashboard, "runs/old/timeline"))["rollouts"]
        assert line["timings"] == old
        assert (await get(dashboard, "runs/old"))["stages"]["seconds"] == old


async def test_each_part_of_where_they_went_can_be_looked_at(dashboard: DashboardServer) -> None:
    for part in (await get(dashboard, "runs/one"))["where"]:
        found = await get(dashboard, f"runs/one/rollouts?fate={part['name']}")
        assert found["total"] == part["count"], part["name"]


async def test_what_failed_is_told_once_for_all_that_are_alike(tmp_path: Path) -> None:
    sample = Sample(tmp_path / "run")
    for number, error in enumerate(["gone after 12 s", "no room", "gone after 345 s"]):
        failure = "timeout" if "gone" in error else "quota"
        sample.rollout("train-000000-0000", number, None, failure=failure, error=error)
    sample.rollout("train-000000-0000", 3, None, failure="agent", error="x" * 10_000)
    sample.close()
    async with DashboardServer(tmp_path, port=0) as server:
        causes = (await get(server, "runs/run"))["failures"]
        whole = await get(server, "runs/run/rollouts/3")
    assert [(c["failure"], c["count"], c["n"]) for c in causes] == [
        ("timeout", 2, 2),
        ("quota", 1, 1),
        ("agent", 1, 3),
    ]
    assert causes[0]["error"] == "gone after 345 s"
    assert len(causes[2]["error"]) < 1000 < len(whole["error"])


def test_the_slow_ones_are_those_that_one_in_twenty_exceeds() -> None:
    heads = [RolloutHead(timings={"agent_s": float(i)}) for i in range(100)]
    assert stages(heads)["slow"] == {"agent_s": 95.0}
    heads += [RolloutHead(timings={}) for _ in range(100)]
    assert stages(heads)["slow"] == {"agent_s": 90.0}
    assert stages([])["slow_whole"] == 0.0


FILTERS = [
    ("", 8),
    ("phase=eval", 1),
    ("phase=train&step=1", 1),
    ("outcome=solved", 3),
    ("outcome=failed", 1),
    ("outcome=session_lost", 1),
    ("text=-0001-", 2),
    ("text=nobody", 0),
]


@pytest.mark.parametrize(("query", "count"), FILTERS, ids=[f[0] or "none" for f in FILTERS])
async def test_the_table_is_filtered(dashboard: DashboardServer, query: str, count: int) -> None:
    found = await get(dashboard, f"runs/one/rollouts?{query}")
    assert found["total"] == len(found["rollouts"]) == count


async def test_the_table_is_sorted_and_cut_into_pages(dashboard: DashboardServer) -> None:
    found = await get(dashboard, "runs/one/rollouts?sort=-reward&limit=3&offset=1")
    assert found["total"] == 8
    assert [one["reward"] for one in found["rollouts"]] == [1.0, 1.0, 0.0]
    first = await get(dashboard, "runs/one/rollouts?limit=1")
    assert first["rollouts"][0]["n"] == 7  # the latest


async def test_a_rollout_has_conversation_group_result_and_command(
    dashboard: DashboardServer,
) -> None:
    one = await get(dashboard, "runs/one/rollouts/train-000000-0000-0")
    first, second, third = one["turn_list"]
    assert [m["role"] for m in first["messages"]] == ["system", "user"]
    (call,) = first["answer"]["calls"]
    assert (call["name"], call["arguments"]) == ("calculator", '{"expression": "2 + 2"}')
    assert [m["text"] for m in second["messages"]] == ["4"]  # only what is new
    assert second["parent"] == third["parent"] == first["turn_id"]  # a branch
    assert third["fork"] == "rewrite"
    assert second["advantage"] == pytest.approx(2**0.5, abs=1e-3)
    *advantages, lost = [sibling["advantage"] for sibling in one["group"]]
    assert advantages == pytest.approx([2**0.5, -(0.5**0.5), -(0.5**0.5)], abs=1e-3)
    assert lost is None
    assert one["result"]["payload"] == {"prompt": "2 + 2", "answer": "4"}
    assert one["rerun"].startswith("art deploy examples/math --local && art invoke math ")
    assert len(one["row_list"]) == 2
    assert one["drift"] == {"clean": 1, "stitched": 0, "forked": 1}
    assert one["problems"] == []


async def test_a_rollout_that_failed_says_why(dashboard: DashboardServer) -> None:
    one = await get(dashboard, "runs/one/rollouts/4")
    assert (one["failure"], one["error"]) == ("session_lost", "session_lost: it broke")
    assert (one["turn_list"], one["result"], one["rerun"]) == ([], None, None)


async def test_tokens_come_with_text_figures_and_marks(dashboard: DashboardServer) -> None:
    answer = await get(dashboard, "runs/one/rollouts/1/tokens")
    columns = answer["columns"]
    assert columns["ids"] == [1, 2, 3, 10, 11, 12, 4, 5, 13, 14]
    assert columns["mask"] == [0, 0, 0, 1, 1, 1, 0, 0, 1, 1]
    assert columns["logprobs"] == pytest.approx([0, 0, 0, -0.1, -0.2, -0.3, 0, 0, -0.1, -0.2])
    assert columns["versions"] == [["0", 3, 6], ["0", 8, 10]]
    assert set(columns["texts"]) == {str(i) for i in columns["ids"]}
    assert [(p["start"], p["end"], p["kind"]) for p in columns["pieces"]] == [
        (0, 3, "context"),
        (3, 6, "sampled"),
        (6, 8, "context"),
        (8, 10, "sampled"),
    ]
    assert columns["turns"][0]["advantage"] == pytest.approx(2**0.5, abs=1e-3)
    fork = (await get(dashboard, "runs/one/rollouts/1/tokens?row=1"))["columns"]
    assert fork["mask"] == [0, 0, 0, 0, 0, 0, 0, 1]  # what both rows share is trained in the first
    assert (fork["pieces"][0]["fork"], fork["pieces"][0]["parts_at"]) == ("rewrite", 6)


async def test_without_a_tokenizer_there_are_ids_only(tmp_path: Path) -> None:
    sample = Sample(tmp_path / "bare", config="model: {path: /nowhere}\n")
    sample.rollout("train-000000-0000", 0, 1.0, graph=conversation("train-000000-0000-0"))
    sample.close()
    async with DashboardServer(tmp_path, port=0) as server:
        columns = (await get(server, "runs/bare/rollouts/0/tokens"))["columns"]
    assert (columns["texts"], columns["tokenizer"]) == ({}, False)


async def test_the_time_line_has_the_rollouts_of_one_step(dashboard: DashboardServer) -> None:
    answer = await get(dashboard, "runs/one/timeline?phase=train&step=0")
    assert (answer["total"], len(answer["rollouts"])) == (6, 6)
    bar = answer["rollouts"][0]
    assert bar["at"] - bar["begin"] == pytest.approx(bar["seconds"]) == pytest.approx(3.95)
    last = await get(dashboard, "runs/one/timeline")
    assert (last["phase"], last["step"]) == ("train", 1)
    assert {"phase": "eval", "step": 0} in last["steps"]


async def test_an_export_is_a_file_with_everything(dashboard: DashboardServer) -> None:
    async with (
        aiohttp.ClientSession() as http,
        http.get(f"{dashboard.url}/api/runs/one/rollouts/1/export") as answer,
    ):
        named = answer.headers["Content-Disposition"]
        body = await answer.json()
    assert named == 'attachment; filename="train-000000-0000-0.json"'
    assert [row["reward"] for row in body["rows"]] == [1.0, 1.0]
    assert body["turn_list"]


UNKNOWN = [
    "runs/two",
    "runs/..",
    "runs/one/rollouts/99",
    "runs/one/rollouts/-1",
    "runs/one/rollouts/nobody/tokens",
    "nothing",
]


@pytest.mark.parametrize("path", UNKNOWN)
async def test_what_is_not_there_is_not_found(dashboard: DashboardServer, path: str) -> None:
    await get(dashboard, path, status=404)


async def test_a_filter_that_is_no_number_is_refused(dashboard: DashboardServer) -> None:
    assert "step must be" in await get(dashboard, "runs/one/rollouts?step=x", status=400)


# --- bad input --------------------------------------------------------------------------------


async def test_a_crashed_run_shows_what_can_be_read_and_says_what_not(tmp_path: Path) -> None:
    sample = whole(tmp_path / "crashed")
    sample.close(ended=False)
    with (tmp_path / "crashed" / "rollouts.jsonl").open("ab") as file:
        file.write(b'not json\n[1]\n{"rollout_id": 5}\n{"rollout_id": "half')
    with (tmp_path / "crashed" / "metrics.jsonl").open("ab") as file:
        file.write(b"\xff\xfe\n")
    (journal,) = (tmp_path / "crashed" / "turns").glob("*.journal")
    journal.write_bytes(journal.read_bytes()[:-7])
    async with DashboardServer(tmp_path, port=0) as server:
        run = await get(server, "runs/crashed")
        last = await get(server, "runs/crashed/rollouts/7")
        first = await get(server, "runs/crashed/rollouts/0")
    assert (run["state"], run["rollouts"]) == ("stopped", 8)
    told = [problem["message"] for problem in run["problems"]]
    assert len([m for m in told if "no rollout" in m]) == 3
    assert any("half written" in m for m in told)
    assert any("not JSON" in m for m in told)
    assert any("not whole" in problem["message"] for problem in last["problems"])
    assert len(last["turn_list"]) == len(first["turn_list"]) == 2


async def test_a_damaged_frame_costs_its_turns_and_no_others(tmp_path: Path) -> None:
    sample = whole(tmp_path / "one")
    sample.close()
    (journal,) = (tmp_path / "one" / "turns").glob("*.journal")
    body = bytearray(journal.read_bytes())
    at = body.index(b"session-train-000000-0001-0/1")
    body[at : at + 7] = b"\x00" * 7
    journal.write_bytes(body)
    async with DashboardServer(tmp_path, port=0) as server:
        hurt = await get(server, "runs/one/rollouts/train-000000-0001-0")
        sound = await get(server, "runs/one/rollouts/train-000000-0001-1")
    assert len(hurt["turn_list"]) == 1
    assert any("damaged" in problem["message"] for problem in hurt["problems"])
    assert len(sound["turn_list"]) == 2


async def test_files_that_are_no_run_break_nothing(tmp_path: Path) -> None:
    odd = tmp_path / "odd"
    odd.mkdir()
    (odd / "config.yaml").write_text("{unclosed: [")
    (odd / "metrics.jsonl").write_text('{"kind": "step"}\n{"kind": "step", "step": "x"}\n')
    (odd / "turns").mkdir()
    (odd / "turns" / "gateway-000001.journal").write_bytes(b"something else entirely")
    (odd / "rollouts.jsonl").write_text('{"rollout_id": "a", "session_id": "../../etc/passwd"}\n')
    async with DashboardServer(tmp_path, port=0) as server:
        await get(server, "runs")
        run = await get(server, "runs/odd")
        one = await get(server, "runs/odd/rollouts/a")
        await get(server, "runs/odd/timeline")
    assert any("YAML" in problem["message"] for problem in run["problems"])
    assert any("not a journal" in problem["message"] for problem in one["problems"])
    assert one["result"] is None


def test_a_run_that_somebody_writes_is_live_and_then_stopped(tmp_path: Path) -> None:
    sample = Sample(tmp_path / "now")
    sample.rollout("train-000000-0000", 0, 1.0)
    run = Run(tmp_path / "now")
    run.poll()
    assert run.state() == "live"
    sample.close(ended=False)
    assert run.state() == "stopped"


async def test_live_sessions_and_logs_come_from_the_runs_own_runtime(
    tmp_path: Path, deployed: tuple[str, str]
) -> None:
    url, session_id = deployed
    sample = Sample(tmp_path / "runs" / "now")
    sample.out.event({"at": AT, "event": "started", "endpoint_url": url})
    sample.rollout("train-000000-0000", 0, 1.0, session_id=session_id)
    async with DashboardServer(tmp_path / "runs", port=0) as server:
        found = await get(server, "runs/now/sessions")
        log = await get(server, "runs/now/rollouts/0/log")
    sample.close()
    (session,) = found["sessions"]
    assert (found["reachable"], session["session_id"]) == (True, session_id)
    assert session["memory_bytes"] > 0
    assert "hello from the agent" in log["log"]


async def test_logs_that_the_run_keeps_need_no_runtime(tmp_path: Path) -> None:
    sample = Sample(tmp_path / "runs" / "now")
    sample.out.event({"at": AT, "event": "resumed", "endpoint_url": "http://127.0.0.1:1"})
    (tmp_path / "secret.log").write_text("not for you")
    for number, session_id in enumerate(["kept", "../../secret", "..", "a\0b"]):
        sample.rollout("train-000000-0000", number, 1.0, session_id=session_id, failure="agent")
    (sample.path / "logs" / "kept.log").write_bytes(b"x" * 300_000 + b"the end")
    async with DashboardServer(tmp_path / "runs", port=0) as server:
        logs = [(await get(server, f"runs/now/rollouts/{n}/log"))["log"] for n in range(4)]
    sample.close()
    assert logs[0].endswith("the end")
    assert len(logs[0]) == 256 * 1024
    assert logs[1:] == [None, None, None]


async def test_a_runtime_that_is_gone_is_said_to_be(tmp_path: Path) -> None:
    sample = Sample(tmp_path / "now")
    sample.out.event({"at": AT, "event": "started", "endpoint_url": "http://127.0.0.1:1"})
    sample.rollout("train-000000-0000", 0, 1.0)
    async with DashboardServer(tmp_path, port=0) as server:
        found = await get(server, "runs/now/sessions")
        log = await get(server, "runs/now/rollouts/0/log")
    sample.close()
    assert (found["reachable"], found["sessions"], log["log"]) == (False, [], None)


def test_only_this_machine_is_asked_for_sessions(tmp_path: Path) -> None:
    sample = Sample(tmp_path / "run")
    run = Run(tmp_path / "run")
    for url, expected in [
        ("http://127.0.0.1:8585", "http://127.0.0.1:8585"),
        ("http://attacker.invalid:80", None),
        ("file:///etc/passwd", None),
        ("http://127.0.0.1:1/elsewhere", None),
    ]:
        sample.out.event({"at": AT, "event": "resumed", "endpoint_url": url})
        run.poll()
        assert endpoint_of(run) == expected
    sample.close()


@pytest.mark.parametrize("seed", range(8))
def test_whatever_bytes_are_hurt_there_is_an_answer(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    whole(tmp_path / "one").close(ended=False)
    for path in sorted(p for p in (tmp_path / "one").rglob("*") if p.is_file()):
        body = bytearray(path.read_bytes())
        for _ in range(chance.randrange(4) if body else 0):
            at = chance.randrange(len(body))
            match chance.randrange(3):
                case 0:
                    body[at] ^= 1 << chance.randrange(8)
                case 1:
                    body[at : at + chance.randrange(40)] = b""
                case _:
                    body[at:at] = chance.randbytes(chance.randrange(1, 40))
            if not body:
                break
        path.write_bytes(body)
    run = Run(tmp_path / "one")
    encode(run.summary())
    encode(run.rollouts())
    encode(run.timeline("", None))
    for n in range(len(run.index.heads)):
        view = RolloutView(run, n)
        encode(view.export())
        encode(token_answer(view, 0))
