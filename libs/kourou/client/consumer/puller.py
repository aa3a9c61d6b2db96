"""One pull of one queue: the request, the reply, its messages.

Pulls contain their subscription, so a restarted broker can reply before the next heartbeat. If a
replica cannot be reached, another replica of that broker is used until its connection is
established again. A follower may lag behind: an offset beyond its end does not move the consumer
back, the pull is only repeated.

State: soft: the suggested replica of each queue, and the one that failed last.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial

from kourou.client.codecs import Decode
from kourou.client.consumer.received import ReceivedMessage, decode_pull
from kourou.client.filters.pulls import FilterPulls
from kourou.client.session.connections import Connections
from kourou.client.session.route_table import QueueMap, RouteTable
from kourou.client.tracing.spans import ClientTracing
from kourou.clock import Clock
from kourou.errors import Code, FilterFailed, TimedOut, Unavailable, UnknownOutcome
from kourou.model.subscription import Subscription
from kourou.model.topic import MessageQueue
from kourou.protocol.messages.pulls import PullFlag, PullMessage, PullResponse
from kourou.protocol.wire.frames import NO_TRACE

FULL_PAUSE_MS = 50
"""The pause while a limit of the window is exceeded."""

BUSY_PAUSE_MS = 20
"""The pause after a broker replied that it is overloaded."""

STALE_PAUSE_MS = 200
"""The pause after a broker did not know the subscription; a heartbeat is sent in the meantime."""

SWIFT_MS = 10
"""An empty reply faster than this did not wait; pulling again at once would be a busy loop."""

_BUSY = frozenset({Code.SYSTEM_BUSY, Code.FLOW_CONTROL, Code.POLLING_FULL})
_STALE = frozenset(
    {
        Code.SUBSCRIPTION_NOT_EXIST,
        Code.SUBSCRIPTION_NOT_LATEST,
        Code.SUBSCRIPTION_GROUP_NOT_EXIST,
        Code.FILTER_DATA_NOT_EXIST,
        Code.FILTER_DATA_NOT_LATEST,
    }
)
_WITH_PLACE = frozenset(
    {
        Code.SUCCESS,
        Code.PULL_NOT_FOUND,
        Code.PULL_RETRY_IMMEDIATELY,
        Code.PULL_OFFSET_MOVED,
        Code.MESSAGE_CORRUPT,
    }
)
"""Replies that contain the next offset; in other replies the header's numbers are undefined."""

_Ask = Callable[[str, MessageQueue, PullMessage, int, bytes, "Decode | None"], Awaitable["Pulled"]]
_log = logging.getLogger("kourou.client.consume")
_CLASS_FILTER = int(PullFlag.CLASS_FILTER)


class PullAction(Enum):
    """What else must be done before the next pull."""

    NONE = auto()
    CORRECT_OFFSET = auto()  # use the broker's offset: the consumer's is outside the queue
    SKIP_CORRUPT = auto()  # apply on_corrupt: the messages are unreadable
    HEARTBEAT = auto()  # send a heartbeat: the broker does not know our subscription
    FILTER_FAILED = auto()  # the group's filter failed: wait at this offset for a fixed version
    FIND_ROUTE = auto()  # refresh the route: the queue may have moved


@dataclass(frozen=True, slots=True)
class PullStep:
    """Perform `action`, wait `pause_ms`, pull again."""

    action: PullAction = PullAction.NONE
    pause_ms: int = 0


def step_after(
    code: int,
    *,
    progressed: bool,
    elapsed_ms: int,
    pull_interval_ms: int,
    exception_pause_ms: int,
) -> PullStep:
    """Return the step after a reply with `code`.

    `progressed`: the reply's next offset is greater than the requested one.
    """
    if code == Code.SUCCESS:
        return PullStep(pause_ms=pull_interval_ms)
    if code in (Code.PULL_NOT_FOUND, Code.PULL_RETRY_IMMEDIATELY):
        idle = not progressed and elapsed_ms < SWIFT_MS
        return PullStep(pause_ms=FULL_PAUSE_MS if idle else 0)
    if code == Code.PULL_OFFSET_MOVED:
        return PullStep(PullAction.CORRECT_OFFSET, 0 if progressed else FULL_PAUSE_MS)
    if code == Code.MESSAGE_CORRUPT:
        return PullStep(PullAction.SKIP_CORRUPT, 0 if progressed else exception_pause_ms)
    if code == Code.FILTER_FAILED:
        return PullStep(PullAction.FILTER_FAILED, exception_pause_ms)
    if code in _BUSY:
        return PullStep(pause_ms=BUSY_PAUSE_MS)
    if code in _STALE:
        return PullStep(PullAction.HEARTBEAT, STALE_PAUSE_MS)
    return PullStep(PullAction.FIND_ROUTE, exception_pause_ms)


@dataclass(frozen=True, slots=True)
class PullParams:
    """The size of a pull, and how long the broker may wait.

    With `bytes_max` 0 the pull is limited by `count_max` and RocketMQ's limits only. `timeout_ms`
    is the timeout of the whole request and must exceed `hold_ms`.
    """

    count_max: int
    bytes_max: int
    hold_ms: int
    timeout_ms: int


@dataclass(slots=True)
class Pulled:
    """A reply. `next_offset` is -1 if the broker gave none (an error of another kind).

    `filter_version` is the filter version that selected the messages; `filter_failure` is the kind
    of a FILTER_FAILED reply. `body` is the reply's body if the puller leaves it undecoded.
    """

    code: int
    remark: str
    elapsed_ms: int
    next_offset: int = -1
    min_offset: int = 0
    max_offset: int = 0
    messages: list[ReceivedMessage] = field(default_factory=list)
    filter_version: int | None = None
    filter_failure: str = ""
    body: memoryview | None = None


