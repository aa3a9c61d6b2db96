"""A pull consumer: the application decides which queue is read, from where, how much, and when.

Methods run on the client's I/O thread; the asynchronous API awaits them (`on_io_thread`), the
blocking API (kourou.sync) blocks for them.

State: soft: the assigned queues and the next offset of each.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kourou.client.codecs import body_decoder
from kourou.client.consumer.allocation import share_of
from kourou.client.consumer.offsets import OffsetStore, RemoteOffsets
from kourou.client.consumer.puller import FULL_PAUSE_MS, SWIFT_MS, Pulled, Puller, PullParams
from kourou.client.consumer.received import ReceivedMessage, tag_filter
from kourou.client.consumer.send_back import SendBackRequests
from kourou.client.filters.expressions import Wanted, check_wanted, says, subscription_of
from kourou.client.filters.pulls import failure_of
from kourou.client.filters.python_filter import Filter
from kourou.client.session.client_session import Session
from kourou.client.session.heartbeats import ClientMembership
from kourou.client.session.io_thread import on_io_thread
from kourou.client.settings.client_settings import PullConsumerSettings
from kourou.errors import BadRequest, Code, Corrupt, error_from_code
from kourou.model.limits import POLL_MESSAGES_MAX, PULL_SIZE_BYTES_MAX
from kourou.model.message import PullStatus
from kourou.model.subscription import (
    MATCH_ALL,
    ConsumeFromWhere,
    ConsumeType,
    MessageModel,
    Subscription,
)
from kourou.model.topic import MessageQueue

_STATUS = {int(status): status for status in PullStatus}
_log = logging.getLogger("kourou.client.consume")


class UnreadableMessages(Corrupt):
    """Messages at this offset fail their checksum at the broker; `next_offset` is after them."""

    def __init__(self, message: str, next_offset: int) -> None:
        super().__init__(message, hint=f"resume at offset {next_offset}, or wait for a repair")
        self.next_offset = next_offset


@dataclass(frozen=True, slots=True)
class PullResult:
    """The result of one pull. `next_offset` is where to continue, whatever the status."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    messages: list[ReceivedMessage] = field(default_factory=list)


