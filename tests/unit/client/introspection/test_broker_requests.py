"""What brokers ask of a client is answered by whoever registered for it, and by nobody twice."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from kourou.client.introspection.broker_requests import (
    BrokerRequest,
    Buffer,
    RequestHandlers,
    RequestReply,
)
from kourou.errors import Code, Rejected, Unavailable
from kourou.protocol.messages.groups import GetConsumerRunningInfo, NotifyConsumerIdsChanged
from kourou.protocol.messages.pulls import GetMaxOffset, GetMaxOffsetResponse
from kourou.protocol.wire.frames import Frame, FrameKind, decode_frame, decode_reply, encode_request

ASK = GetMaxOffset(topic="t", queue_id=1)


class FakeClient:
    """An Answering, and what it sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Frame]] = []
        self.changed = asyncio.Event()
        self.gone = False
        self.request_handlers = RequestHandlers(self._send)

    def _send(self, address: str, parts: Sequence[Buffer]) -> bool:
        if self.gone:
            raise Unavailable("the connection is closed")
        self.sent.append((address, decode_frame(parts)))
        self.changed.set()
        return True

    async def answer(self) -> tuple[str, Frame]:
        await self.changed.wait()
        (found,) = self.sent
        return found


def frame(request: object = ASK, *body: bytes, kind: FrameKind = FrameKind.REQUEST) -> Frame:
    head = encode_request(request, correlation=5, deadline_ms=700, kind=kind)  # type: ignore[arg-type]  # a request
    return decode_frame([head, *body])


async def idle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_the_answer_of_whoever_registered_goes_back() -> None:
    fake = FakeClient()
    seen: list[BrokerRequest] = []

    async def answer(asked: BrokerRequest) -> RequestReply:
        seen.append(asked)
        return RequestReply(0, "well", GetMaxOffsetResponse(offset=9), (b"a", b"b"))

    fake.request_handlers.on(GetMaxOffset, answer)
    fake.request_handlers.heard("broker:1", frame(ASK, b"q"))
    address, reply = await fake.answer()
    assert (address, reply.kind, reply.correlation) == ("broker:1", FrameKind.REPLY, 5)
    assert decode_reply(reply, GetMaxOffsetResponse) == (0, "well", GetMaxOffsetResponse(offset=9))
    assert [bytes(part) for part in reply.body] == [b"a", b"b"]
    (asked,) = seen
    assert (asked.address, asked.request, asked.timeout_ms) == ("broker:1", ASK, 700)
    assert [bytes(part) for part in asked.body] == [b"q"]


async def test_nothing_to_say_is_success() -> None:
    fake = FakeClient()

    async def answer(_asked: BrokerRequest) -> None:
        return

    fake.request_handlers.on(GetMaxOffset, answer)
    fake.request_handlers.heard("broker:1", frame())
    _, reply = await fake.answer()
    assert reply.code == Code.SUCCESS


async def test_a_notice_is_heard_and_not_answered() -> None:
    fake = FakeClient()
    heard = asyncio.Event()

    async def listen(_asked: BrokerRequest) -> RequestReply:
        heard.set()
        return RequestReply(Code.SYSTEM_ERROR)

    fake.request_handlers.on(NotifyConsumerIdsChanged, listen)
    notice = NotifyConsumerIdsChanged(consumer_group="g")
    fake.request_handlers.heard("broker:1", frame(notice, kind=FrameKind.NOTIFY))
    await heard.wait()
    await idle()
    assert fake.sent == []


@pytest.mark.parametrize(
    ("failure", "code", "log"),
    [
        (Rejected("no such queue", code=Code.QUERY_NOT_FOUND), 22, "failed: no such queue"),
        (RuntimeError("a bug"), 1, "background task failed unexpectedly:"),
    ],
)
async def test_a_failure_is_sent_and_logged(
    failure: Exception, code: int, log: str, caplog: pytest.LogCaptureFixture
) -> None:
    fake = FakeClient()

    async def answer(_asked: BrokerRequest) -> RequestReply:
        raise failure

    fake.request_handlers.on(GetMaxOffset, answer)
    fake.request_handlers.heard("broker:1", frame())
    _, reply = await fake.answer()
    await idle()
    assert reply.code == code
    assert str(failure) in decode_reply(reply, None)[1]
    assert log in caplog.text


async def test_one_that_waits_holds_up_nobody_and_ends_with_the_client() -> None:
    fake = FakeClient()
    ended: list[str] = []

    async def wait(_asked: BrokerRequest) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    async def answer(_asked: BrokerRequest) -> None:
        return

    fake.request_handlers.on(GetMaxOffset, wait)
    fake.request_handlers.on(NotifyConsumerIdsChanged, answer)
    fake.request_handlers.heard("broker:1", frame())
    fake.request_handlers.heard("broker:1", frame(NotifyConsumerIdsChanged(consumer_group="g")))
    await fake.answer()
    fake.request_handlers.close()
    await idle()
    assert ended == ["cancelled"]
    assert len(fake.sent) == 1


async def test_a_connection_that_is_gone_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    fake = FakeClient()
    fake.gone = True
    fake.request_handlers.heard(
        "broker:1", frame(GetConsumerRunningInfo(consumer_group="g", client_id=""))
    )
    assert "reply to broker broker:1 failed" in caplog.text
