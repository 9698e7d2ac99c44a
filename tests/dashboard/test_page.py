"""The page in a real browser: every view, a run that grows, and content that wants to do harm."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from agentcore_rl_toolkit.dashboard import DashboardServer
from agentcore_rl_toolkit.dashboard.page import single_page
from agentcore_rl_toolkit.dashboard.rollout import RolloutView
from agentcore_rl_toolkit.dashboard.run import Run

from .browser import CHROMIUM, Page, chromium, new_page
from .sample import HOSTILE, Sample, Talk, conversation, said, turn, user, whole

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium here: apt-get install chromium"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[str]:
    with chromium() as address:
        yield address


@pytest.fixture
async def page(browser: str) -> AsyncIterator[Page]:
    async with new_page(browser) as page:
        yield page


def open_run(runs: Path, name: str) -> Run:
    run = Run(runs / name)
    run.poll()
    return run


async def texts(page: Page, selector: str) -> list[str]:
    script = f"[...document.querySelectorAll({selector!r})].map((e) => e.textContent)"
    found: list[str] = await page.evaluate(script)
    return found


async def test_every_view_shows_what_it_promises(dashboard: DashboardServer, page: Page) -> None:
    await page.open(f"{dashboard.url}/#/")
    assert await texts(page, "tbody a") == ["one"]
    assert await texts(page, "tbody .pill") == ["ended"]

    await page.open(f"{dashboard.url}/#/run/one")
    assert await texts(page, "h1") == ["one"]
    assert "Reward" in " ".join(await texts(page, ".chart figcaption"))
    assert (await texts(page, "#where tfoot td"))[-1] == "100.0 %"
    await page.until("document.querySelectorAll('.timeline svg a').length === 1")
    assert len(await texts(page, "#rollouts tbody tr")) == 8
    assert await page.evaluate("document.querySelectorAll('.plot svg path').length") >= 0

    await page.open(f"{dashboard.url}/#/run/one/rollout/1")
    assert await texts(page, ".call b") == ["calculator"]
    assert await texts(page, ".branch .fork") == ["branch: rewrite"]
    assert len(await texts(page, "#group tbody tr")) == 4
    assert "art invoke" in (await texts(page, ".command"))[0]

    await page.open(f"{dashboard.url}/#/run/one/rollout/1/tokens")
    assert await page.evaluate("document.querySelectorAll('.box .t').length") == 10
    assert await page.evaluate("document.querySelectorAll('.box .t.on').length") == 5
    colours = ("log-probability", "mask", "advantage", "weight version", "entropy")
    for number, name in enumerate(colours, 1):
        await page.key(str(number))
        await page.until(f"document.querySelector('.pieces').dataset.colour === {name!r}")
    assert await page.evaluate("document.querySelectorAll('.box .t.e6').length") == 1
    await page.key("ArrowRight")
    assert "0.010 nats" in await page.until("document.querySelector('.inspect dl')?.textContent")
    await page.key("ArrowRight")
    await page.key("ArrowLeft")
    assert "\u22120.1000" in await page.until("document.querySelector('.inspect dl')?.textContent")
    await page.open(f"{dashboard.url}/#/run/one/rollout/1/tokens?row=1")
    assert "fork: rewrite" in await texts(page, ".piece .pill")
    assert page.console == []


async def test_conversation_and_tokens_lead_to_the_same_turn(tmp_path: Path, page: Page) -> None:
    sample = Sample(tmp_path / "run")
    graph = Talk("train-000000-0000-0")
    messages, ids = [user("begin")], [1]
    for number in range(30):
        turn(graph, messages, list(ids), said(f"answer {number}"), [20 + number] * 80)
        messages = [*messages, said(f"answer {number}"), user(f"go on {number}\n" * 5)]
        ids += [20 + number] * 80 + [2]
    sample.rollout("train-000000-0000", 0, 1.0, graph=graph)
    sample.close()
    place = """(() => { const { top, bottom } = document.querySelector(%r).getBoundingClientRect();
      return top >= 0 && bottom <= innerHeight; })()"""
    async with DashboardServer(tmp_path, port=0) as dashboard:
        await page.open(f"{dashboard.url}/#/run/run/rollout/0")
        links = "[...document.querySelectorAll('.answer a')]"
        await page.evaluate(f"{links}[25].click()")
        await page.until("document.querySelector('.piece.sampled.here') !== null")
        assert (await texts(page, ".piece.sampled.here b")) == ["turn 25, sampled"]
        await page.until(place % ".piece.sampled.here .who")
        await page.evaluate("document.querySelector('.piece.sampled.here a').click()")
        await page.until("document.getElementById('view').dataset.ready.includes('rollout/0?turn')")
        await page.until(place % f"[id='turn-{graph.made[25].turn_id}'] .answer .who")


async def test_the_keyboard_reaches_everything(dashboard: DashboardServer, page: Page) -> None:
    await page.open(f"{dashboard.url}/#/")
    for key, expected in [
        ("j", "#/"),
        ("Enter", "#/run/one"),
        ("j", "#/run/one"),
        ("Enter", "#/run/one/rollout/7"),
        ("t", "#/run/one/rollout/7/tokens"),
        ("u", "#/run/one/rollout/7"),
        ("u", "#/run/one"),
        ("u", "#/"),
    ]:
        await page.key(key)
        await page.until(f"document.getElementById('view').dataset.ready === {expected!r}")
    await page.key("?")
    await page.until("document.getElementById('help').open")
    await page.key("Escape")
    await page.open(f"{dashboard.url}/#/run/one/rollout/1")
    await page.key("]")
    await page.until("location.hash === '#/run/one/rollout/2'")


async def test_everything_has_a_name_for_those_who_do_not_see(
    dashboard: DashboardServer, page: Page
) -> None:
    nameless = """[...document.querySelectorAll("a, button, input, select, [role=img], dialog")]
      .filter((e) => e.checkVisibility() && !(e.textContent.trim() || e.ariaLabel || e.title
        || e.getAttribute("aria-labelledby"))).map((e) => e.outerHTML)"""
    for view in ("#/", "#/run/one", "#/run/one/rollout/1", "#/run/one/rollout/1/tokens"):
        await page.open(f"{dashboard.url}/{view}")
        assert await page.evaluate(nameless) == []
        assert await page.evaluate("document.querySelectorAll('h1').length") == 1
        assert await page.evaluate("document.documentElement.lang") == "en"


async def test_a_live_run_is_watched_from_its_start_to_its_end(runs: Path, page: Page) -> None:
    sample = Sample(runs / "live")
    async with DashboardServer(runs, port=0) as dashboard:
        await page.open(f"{dashboard.url}/#/run/live")
        await page.until("document.getElementById('status').textContent === 'live'")
        assert await texts(page, "#rollouts tbody .none") == ["no rollout matches"]
        for step in range(2):
            name = f"train-{step:06d}-0000"
            sample.rollout(name, 0, 1.0, graph=conversation(f"{name}-0"))
            await page.until(f"document.querySelectorAll('#rollouts tr.go').length === {step + 1}")
            sample.step(step + 1, 0.5 + 0.25 * step)
            await page.until(
                f"document.querySelector('.facts dd').textContent === '{step + 1} / 2'"
            )
        assert (await texts(page, "#where tfoot td"))[-1] == "100.0 %"
        sample.close()
        await page.until("document.getElementById('status').textContent === 'ended'")
        await page.until("document.querySelector('.title .pill').textContent === 'ended'")
    assert [line for line in page.console if "refused" not in line.lower()] == []


async def test_looking_at_a_live_run_is_not_disturbed_by_it(runs: Path, page: Page) -> None:
    """What was opened stays open, the keys' line stays, at each change."""
    sample = Sample(runs / "live")
    sample.rollout("train-000000-0000", 0, 1.0)
    async with DashboardServer(runs, port=0) as dashboard:
        await page.open(f"{dashboard.url}/#/run/live")
        await page.until("document.getElementById('status').textContent === 'live'")
        await page.evaluate("document.querySelector('details').open = true")
        await page.evaluate("document.querySelector('#rollouts a').focus()")
        await page.key("j")
        sample.rollout("train-000000-0000", 1, 1.0)
        await page.until("document.querySelectorAll('#rollouts tr.go').length === 2")
        assert await page.evaluate("document.querySelector('details').open")
        assert await texts(page, "tr.cursor a") == ["train-000000-0000-0"]
        focused = await page.evaluate("document.activeElement.textContent")
        assert focused == "train-000000-0000-0"
        sample.close()


