from __future__ import annotations

from agentcore_rl_toolkit.client.event import Event, Parser


def test_events_are_split_on_newline_bytes_only() -> None:
    body = '{"text":"a\u2028b\u0085c"}'.encode()
    events = Parser().feed(b"id: e-1\nevent: result\ndata: {}\ndata: " + body + b"\n\n")
    assert events == [Event("result", b"{}\n" + body, "e-1")]


def test_an_event_may_come_byte_by_byte() -> None:
    parser, events = Parser(), []
    for byte in b": keep-alive\n\nid:7\nevent:session\ndata:{}\n\ndata: x\r\n\r\n":
        events += parser.feed(bytes([byte]))
    assert events == [Event("session", b"{}", "7"), Event("message", b"x", "7")]
