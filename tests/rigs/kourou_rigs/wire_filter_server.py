"""A filter server in memory beside a broker in memory (see kourou_rigs.wire_cluster).

State: soft. Everything runs on the client's I/O thread; a test changes it by plain attributes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import structs

from kourou.errors import Code
from kourou.model.filter import FilterFailure
from kourou.model.message import StoredMessage
from kourou.protocol.messages.pulling import PullFlag, PullMessage, PullResponse
from kourou.protocol.record import decode_record
from kourou.protocol.request import Request

if TYPE_CHECKING:
    from kourou_rigs.wire_broker import Answer, Wire, WireBroker

Judge = Callable[[StoredMessage], bool]


class WireFilterServer:
    """Answers the pulls of groups whose filter the broker has.

    `passes(message)` is every filter's verdict. With a `failure`, its kind and reason, no filter
    can judge. `seen` has every request; `intercept(request)` may answer otherwise.
    """

    def __init__(self, broker: WireBroker, address: str) -> None:
        self.broker = broker
        self.address = address
        self.passes: Judge = lambda _: True
        self.failure: tuple[FilterFailure, str] | None = None
        self.seen: list[Request] = []
        self.intercept: Callable[[Request], Answer | None] | None = None

    def answer(self, wire: Wire, correlation: int, request: Request, _body: bytes) -> Answer | None:
        """The answer to a request; None when it comes later."""
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
        """What is left of a broker's answer."""
        if isinstance(answer.header, PullResponse):
            answer.header = structs.replace(answer.header, filter_version=version)
        if answer.code == Code.SUCCESS:
            kept = [one for one in _records(answer.body) if self.passes(decode_record(one))]
            answer.body = b"".join(kept)
            if not kept:
                answer.code = Code.PULL_RETRY_IMMEDIATELY
        return answer


class _Judging:
    """The end of a connection whose answers are judged before they leave."""

    def __init__(self, server: WireFilterServer, wire: Wire) -> None:
        self._server = server
        self._wire = wire

    def reply(self, correlation: int, answer: Answer) -> None:
        """A held pull is answered."""
        self._wire.reply(correlation, self._server.judged(answer, None))

    def hear(self, request: Request, body: bytes = b"") -> None:
        """Brokers tell consumers, not filter servers, about groups."""
        self._wire.hear(request, body)


def _records(body: bytes) -> list[bytes]:
    found = []
    at = 0
    while at < len(body):
        size = int.from_bytes(body[at : at + 4], "big")
        found.append(body[at : at + size])
        at += size
    return found
