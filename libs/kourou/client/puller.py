"""One pull of one queue: the question, the answer, its messages.

Lives here: how a pull is asked and read, and which member of a broker to ask next time. May not
live here: what to do with an answer (kourou.client.pull_plan for push consumers).

Pulls carry their subscription, so a broker that restarted can answer before the next heartbeat.

State: soft: the member suggested for each queue.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kourou.client.codecs import Decode
from kourou.client.connections import Connections
from kourou.client.received import ReceivedMessage, decode_pull
from kourou.client.route_table import RouteTable
from kourou.client.tracing import ClientTracing
from kourou.clock import Clock
from kourou.errors import Code, Unavailable
from kourou.model.queue import MessageQueue
from kourou.model.subscription import Subscription
from kourou.protocol.frames import NO_TRACE
from kourou.protocol.messages.pulling import PullFlag, PullMessage, PullResponse

_WITH_PLACE = frozenset(
    {
        Code.SUCCESS,
        Code.PULL_NOT_FOUND,
        Code.PULL_RETRY_IMMEDIATELY,
        Code.PULL_OFFSET_MOVED,
        Code.MESSAGE_CORRUPT,
    }
)
"""Answers that say where to go on; in others the header's numbers mean nothing."""


@dataclass(frozen=True, slots=True)
class PullWish:
    """How much a pull may bring and how long it may be held.

    `bytes_max` 0 pulls under RocketMQ's limits, by `count_max` alone; `timeout_ms` is the whole
    question's deadline and must exceed `hold_ms`.
    """

    count_max: int
    bytes_max: int
    hold_ms: int
    timeout_ms: int


@dataclass(slots=True)
class Pulled:
    """An answer. `next_offset` is -1 when the broker gave no place (an error of another kind)."""

    code: int
    remark: str
    elapsed_ms: int
    next_offset: int = -1
    min_offset: int = 0
    max_offset: int = 0
    messages: list[ReceivedMessage] = field(default_factory=list)


class Puller:
    """Pulls for one group. Used on the I/O thread."""

    def __init__(
        self,
        group: str,
        connections: Connections,
        routes: RouteTable,
        clock: Clock,
        tracing: ClientTracing | None = None,
    ) -> None:
        self._group = group
        self._connections = connections
        self._routes = routes
        self._clock = clock
        self._tracing = tracing
        self._suggested: dict[MessageQueue, int] = {}

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        subscription: Subscription,
        wish: PullWish,
        decode: Decode | None = None,
    ) -> Pulled:
        """Ask once. Every code is returned; raises Unavailable, UnknownOutcome or Corrupt."""
        known = await self._routes.find(queue.topic)
        address = known.member_address(queue.broker_name, self._suggested.get(queue, 0))
        if address is None:
            raise Unavailable(f"no broker named {queue.broker_name} is registered for {queue!s}")
        flags = PullFlag.SUBSCRIPTION
        if wish.hold_ms > 0:
            flags |= PullFlag.SUSPEND
        request = PullMessage(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=wish.count_max,
            sys_flag=int(flags),
            suspend_timeout_millis=wish.hold_ms,
            subscription=subscription.expression,
            sub_version=subscription.version,
            expression_type=subscription.expression_type,
            max_msg_bytes=wish.bytes_max or None,
        )
        span = None
        if self._tracing is not None:
            span = self._tracing.receiving(self._group, queue)
        if self._tracing is None or span is None:
            return await self._ask(address, queue, request, wish.timeout_ms, NO_TRACE, decode)
        try:
            pulled = await self._ask(address, queue, request, wish.timeout_ms, span.context, decode)
        except BaseException as error:
            span.end(error_type=type(error).__qualname__, error=str(error))
            raise
        self._tracing.received(span, pulled.messages)
        return pulled

    async def _ask(
        self,
        address: str,
        queue: MessageQueue,
        request: PullMessage,
        timeout_ms: int,
        trace: bytes,
        decode: Decode | None,
    ) -> Pulled:
        asked_ms = self._clock.monotonic_ms()
        reply = await self._connections.to(address).request(
            request, timeout_ms=timeout_ms, trace=trace
        )
        pulled = Pulled(reply.code, reply.remark, self._clock.monotonic_ms() - asked_ms)
        header = reply.header
        if isinstance(header, PullResponse) and reply.code in _WITH_PLACE:
            pulled.next_offset = header.next_begin_offset
            pulled.min_offset = header.min_offset
            pulled.max_offset = header.max_offset
            self._suggested[queue] = header.suggest_which_broker_id
        if reply.code == Code.SUCCESS and reply.body:
            pulled.messages = decode_pull(
                memoryview(reply.body[0]),
                queue,
                from_offset=request.queue_offset,
                next_offset=pulled.next_offset,
                queue_end=pulled.max_offset,
                decode=decode,
            )
        return pulled

    def forget(self, queue: MessageQueue) -> None:
        """The queue is not pulled any more."""
        self._suggested.pop(queue, None)
