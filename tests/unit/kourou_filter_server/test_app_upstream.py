"""What goes to the broker, frame by frame, and what becomes of its answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kourou.clock import SystemClock
from kourou.errors import Code, Unavailable
from kourou.protocol.messages.filter_server import GetFilters
from kourou.protocol.wire.frames import NO_TRACE, decode_frame, encode_reply
from kourou.runtime.core import Peer, ReplyTo
from kourou.transport.zmq_client import ZmqConnection
from kourou_filter_server.app import Upstream
from kourou_filter_server.interface import AskBroker, BrokerAnswered
from kourou_rigs.filter_bench import a_pull

TRACE = bytes(range(1, 25)) + b"\x01"
BELOW = TRACE[:16] + bytes(8) + b"\x01"


class Wire:
    """Takes what is submitted instead of a socket."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, below: bytes) -> None:
        self.sent: list[tuple[list[Any], Callable[[Any], None]]] = []
        self.posted: list[Any] = []
        monkeypatch.setattr(
            ZmqConnection,
            "submit",
            lambda _, parts, _1, ended, _2: self.sent.append((parts, ended)),
        )
        self.upstream = Upstream(
            "127.0.0.1:1", SystemClock(), self.posted.append, lambda _to: below
        )

    def ask(self, to: ReplyTo | None) -> bytes:
        """The trace context with which a question leaves."""
        self.upstream.ask(AskBroker(7, a_pull(3), (b"more",), 500, to))
        frame = decode_frame(self.sent[-1][0])
        assert (frame.deadline_ms, frame.body) == (500, [b"more"])
        return frame.trace


@pytest.fixture
def wires(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bytes], Wire]]:
    made: list[Wire] = []

    def make(below: bytes = b"") -> Wire:
        made.append(Wire(monkeypatch, below))
        return made[-1]

    yield make
    for wire in made:
        wire.upstream.close()


def asked_with(trace: bytes) -> ReplyTo:
    return ReplyTo(Peer(1, "zmq", ("127.0.0.1", 4)), 1, False, trace)


@pytest.mark.feature("F241")
async def test_a_question_stays_in_the_trace_of_its_pull(wires: Callable[..., Wire]) -> None:
    assert wires(BELOW).ask(asked_with(TRACE)) == BELOW  # below the span made of it here
    assert wires().ask(asked_with(TRACE)) == TRACE  # nothing is traced here: unchanged
    assert wires(BELOW).ask(asked_with(b"")) == NO_TRACE
    assert wires(BELOW).ask(None) == NO_TRACE


async def test_answers_come_back_with_their_token(wires: Callable[..., Wire]) -> None:
    wire = wires()
    wire.upstream.ask(AskBroker(9, GetFilters(), (), 500))
    _, ended = wire.sent[-1]
    ended(decode_frame([encode_reply(1, Code.SYSTEM_BUSY, "later"), b"x"]))
    ended(decode_frame([b"".join([encode_reply(1, 0)[:45], b"\xc1"])]))
    ended(Unavailable("gone"))
    busy, malformed, gone = wire.posted
    assert all(isinstance(one, BrokerAnswered) and one.token == 9 for one in wire.posted)
    assert (busy.code, busy.remark, list(busy.body)) == (Code.SYSTEM_BUSY, "later", [b"x"])
    assert malformed.error is not None
    assert str(gone.error) == "gone"
