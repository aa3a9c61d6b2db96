"""A filter server in memory for a broker in memory (see kourou_rigs.wire_cluster).

State: soft. Everything runs on the client's I/O thread; a test changes it through its attributes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import structs

from kourou.errors import Code
from kourou.model.filter import FilterFailure
from kourou.model.message import StoredMessage
from kourou.protocol.messages.pulls import PullFlag, PullMessage, PullResponse
from kourou.protocol.record.message_record import decode_record
from kourou.protocol.request import Request

if TYPE_CHECKING:
    from kourou_rigs.wire_broker import Answer, Wire, WireBroker

Judge = Callable[[StoredMessage], bool]


class WireFilterServer:
    """Answers pulls of groups that have a filter at the broker.

    `passes(message)` is the result of all filters. With a `failure`, its kind and reason, all
    filters fail. `seen` has all requests; `intercept(request)` can override the reply.
    """

    def __init__(self, broker: WireBroker, address: str) -> None:
        self.broker = broker
        self.address = address
        self.passes: Judge = lambda _: True
        self.failure: tuple[FilterFailure, str] | None = None
        self.seen: list[Request] = []
        self.intercept: Callable[[Request], Answer | None] | None = None

    def answer(self, wire: Wire, correlation: int, request: Request, _body: bytes) -> Answer | None:
        """The reply to a request; None if it is sent later."""
        from kourou_rigs.wire_broker import Answer

        self.seen.append(request)
        intercepted = None if self.intercept is None else self.intercept(request)
        if intercepted is not None:
            return intercepted
        if not isinstance(request, PullMessage):
            return Answer(Code.REQUEST_CODE_NOT_SUPPORTED, remark=type(request).__name__)
        name = request.subscription or ""
        assert request.sys_flag & PullFlag.CLASS_FILTER, "pulls from a filter server name a filter"
        key = request.consumer_group, name
        version = self.broker.filters.active.get(key)
        failure = self.failure
        if key not in self.broker.filters.sources:
            failure = FilterFailure.MISSING, f"there is no filter {name}"
        elif version is None:
            failure = FilterFailure.DISABLED, f"filter {name} has no active version"
        if failure is not None:
            return self._failed(request, version, *failure)
        answer = self.broker.pull(_Judging(self, wire), correlation, request)
        return None if answer is None else self.judged(answer, version)

    def _failed(
        self, request: PullMessage, version: int | None, kind: FilterFailure, reason: str
    ) -> Answer:
        from kourou_rigs.wire_broker import Answer

        header = PullResponse(
            suggest_which_broker_id=0,
            next_begin_offset=request.queue_offset,
            min_offset=0,
            max_offset=0,
            filter_version=version,
            filter_failure=str(kind),
        )
        return Answer(Code.FILTER_FAILED, header, remark=reason)

    def judged(self, answer: Answer, version: int | None) -> Answer:
        """The broker's reply with the messages that pass."""
        if isinstance(answer.header, PullResponse):
            answer.header = structs.replace(answer.header, filter_version=version)
        if answer.code == Code.SUCCESS:
            kept = [one for one in _records(answer.body) if self.passes(decode_record(one))]
            answer.body = b"".join(kept)
            if not kept:
                answer.code = Code.PULL_RETRY_IMMEDIATELY
        return answer


class _Judging:
    """A connection whose replies are filtered before they are sent."""

    def __init__(self, server: WireFilterServer, wire: Wire) -> None:
        self._server = server
        self._wire = wire

    def reply(self, correlation: int, answer: Answer) -> None:
        """Filter and forward the reply to a parked pull."""
        self._wire.reply(correlation, self._server.judged(answer, None))

    def hear(self, request: Request, body: bytes = b"") -> None:
        """Forward a notification; brokers send these only to consumers."""
        self._wire.hear(request, body)


def _records(body: bytes) -> list[bytes]:
    found = []
    at = 0
    while at < len(body):
        size = int.from_bytes(body[at : at + 4], "big")
        found.append(body[at : at + size])
        at += size
    return found