async def test_the_list_of_runs_follows_new_and_growing_runs(runs: Path, page: Page) -> None:
    async with DashboardServer(runs, port=0) as dashboard:
        await page.open(f"{dashboard.url}/#/")
        assert await texts(page, "td.name") == ["one"]
        sample = Sample(runs / "two")
        await page.until("document.querySelectorAll('td.name').length === 2")
        sample.step(1, 0.5)
        await page.until("document.querySelector('tr.go').textContent.includes('0.500')")
        sample.close()
        await page.until("document.querySelectorAll('.pill.ended').length === 2")


async def test_what_failed_is_named_marked_and_leads_to_its_rollouts(
    dashboard: DashboardServer, page: Page
) -> None:
    await page.open(f"{dashboard.url}/#/run/one")
    assert await texts(page, "#failed td") == [
        "1",
        "session_lost",
        "session_lost: it broke",
        "train-000000-0000-3",
    ]
    assert "session_lost1" in await texts(page, ".chart .key")
    find = "[...document.querySelectorAll('#where button')].find((b) => b.textContent === %r)"
    await page.evaluate(find % "session lost" + ".click()")
    await page.until("document.querySelectorAll('#rollouts tr.go').length === 1")
    assert await texts(page, "#rollouts .why") == ["session_lost: it broke"]
    assert "fate=session_lost" in await page.evaluate("location.hash")
    await page.evaluate(find % "trained" + ".click()")
    await page.until("document.querySelectorAll('#rollouts tr.go').length === 3")