class PullConsumer:
    """A consumer that pulls on request. An `offset` is the index of a message in its queue."""

    def __init__(
        self, session: Session, settings: PullConsumerSettings, *, body_type: Any = None
    ) -> None:
        self.group = settings.consumer_group
        self.settings = settings
        self._session = session
        self._io = session.io
        self._offsets: OffsetStore = RemoteOffsets(self.group, session.facts)
        if settings.offset_store is not None:
            self._offsets = settings.offset_store
        self._decode = None if body_type is None else body_decoder(body_type)
        self._filters = session.filter_pulls(self.group, settings.filter_failover)
        self._puller = Puller(
            self.group,
            session.connections,
            session.routes,
            session.clock,
            session.tracing,
            self._filters,
        )
        self._send_back = SendBackRequests(session, self.group)
        self._assigned: dict[MessageQueue, int] = {}
        self._paused: set[MessageQueue] = set()
        self._subscriptions: dict[str, Subscription] = {}
        self._closed = False
        self._seen: dict[str, list[MessageQueue]] = {}

    # -- lifecycle --------------------------------------------------------------------------------

    @property
    def membership(self) -> ClientMembership:
        """The membership for heartbeats: the group must exist before the consumer may pull."""
        return ClientMembership(
            group=self.group,
            consume_type=ConsumeType.CONSUME_ACTIVELY,
            message_model=self.settings.message_model,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
            subscriptions=tuple(self._subscriptions.values()),
        )

    def rebalance_soon(self) -> None:
        """Do nothing: changes in the group do not affect explicitly assigned queues."""

    async def reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Handle an operator's offset reset (request code 220): continue assigned queues there."""
        for queue in self._assigned.keys() & offsets.keys():
            self._assigned[queue] = offsets[queue]

    def status(self, topic: str) -> dict[MessageQueue, int]:
        """Return the position of `poll` in the assigned queues of a topic (request code 221)."""
        return {queue: at for queue, at in sorted(self._assigned.items()) if queue.topic == topic}

    async def open(self) -> None:
        """Join the group and watch the registered topics."""
        await self._session.join(self)
        listener = self.settings.message_queue_listener
        if listener is not None:
            self._session.routes.listen(self._route_changed)
        for topic in self.settings.register_topics:
            self._session.routes.watch(topic)
            if await self._session.routes.find_existing(topic) is not None:
                self._route_changed(topic)

    @on_io_thread
    async def close(self) -> None:
        """Leave the group. Offsets are not committed."""
        if self._closed:
            return
        self._closed = True
        if self.settings.message_queue_listener is not None:
            self._session.routes.unlisten(self._route_changed)
        await self._session.leave(self)

    def _route_changed(self, topic: str) -> None:
        """Call the application's listener if the queues of a registered topic changed."""
        listener = self.settings.message_queue_listener
        known = self._session.routes.known(topic)
        if listener is None or known is None or topic not in self.settings.register_topics:
            return
        queues = list(known.readable)
        if self._seen.get(topic) != queues:
            self._seen[topic] = queues
            done = asyncio.get_running_loop().run_in_executor(None, listener, topic, queues)
            done.add_done_callback(_listener_done)

    # -- queues -----------------------------------------------------------------------------------

    @on_io_thread
    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return the topic's readable queues, in order. Raises TopicNotFound."""
        known = await self._session.routes.find(topic)
        return list(known.readable)

    @on_io_thread
    async def balanced_queues(self, topic: str) -> list[MessageQueue]:
        """Return this consumer's share of the topic's queues, for the group's current consumers.

        In clustering mode every consumer computes its own share by the setting `allocation`; in
        broadcasting the share is all queues. The queues are not assigned automatically: call
        `assign`, and repeat both calls from time to time.
        """
        known = await self._session.introduce(topic)
        if self.settings.message_model is MessageModel.BROADCASTING:
            return list(known.readable)
        members = await self._session.members(self.group, known)
        return share_of(self.settings.allocation, known.readable, members, self._session.client_id)

    @on_io_thread
    async def min_offset(self, queue: MessageQueue) -> int:
        """Return the minimum offset that is stored."""
        return await self._session.facts.min_offset(queue)

    @on_io_thread
    async def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset that the next message will get."""
        return await self._session.facts.max_offset(queue)

    @on_io_thread
    async def offset_by_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset of the first message stored at or after a time."""
        return await self._session.facts.offset_by_time(queue, timestamp_ms)

    @on_io_thread
    async def earliest_store_time(self, queue: MessageQueue) -> int:
        """Return when the first stored message was stored, in ms; -1 for an empty queue."""
        return await self._session.facts.earliest_store_time(queue)

    @on_io_thread
    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the group's committed offset; None if there is none."""
        return await self._offsets.load(queue)

    @on_io_thread
    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit offsets of the group: the given ones, or the positions of the assigned queues."""
        await self._offsets.save(dict(self._assigned if offsets is None else offsets))

    @on_io_thread
    async def send_back(
        self, message: ReceivedMessage, *, delay_level: int = 0, reason: str = ""
    ) -> None:
        """Send a message to the group's retry topic; it is redelivered after the delay of a level.

        With level 0 the broker derives the delay from the number of attempts; a negative level
        makes the message a dead letter. It is redelivered to the consumer that has assigned itself
        the queues of %RETRY%group. Raises Unavailable if no broker accepts it.
        """
        await self._send_back.send_back(message, delay_level=delay_level, reason=reason)

    # -- one pull ---------------------------------------------------------------------------------

    @on_io_thread
    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        expression: Wanted = MATCH_ALL,
        count_max: int = 32,
        size_bytes_max: int = PULL_SIZE_BYTES_MAX,
        wait_ms: int = 0,
    ) -> PullResult:
        """Pull once from `offset`; with `wait_ms` the broker waits for new messages (long poll).

        The wait is limited by the setting `broker_suspend_max_time_ms` and by the broker. Raises
        UnreadableMessages if the messages there are damaged, FilterFailed if the filter cannot be
        evaluated (the offset stays valid), Rejected if the broker refuses, Unavailable or
        UnknownOutcome if it does not reply.
        """
        if offset < 0 or count_max < 1 or wait_ms < 0:
            raise BadRequest(
                "offset and wait time must be at least 0, and the number of messages at least 1"
            )
        subscription = self._subscription(queue.topic, expression)
        pulled = await self._ask(queue, offset, subscription, count_max, size_bytes_max, wait_ms)
        return result_of(queue, pulled, subscription)

    def _subscription(self, topic: str, expression: Wanted) -> Subscription:
        if isinstance(expression, Filter):
            self._filters.uploads.want(expression)
        known = self._subscriptions.get(topic)
        if known is None or not says(known, expression):
            check_wanted(expression)
            # A pull contains its expression; the version only distinguishes it from an older one.
            known = subscription_of(topic, expression, version=self._session.clock.now_ms())
            self._subscriptions[topic] = known
        return known

    async def _ask(
        self,
        queue: MessageQueue,
        offset: int,
        subscription: Subscription,
        count_max: int,
        size_bytes_max: int,
        wait_ms: int,
    ) -> Pulled:
        settings = self.settings
        await self._session.introduce(queue.topic)
        hold_ms = min(wait_ms, settings.broker_suspend_max_time_ms)
        timeout_ms = settings.consumer_pull_timeout_ms
        if hold_ms:
            timeout_ms = settings.consumer_timeout_ms_when_suspend
        params = PullParams(count_max, size_bytes_max, hold_ms, timeout_ms)
        return await self._puller.pull(queue, offset, subscription, params, self._decode)

    # -- several queues in turn -------------------------------------------------------------------

    @on_io_thread
    async def assign(
        self, queues: Iterable[MessageQueue], *, expression: Wanted = MATCH_ALL
    ) -> None:
        """Assign queues to be read with `poll`, each from the committed or else the minimum offset.

        Replaces the previous assignment. Raises Rejected with the broker's reason if it refuses the
        filter.
        """
        fresh: dict[MessageQueue, int] = {}
        for queue in queues:
            subscription = self._subscription(queue.topic, expression)
            if subscription.class_filter_mode and queue.topic not in {one.topic for one in fresh}:
                known = await self._session.introduce(queue.topic)
                await self._filters.uploads.put(known, [subscription.expression])
            committed = await self._offsets.load(queue)
            if committed is None or committed < 0:
                committed = await self._session.facts.min_offset(queue)
            fresh[queue] = committed
        self._assigned = fresh
        self._paused &= fresh.keys()

    @on_io_thread
    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue an assigned queue at `offset`. Raises BadRequest if it is not assigned."""
        self._seek(queue, offset)

    @on_io_thread
    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Continue an assigned queue at its minimum offset."""
        self._seek(queue, await self._session.facts.min_offset(queue))

    @on_io_thread
    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Continue an assigned queue after its last message."""
        self._seek(queue, await self._session.facts.max_offset(queue))

    @on_io_thread
    async def seek_to_time(self, queue: MessageQueue, timestamp_ms: int) -> None:
        """Continue an assigned queue at the first message stored at or after a time."""
        self._seek(queue, await self._session.facts.offset_by_time(queue, timestamp_ms))

    def _seek(self, queue: MessageQueue, offset: int) -> None:
        self._check_assigned(queue)
        self._assigned[queue] = offset

    def _check_assigned(self, queue: MessageQueue) -> None:
        if queue not in self._assigned:
            raise BadRequest(f"{queue!s} is not assigned to this consumer")

    @on_io_thread
    async def position(self, queue: MessageQueue) -> int:
        """Return the next offset that `poll` reads of an assigned queue."""
        self._check_assigned(queue)
        return self._assigned[queue]

    @on_io_thread
    async def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Exclude assigned queues from `poll`; a running poll may still return their messages."""
        for queue in queues:
            self._check_assigned(queue)
            self._paused.add(queue)

    @on_io_thread
    async def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Include these queues in `poll` again."""
        self._paused.difference_update(queues)

    @on_io_thread
    async def poll(
        self, *, count_max: int = POLL_MESSAGES_MAX, wait_ms: int = 1_000
    ) -> list[ReceivedMessage]:
        """Return the next messages of one assigned queue, queues in turn; empty after `wait_ms`.

        An offset outside its queue is corrected, with a warning in the log. Raises the errors of
        `pull`. While a queue raises an error, the other queues are not read, unless it is paused.
        """
        if count_max < 1 or wait_ms < 0:
            raise BadRequest(
                "the wait time must be at least 0 ms, and the number of messages at least 1"
            )
        if not self._assigned:
            raise BadRequest("no queue is assigned to this consumer", hint="call assign() first")
        for queue in self._read():
            messages = self._use(await self._poll_one(queue, count_max, 0))
            if messages:
                return messages
        clock = self._session.clock
        end_ms = clock.monotonic_ms() + wait_ms
        while self._assigned and (left_ms := end_ms - clock.monotonic_ms()) > 0:
            asked_ms = clock.monotonic_ms()
            messages = await self._poll_held(count_max, left_ms)
            if messages:
                return messages
            if clock.monotonic_ms() - asked_ms < SWIFT_MS:  # no long poll: avoid a busy loop
                await asyncio.sleep(min(FULL_PAUSE_MS, left_ms) / 1000)
        return []

    def _read(self) -> list[MessageQueue]:
        return [queue for queue in self._assigned if queue not in self._paused]

    async def _poll_held(self, count_max: int, wait_ms: int) -> list[ReceivedMessage]:
        """Long-poll every assigned queue; returns the first messages, empty if none arrived."""
        hold_ms = min(wait_ms, self.settings.broker_suspend_max_time_ms)
        holds = [
            asyncio.ensure_future(self._poll_one(queue, count_max, hold_ms))
            for queue in self._read()
        ]
        try:
            for hold in asyncio.as_completed(holds, timeout=hold_ms / 1000 + 1):
                messages = self._use(await hold)
                if messages:
                    return messages
        except TimeoutError:
            pass  # the brokers waited a little longer than requested
        finally:
            # Pulls that end now are not used, so their messages are pulled again next time.
            for hold_task in holds:
                hold_task.cancel()
            await asyncio.gather(*holds, return_exceptions=True)
        return []

    async def _poll_one(
        self, queue: MessageQueue, count_max: int, wait_ms: int
    ) -> tuple[MessageQueue, int, PullResult]:
        offset = self._assigned[queue]
        subscription = self._subscriptions[queue.topic]
        pulled = await self._ask(
            queue, offset, subscription, count_max, PULL_SIZE_BYTES_MAX, wait_ms
        )
        if pulled.code == Code.FLOW_CONTROL:  # over a quota; the broker let the pull wait for it
            return queue, offset, PullResult(PullStatus.NO_NEW_MESSAGE, offset, 0, 0, [])
        return queue, offset, result_of(queue, pulled, subscription)

    def _use(self, polled: tuple[MessageQueue, int, PullResult]) -> list[ReceivedMessage]:
        """Use a result; only this advances the queue's position."""
        queue, offset, result = polled
        if self._assigned.get(queue) != offset:
            return []  # the position was changed in the meantime
        if result.status is PullStatus.OFFSET_ILLEGAL:
            _log.warning(
                "offset-corrected: %(queue)s: offset %(offset)d is outside the queue's "
                "%(min_offset)d to %(max_offset)d; resuming at %(next_offset)d",
                {
                    "queue": queue,
                    "offset": offset,
                    "min_offset": result.min_offset,
                    "max_offset": result.max_offset,
                    "next_offset": result.next_offset,
                },
            )
        # Moved to the end, so that queues take turns.
        del self._assigned[queue]
        self._assigned[queue] = result.next_offset
        return result.messages


def result_of(queue: MessageQueue, pulled: Pulled, subscription: Subscription) -> PullResult:
    """Return the result of a pull, with tags compared exactly.

    Raises UnreadableMessages, FilterFailed, or the error of the broker's reply.
    """
    if pulled.code == Code.MESSAGE_CORRUPT:
        raise UnreadableMessages(f"{queue!s}: {pulled.remark}", pulled.next_offset)
    if pulled.code == Code.FILTER_FAILED:
        raise failure_of(queue, pulled)
    status = _STATUS.get(pulled.code)
    if status is None:
        raise error_from_code(pulled.code, pulled.remark)
    wanted = tag_filter(subscription)
    messages = pulled.messages
    if wanted is not None:
        messages = [message for message in messages if wanted(message)]
    return PullResult(status, pulled.next_offset, pulled.min_offset, pulled.max_offset, messages)


def _listener_done(done: asyncio.Future[None]) -> None:
    """Log the exception that an application's listener raised."""
    if not done.cancelled() and done.exception() is not None:
        _log.error(
            "queue-listener-failed: a message queue listener failed", exc_info=done.exception()
        )
