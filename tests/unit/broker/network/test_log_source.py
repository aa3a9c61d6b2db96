"""Fetches of another broker's log: the state before its start, and its bytes."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import pytest

from kourou.broker.network import log_source
from kourou.broker.network.log_source import LogSource
from kourou.engine.admin.log_bootstrap import LogBeginning, encode_beginning
from kourou.engine.control import ControlState
from kourou.errors import Code, Corrupt, KourouError, Throttled
from kourou.protocol.messages.replication import (
    FetchLog,
    FetchLogResponse,
    GetLogBeginning,
    GetLogBeginningResponse,
)
from kourou.protocol.request import Request
from kourou.transport.zmq_client import WireReply

Answer = Callable[[Request], WireReply]
BODY = encode_beginning(LogBeginning("c", "broker-a", 100, 400, {"orders": {0: 9}}, ControlState()))


class Connection:
    """Answers as a test says."""

    answer: Answer

    def __init__(self, address: str, *, clock: object, curve: object) -> None:
        self.address = address

    async def request(self, request: Request, *, timeout_ms: int) -> WireReply:
        assert timeout_ms > 0
        return type(self).answer(request)

    def close(self) -> None:
        """Nothing to give back."""


def source(monkeypatch: pytest.MonkeyPatch, answer: Answer, group: str = "broker-a") -> LogSource:
    monkeypatch.setattr(Connection, "answer", staticmethod(answer), raising=False)
    monkeypatch.setattr(log_source, "ZmqConnection", Connection)
    return LogSource("10.0.0.1:30911", group)


def piece(request: Request, body: bytes = BODY, size: int = 50, **header: int) -> WireReply:
    assert isinstance(request, GetLogBeginning)
    fields = {"position": 400, "size": len(body), "crc": zlib.crc32(body), **header}
    at = request.from_byte
    return WireReply(Code.SUCCESS, "", GetLogBeginningResponse(**fields), [body[at : at + size]])


async def test_a_beginning_comes_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    async with source(monkeypatch, piece) as log:
        found, body = await log.beginning()
    assert (found.position, found.queue_ends, body) == (400, {"orders": {0: 9}}, BODY)


async def test_one_that_changes_meanwhile_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []

    def answer(request: Request) -> WireReply:
        assert isinstance(request, GetLogBeginning)
        asked.append(request.from_byte)
        return piece(request, BODY if len(asked) > 1 else bytes(300))

    async with source(monkeypatch, answer) as log:
        assert (await log.beginning())[1] == BODY
    assert asked[:3] == [0, 50, 0]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda request: piece(request, crc=1), "is damaged"),
        (lambda request: piece(request, size=0), "did not return"),
        (lambda request: piece(request, b"{}" * 99), "format"),
        (
            lambda request: piece(request, BODY.replace(b"broker-a", b"broker-b"), len(BODY)),
            "is broker-b, not ",
        ),
        (
            lambda request: piece(request, position=400 + request.from_byte),
            "changed during each attempt",
        ),
    ],
    ids=["crc", "empty", "format", "other", "moving"],
)
async def test_what_cannot_be_the_answer_is_refused(
    monkeypatch: pytest.MonkeyPatch, answer: Answer, said: str
) -> None:
    async with source(monkeypatch, answer) as log:
        with pytest.raises(Corrupt, match=said):
            await log.beginning()


async def test_bytes_of_the_log_and_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(request: Request) -> WireReply:
        assert isinstance(request, FetchLog)
        assert request.damaged
        if request.position:
            return WireReply(Code.SYSTEM_BUSY, "too much", None, [])
        header = FetchLogResponse(
            position=0, end=4, previous_epoch=0, data_epoch=0, confirmed=9, first_position=0
        )
        return WireReply(Code.SUCCESS, "", header, [b"ab", b"cd"])

    async with source(monkeypatch, answer) as log:
        found = await log.fetch(0)
        assert (bytes(found.data), found.header.end) == (b"abcd", 4)
        with pytest.raises(Throttled, match=r"10\.0\.0\.1:30911: too much") as met:
            await log.fetch(7)
    assert isinstance(met.value, KourouError)