async def test_runs_are_compared_by_every_figure(runs: Path, page: Page) -> None:
    whole(runs / "two").close()
    async with DashboardServer(runs, port=0) as dashboard:
        await page.open(f"{dashboard.url}/#/?compare=one,two")
        titles = [title.strip() for title in await texts(page, ".chart figcaption")]
        assert titles == [
            "reward",
            "success",
            "tokens a rollout",
            "tokens a second",
            "staleness, steps",
            "failures: session_lost",
            "held-out success",
        ]
        labels = await page.evaluate(
            "[...document.querySelectorAll('.plot svg')].map((e) => e.ariaLabel)"
        )
        assert "one from 0.500 to 0.500; two from 0.500 to 0.500" in labels[0]


async def test_a_crashed_run_says_what_could_not_be_read(tmp_path: Path, page: Page) -> None:
    sample = whole(tmp_path / "crashed")
    sample.close(ended=False)
    with (tmp_path / "crashed" / "rollouts.jsonl").open("ab") as file:
        file.write(b'{"rollout_id": "half')
    async with DashboardServer(tmp_path, port=0) as dashboard:
        await page.open(f"{dashboard.url}/#/run/crashed")
        assert await texts(page, ".title .pill") == ["stopped"]
        assert "half written" in (await texts(page, ".problems li"))[0]
        assert len(await texts(page, "#rollouts tr.go")) == 8


