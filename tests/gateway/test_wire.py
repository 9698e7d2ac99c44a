"""Bytes on the wire: events, ids, HTTP from engines, and what random input does to them."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcore_rl_toolkit.gateway.dialects import CHAT, COMPLETIONS
from agentcore_rl_toolkit.gateway.engines.openai import OpenAIStream, read_answer
from agentcore_rl_toolkit.gateway.fault import Refusal
from agentcore_rl_toolkit.gateway.text.prompt import PromptCache
from agentcore_rl_toolkit.gateway.upstream import Connection, Upstream, UpstreamError
from agentcore_rl_toolkit.gateway.wire import EventSplitter, cut_prompt_ids, pack_ids
from agentcore_rl_toolkit.trajectory.graph import SessionGraph

LINE = st.characters(exclude_characters="\n\r", exclude_categories=["Cs"])
BODY = b'{"model": "m", "messages": [{"role": "user", "content": "x"}]}'


@given(
    events=st.lists(
        st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]), min_size=1),
        max_size=8,
    ),
    cuts=st.lists(st.integers(1, 40), max_size=20),
    ending=st.sampled_from(["\n", "\r\n"]),
)
def test_events_survive_any_cutting(events: list[str], cuts: list[int], ending: str) -> None:
    data = "".join(f"data: {event}{ending}{ending}" for event in events).encode()
    splitter, found = EventSplitter(), []
    for cut in cuts:
        found += splitter.feed(data[:cut])
        data = data[cut:]
    found += splitter.feed(data)
    assert [event.decode() for event in found] == events


def test_comments_fields_and_missing_blank_lines() -> None:
    splitter = EventSplitter()
    assert splitter.feed(b": comment\n\nevent: x\nid: 1\ndata:a\ndata: b\n\ndata: c") == [b"a\nb"]
    assert splitter.end() == [b"c"]


@given(st.lists(st.integers(0, 2**31 - 1), max_size=2000), st.booleans())
def test_ids_are_packed_exactly(ids: list[int], spaced: bool) -> None:
    text = (", " if spaced else ",").join(map(str, ids)).encode()
    assert np.frombuffer(pack_ids(text), np.int32).tolist() == ids


@pytest.mark.parametrize("text", [b"1,x", b"1.5,2", b"99999999999", b"-", b'"a"', b"1,2," * 2000])
def test_what_is_not_ids_is_refused(text: bytes) -> None:
    with pytest.raises(Refusal, match=r"not a list of ids|not int32"):
        pack_ids(text)


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")], ids=["tight", "spaced"])
def test_a_streams_prompt_ids_are_found_however_its_json_is_spaced(separators: Any) -> None:
    """Relays that read and write JSON anew space it as they like."""
    stream = OpenAIStream(CHAT.parse(BODY[:-1] + b', "stream": true}'))
    logprobs = {"content": [{"token": "a", "logprob": -0.5}]}
    first = {"index": 0, "delta": {"content": ""}, "finish_reason": None}
    last = {"index": 0, "delta": {"content": "a"}, "logprobs": logprobs, "token_ids": [7]}
    events = [
        {"id": "c", "choices": [first], "prompt_token_ids": [1, 2, 3]},
        {"id": "c", "choices": [{**last, "finish_reason": "stop"}]},
    ]
    shown, held = stream.feed([json.dumps(e, separators=separators).encode() for e in events])
    assert b"token_ids" not in shown + held
    (choice,) = stream.result()
    assert choice.prompt_text is not None
    assert np.frombuffer(pack_ids(choice.prompt_text), np.int32).tolist() == [1, 2, 3]


@given(st.text(), st.lists(st.integers(0, 150_000), max_size=50))
def test_prompt_ids_are_cut_out_whatever_the_answer_says(text: str, ids: list[int]) -> None:
    answer = {"a": text, "prompt_token_ids": ids, "b": f'"prompt_token_ids":[{text}'}
    body = json.dumps(answer, separators=(",", ":"), ensure_ascii=False).encode()
    rest, cut = cut_prompt_ids(body)
    assert cut == ",".join(map(str, ids)).encode()
    assert json.loads(rest) == {**answer, "prompt_token_ids": []}


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_known_prompts_are_packed_like_unknown_ones(data: Any) -> None:
    """Random conversations with forks: the cache never changes an id."""
    graph, cache = SessionGraph("s"), PromptCache()
    held: list[list[int]] = [[data.draw(st.integers(0, 9))] * 1200]
    for _ in range(data.draw(st.integers(1, 6))):
        base = data.draw(st.sampled_from(held))
        keep = data.draw(st.integers(1, len(base)))
        more = data.draw(st.lists(st.integers(0, 150_000), max_size=20))
        prompt = base[:keep] + more
        text = ",".join(map(str, prompt)).encode()
        packed = cache.pack(text, graph)
        assert np.frombuffer(packed.whole(), np.int32).tolist() == prompt
        placement = graph.place(model="m", prompt_ids=packed)
        sampled = data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=5))
        turn = graph.make_turn(placement, sampled=sampled, logprobs=[-1.0] * len(sampled))
        graph.commit(turn)
        cache.learn(text, turn, turn.parent)
        held.append(prompt + sampled)


def refused(work: Callable[[], object]) -> int | None:
    """Status of the refusal, None when there was none."""
    try:
        work()
    except Refusal as refusal:
        return refusal.status
    return None


@given(st.binary(max_size=200))
def test_random_bodies_are_read_or_refused(body: bytes) -> None:
    for dialect in (CHAT, COMPLETIONS):
        assert refused(lambda dialect=dialect: dialect.parse(body)) in (None, 400)  # type: ignore[misc]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
CHOICE_KEYS = ("index", "message", "delta", "text", "logprobs", "finish_reason", "token_ids")


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(st.sampled_from(["choices", "id", "prompt_token_ids", "error"]), json_values)
    | st.fixed_dictionaries(
        {"choices": st.lists(st.dictionaries(st.sampled_from(CHOICE_KEYS), json_values))}
    )
)
def test_random_answers_are_captured_or_refused(answer: Any) -> None:
    body = json.dumps(answer).encode()
    ask = CHAT.parse(BODY)
    assert refused(lambda: read_answer(ask, body)) in (None, 502)
    stream = OpenAIStream(CHAT.parse(BODY[:-1] + b', "stream": true}'))
    assert refused(lambda: stream.feed([body])) in (None, 502)
    assert refused(stream.result) in (None, 502)
    stream.partial()


def event_of(number: int, **root: Any) -> bytes:
    choice = {"index": number % 2, "delta": {"content": f"w{number}"}, "finish_reason": None}
    choice |= {"logprobs": {"content": [{"logprob": -number / 8}]}, "token_ids": [number]}
    body = {"id": "c", "choices": [choice]} | root
    return json.dumps(body, separators=(",", ":")).encode()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from([{}, {"usage": None}, {"id": "other"}, {"x": [1]}]), max_size=12))
def test_events_read_together_are_those_read_one_by_one(roots: list[dict[str, Any]]) -> None:
    first = json.dumps({"choices": [], "prompt_token_ids": [7, 8]}, separators=(",", ":")).encode()
    events = [first, *(event_of(number, **root) for number, root in enumerate(roots))]
    ask = CHAT.parse(BODY[:-1] + b', "stream": true}')
    together, apart = OpenAIStream(ask), OpenAIStream(ask)
    sent, held = together.feed(list(events))
    parts = [apart.feed([event]) for event in events]
    as_json = [json.loads(event) for event in EventSplitter().feed(sent)]
    assert as_json == [json.loads(e) for part, _ in parts for e in EventSplitter().feed(part)]
    assert held == b"".join(kept for _, kept in parts)
    assert together.tokens == apart.tokens == len(roots)
    assert together.partial() == apart.partial()


def test_an_error_beside_a_choice_is_an_error() -> None:
    stream = OpenAIStream(CHAT.parse(BODY[:-1] + b', "stream": true}'))
    events = [event_of(number, error={"message": "out of memory"}) for number in range(3)]
    stream.feed([event_of(0)])
    assert refused(lambda: stream.feed(events)) == 502


def test_unknown_fields_of_an_answer_are_relayed() -> None:
    answer = {
        "id": "x",
        "new": {"a": 1},
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "a"},
                "also_new": [1],
                "token_ids": [5],
                "logprobs": {"content": [{"logprob": -0.5}]},
                "finish_reason": "stop",
            }
        ],
        "prompt_token_ids": [1, 2],
    }
    read = read_answer(CHAT.parse(BODY), json.dumps(answer).encode())
    seen = json.loads(read.body)
    assert seen["new"] == {"a": 1}
    assert seen["choices"][0]["also_new"] == [1]
    assert "token_ids" not in seen["choices"][0]
    assert "prompt_token_ids" not in seen


async def serve_bytes(*replies: bytes | None) -> tuple[asyncio.Server, str]:
    """A server that answers each request with bytes; None closes instead."""
    left = list(replies)

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while left:
                await reader.readuntil(b"\r\n\r\n")
                reply = left.pop(0)
                if reply is None:
                    break
                for byte in reply:
                    writer.write(bytes([byte]))
                await writer.drain()
        except asyncio.IncompleteReadError:
            pass
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    return server, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


HEAD = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("reply", "body"),
    [
        pytest.param(HEAD + b"Content-Length: 3\r\n\r\nabc", b"abc", id="length"),
        pytest.param(HEAD + b"content-length: 0\r\n\r\n", b"", id="empty"),
        pytest.param(
            HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1;x=y\r\nc\r\n0\r\n\r\n",
            b"abc",
            id="chunked",
        ),
        pytest.param(
            HEAD + b"transfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\nTrailer: x\r\n\r\n",
            b"a",
            id="trailers",
        ),
        pytest.param(
            b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD + b"content-length: 1\r\n\r\na",
            b"a",
            id="continue first",
        ),
    ],
)
async def test_replies_are_read_and_connections_used_again(reply: bytes, body: bytes) -> None:
    server, url = await serve_bytes(reply, reply)
    upstream = Upstream(url)
    for _ in range(2):
        assert await upstream.ask("GET", "/") == (200, body)
    upstream.close()
    server.close()
    await server.wait_closed()


@given(
    chunks=st.lists(st.text(alphabet="ab0\r\n", min_size=1, max_size=12), max_size=12),
    cuts=st.lists(st.integers(0, 400), max_size=6),
)
def test_chunks_survive_any_cutting(chunks: list[str], cuts: list[int]) -> None:
    body = "".join(f"{len(chunk):x}\r\n{chunk}\r\n" for chunk in [*chunks, ""]).encode()
    data = HEAD + b"transfer-encoding: chunked\r\n\r\n" + body
    connection = Connection()
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    for start, end in itertools.pairwise(edges):
        connection.data_received(data[start:end])
    assert connection.complete
    assert b"".join(connection._chunks).decode() == "".join(chunks)


LONG = bytes(range(256)) * 2048


async def _long_replies() -> None:
    """Read into one buffer: three on one connection, then one that is cut."""
    seen: list[asyncio.StreamWriter] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(writer)
        for body in (LONG, b"short", LONG, LONG[:-1]):
            await reader.readuntil(b"\r\n\r\n")
            declared = len(LONG) if len(body) > 5 else 5
            writer.write(HEAD + b"content-length: %d\r\n\r\n" % declared + body)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    upstream = Upstream(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    for body in (LONG, b"short", LONG):
        assert await upstream.ask("GET", "/") == (200, body)
    with pytest.raises(UpstreamError, match="closed before the reply was complete"):
        await upstream.ask("GET", "/")
    assert len(seen) == 1, "one connection served them all"
    upstream.close()
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_long_replies_are_read_whole_on_a_connection_that_goes_on(loop: Any) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(_long_replies())


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_bytes_after_a_long_reply_end_the_connection(loop: Any) -> None:
    async def check() -> None:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(HEAD + b"content-length: %d\r\n\r\n" % len(LONG) + LONG[:1000])
            await writer.drain()
            writer.write(LONG[1000:] + b"HTTP/1.1 200 OK\r\n")
            await reader.read()
            writer.close()

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        upstream = Upstream(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        reply = await upstream.send("GET", "/")
        assert await reply.read() == LONG
        connection = reply._connection
        async with asyncio.timeout(10):
            while connection.transport is not None:
                await asyncio.sleep(0.001)
        assert not connection.reusable
        upstream.close()
        server.close()
        await server.wait_closed()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(check())


async def test_connection_that_the_engine_closed_is_replaced_once() -> None:
    good = HEAD + b"content-length: 1\r\n\r\na"
    server, url = await serve_bytes(good, None, good)
    upstream = Upstream(url)
    assert await upstream.ask("GET", "/") == (200, b"a")
    assert await upstream.ask("GET", "/") == (200, b"a")
    upstream.close()
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(b"SSH-2.0-OpenSSH\r\n\r\n", id="not HTTP"),
        pytest.param(HEAD + b"content-length: 5\r\nconnection: close\r\n\r\nab", id="cut body"),
        pytest.param(HEAD + b"transfer-encoding: chunked\r\n\r\nzz\r\n", id="bad chunk"),
        pytest.param(None, id="nothing"),
    ],
)
async def test_broken_replies_are_errors(reply: bytes | None) -> None:
    server, url = await serve_bytes(reply)
    upstream = Upstream(url)
    with pytest.raises(UpstreamError):
        await upstream.ask("GET", "/", timeout=5.0)
    upstream.close()
    server.close()
    await server.wait_closed()