class Puller:
    """Pulls for one group. Used on the I/O thread.

    `filters` is needed for subscriptions that use a Python filter. With `raw` the records are left
    as unchecked bytes in `Pulled.body`.
    """

    def __init__(
        self,
        group: str,
        connections: Connections,
        routes: RouteTable,
        clock: Clock,
        tracing: ClientTracing | None = None,
        filters: FilterPulls | None = None,
        *,
        raw: bool = False,
    ) -> None:
        self._group = group
        self._raw = raw
        self._connections = connections
        self._routes = routes
        self._clock = clock
        self._tracing = tracing
        self._filters = filters
        self._suggested: dict[MessageQueue, int] = {}
        self._failed: dict[MessageQueue, str] = {}

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        subscription: Subscription,
        params: PullParams,
        decode: Decode | None = None,
    ) -> Pulled:
        """Send one pull, and a second one if the first replica is offline. Returns any reply code.

        Raises Unavailable, UnknownOutcome or Corrupt. With a Python filter, filter servers are
        tried until one replies; FilterFailed, a subclass of Unavailable, means that there is none.
        """
        known = await self._routes.find(queue.topic)
        address = known.member_address(queue.broker_name, self._suggested.get(queue, 0))
        if address is None:
            raise Unavailable(f"broker {queue.broker_name} of {queue!s} is not registered")
        if self._connections.lost(address) or self._failed.get(queue) == address:
            address = self._another(known, queue, address) or address
        flags = int(PullFlag.SUBSCRIPTION)
        if params.hold_ms > 0:
            flags |= PullFlag.SUSPEND
        ask = self._ask
        if subscription.class_filter_mode:
            flags |= PullFlag.CLASS_FILTER
            ask = partial(self._ask_filter_servers, known)
        request = PullMessage(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=params.count_max,
            sys_flag=flags,
            suspend_timeout_millis=params.hold_ms,
            subscription=subscription.expression,
            sub_version=subscription.version,
            expression_type=subscription.expression_type,
            max_msg_bytes=params.bytes_max or None,
        )
        try:
            pulled = await self._asked(ask, address, queue, request, params, subscription, decode)
        except (Unavailable, UnknownOutcome) as error:
            if isinstance(error, (FilterFailed, TimedOut)):
                raise
            self._failed[queue] = address
            self._routes.stale(queue.topic)
            another = self._another(known, queue, address)
            if another is None:
                raise
            _log.info(
                "pull-redirected: %(queue)s: retrying at %(address)s after: %(error)s",
                {"queue": queue, "address": another, "error": error},
            )
            address = another
            pulled = await self._asked(ask, address, queue, request, params, subscription, decode)
        if self._failed.get(queue) == address:
            del self._failed[queue]
        moved_back = pulled.code == Code.PULL_OFFSET_MOVED and pulled.next_offset < offset
        if moved_back and address != known.leader_address(queue.broker_name):
            pulled.code, pulled.next_offset = int(Code.PULL_NOT_FOUND), offset
        return pulled

    def _another(self, known: QueueMap, queue: MessageQueue, address: str) -> str | None:
        """Return another replica of the queue's broker while this one is not connected."""
        if self._connections.is_connected(address):
            return None
        for _, other in sorted(known.brokers[queue.broker_name].broker_addrs.items()):
            if other != address and not self._connections.lost(other):
                return other
        return None

    async def _asked(
        self,
        ask: _Ask,
        address: str,
        queue: MessageQueue,
        request: PullMessage,
        params: PullParams,
        subscription: Subscription,
        decode: Decode | None,
    ) -> Pulled:
        """Send the pull to one replica, with a span if the pull is traced."""
        span = None
        if self._tracing is not None:
            span = self._tracing.receiving(self._group, queue)
        if self._tracing is None or span is None:
            return await ask(address, queue, request, params.timeout_ms, NO_TRACE, decode)
        try:
            pulled = await ask(address, queue, request, params.timeout_ms, span.context, decode)
        except BaseException as error:
            span.end(error_type=type(error).__qualname__, error=str(error))
            raise
        if subscription.class_filter_mode:
            self._tracing.judged(span, subscription.expression, pulled.filter_version)
        self._tracing.received(span, pulled.messages)
        return pulled

    async def _ask_filter_servers(
        self,
        known: QueueMap,
        address: str,
        queue: MessageQueue,
        request: PullMessage,
        timeout_ms: int,
        trace: bytes,
        decode: Decode | None,
    ) -> Pulled:
        assert self._filters is not None, "who subscribes filters gives the way to them"
        assert request.subscription is not None

        async def ask(server: str) -> Pulled:
            return await self._ask(server, queue, request, timeout_ms, trace, decode)

        return await self._filters.ask(known, queue, address, request.subscription, ask)

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
        if request.sys_flag & _CLASS_FILTER and isinstance(header, PullResponse):
            pulled.filter_version = header.filter_version
            pulled.filter_failure = header.filter_failure or ""
            if reply.code == Code.FILTER_FAILED:
                pulled.next_offset = header.next_begin_offset
        if reply.code == Code.SUCCESS and reply.body and self._raw:
            pulled.body = memoryview(reply.body[0])
        elif reply.code == Code.SUCCESS and reply.body:
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
        """Drop the state of a queue that is not pulled any more."""
        self._suggested.pop(queue, None)
        self._failed.pop(queue, None)