async def test_hostile_content_does_nothing(tmp_path: Path, page: Page) -> None:
    """Everywhere that an agent, a model or a data set can write."""
    sample = Sample(tmp_path / "<img src=x onerror=alert(1)>", config=HOSTILE[0])
    evil = "\n".join(HOSTILE)
    for number, text in enumerate(HOSTILE):
        name = f"train-000000-0000-{number}"
        graph = Talk(name)
        call = {"function": {"name": text, "arguments": text}, "id": text}
        answer = {**said(evil), "tool_calls": [call], "reasoning_content": text}
        messages = [{"role": text, "content": text}, user(evil)]
        turn(graph, messages, [1, 2], answer, [3, 4], flags=[text], error=None)
        more = {"rollout_id": text, "error": evil, "session_id": f"session-{name}"}
        result = {"response": evil, text: text}
        sample.rollout("train-000000-0000", number, 1.0, graph=graph, result=result, **more)
    sample.step(1, 0.5, failures={evil: 1})
    sample.out.event({"at": 0.0, "event": evil, "endpoint_url": "http://attacker.invalid"})
    sample.close()
    async with DashboardServer(tmp_path, port=0) as dashboard:
        name = "%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E"
        for n in range(len(HOSTILE)):
            await page.open(f"{dashboard.url}/#/run/{name}/rollout/{n}")
            assert HOSTILE[0] in "".join(await texts(page, ".answer .text"))
        for view in ("", f"run/{name}", f"run/{name}/rollout/0/tokens"):
            await page.open(f"{dashboard.url}/#/{view}")
        assert await page.evaluate("window.pwned === undefined")
        assert (
            await page.evaluate("document.querySelectorAll('main img, iframe, style').length") == 0
        )
        own = [url for url in page.requests if not url.startswith((dashboard.url, "about:"))]
    view = RolloutView(open_run(tmp_path, "<img src=x onerror=alert(1)>"), 0)
    saved = tmp_path / "saved.html"
    saved.write_text(single_page(view, evil), encoding="utf-8")
    await page.open(f"{saved.as_uri()}#/run/{name}/rollout/0")
    assert HOSTILE[0] in "".join(await texts(page, ".answer .text"))
    assert await page.evaluate("window.pwned === undefined")
    assert own == []
    assert page.console == []


async def test_a_saved_page_needs_no_server(runs: Path, page: Page) -> None:
    saved = runs / "saved.html"
    saved.write_text(single_page(RolloutView(open_run(runs, "one"), 1)), encoding="utf-8")
    await page.send("Page.navigate", url=saved.as_uri())
    await page.until("document.getElementById('view')?.dataset.ready === '#/run/one/rollout/1'")
    assert await texts(page, ".call b") == ["calculator"]
    assert await texts(page, ".branch .fork") == ["branch: rewrite"]
    await page.key("t")
    await page.until("document.querySelectorAll('.box .t').length === 10")
    await page.open(f"{saved.as_uri()}#/run/one/rollout/1/tokens?row=1")
    assert "fork: rewrite" in await texts(page, ".piece .pill")
    await page.open(f"{saved.as_uri()}#/run/one/rollout/2")
    assert "one rollout only" in (await texts(page, "[role=alert]"))[0]
    assert [url for url in page.requests if not url.startswith(("file:", "about:"))] == []
    assert page.console == []


async def test_light_and_dark_follow_the_system(dashboard: DashboardServer, page: Page) -> None:
    seen = set()
    for scheme in ("light", "dark"):
        await page.scheme(scheme)
        await page.open(f"{dashboard.url}/#/run/one")
        seen.add(await page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert seen == {"rgb(255, 255, 255)", "rgb(15, 18, 22)"}


async def test_a_narrow_window_needs_no_sideways_scrolling(
    dashboard: DashboardServer, page: Page
) -> None:
    await page.size(420, 800)
    for view in ("#/", "#/run/one", "#/run/one/rollout/1", "#/run/one/rollout/1/tokens"):
        await page.open(f"{dashboard.url}/{view}")
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), view
