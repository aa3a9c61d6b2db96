"""One group that this gateway has joined: its messages, leases and waiting receives.

Guarantees (at least once):
  - a group's offset advances only past messages that were acknowledged or returned to the brokers
  - messages leased when this process dies or leaves the group are redelivered
  - a message whose lease expires is leased again here, with a higher attempt
  - in order, the next message of a queue is leased after the previous one is finished

State: soft. Used on the gateway's loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from kourou.client.client import Client
from kourou.client.consumer.handlers import HandlerReport, HandlerRunner
from kourou.client.consumer.lease_consumer import LeaseConsumer
from kourou.client.filters.expressions import Wanted
from kourou.client.session.io_thread import background
from kourou.client.settings.client_settings import ConsumerSettings
from kourou.clock import Clock
from kourou.errors import BadRequest, KourouError, UnknownOutcome
from kourou.model.limits import (
    LEASE_EXPIRIES_MAX,
    LEASE_SPAN_MAX,
    LEASE_TOPIC_MESSAGES_MAX,
    LEASE_TOPIC_MIB_MAX,
    LEASES_ENDED_REMEMBERED_MAX,
    RECEIVE_BYTES_MAX,
    RECEIVES_WAITING_MAX,
)
from kourou.model.subscription import ConsumeFromWhere
from kourou_console.http.responses import Busy, HttpError
from kourou_console.leases.book import Book, Held, HeldState, LeaseEnd
from kourou_console.leases.runners import FreeRunner, LeasableMessage, TurnRunner
from kourou_console.lists import Missing, why

COMMIT_AFTER_MS = 500
"""The delay of the commit after an acknowledgement: what a crash may cause to be redelivered."""
IDLE_MS = 180_000
"""An idle topic, without receives and leases for this time, is unsubscribed."""
JOIN_GRACE_MS = 500
"""The minimum wait of the receive that joins a group, because the first pulls take time."""
TURN_GRACE_MS = 50
"""The minimum wait of a receive in order: the next message comes after the last is finished."""
KEPT_MS = 10_000
"""A lease continues for at least this time if no broker accepted its message."""
LOOK_ROUNDS = 5
"""The number of checks between two tests whether all messages' queues are still assigned to us."""

PULL_BYTES = 256 * 1024
"""The size of one pull: a topic has several queues, and waiting messages are in memory."""

_log = logging.getLogger("kourou.console.leases")

GroupHeld = Held[LeasableMessage]


@dataclass(slots=True)
class TopicUse:
    """One topic of a group: its filter, the waiting receives, and the time of the last receive."""

    wanted: Wanted
    last_ms: int
    waiters: deque[asyncio.Future[None]] = field(default_factory=deque)
    receiving: int = 0


class GroupMember:
    """One group."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        group: str,
        begin: ConsumeFromWhere,
        next_number: Callable[[], int],
        *,
        ordinal: int,
        ordered: bool,
    ) -> None:
        self.group = group
        self.ordinal = ordinal
        self.ordered = ordered
        self.topics: dict[str, TopicUse] = {}
        self.book: Book[LeasableMessage] = Book(
            next_number, remembered_max=LEASES_ENDED_REMEMBERED_MAX
        )
        self.changing = asyncio.Lock()
        self.left = False
        self._client = client
        self._clock = clock
        self._begin = begin
        self._consumer: LeaseConsumer | None = None
        self._committing: asyncio.Task[None] | None = None
        self._uncommitted = False
        self._send_backs: set[asyncio.Task[Any]] = set()
        self._looks = 0

    # -- joining and leaving ----------------------------------------------------------------------

    async def join(self, topic: str, wanted: Wanted) -> None:
        """Subscribe to a topic; the caller holds `changing`. Raises what brokers reject."""
        if self._consumer is None:
            consumer = self._client.lease_consumer(
                {topic: wanted},
                self._runner,
                settings=ConsumerSettings(
                    consumer_group=self.group,
                    consume_from_where=self._begin,
                    pull_threshold_for_topic=LEASE_TOPIC_MESSAGES_MAX,
                    pull_threshold_size_for_topic_mib=LEASE_TOPIC_MIB_MAX,
                    pull_size_bytes=PULL_BYTES,
                    consume_concurrently_max_span=LEASE_SPAN_MAX,
                ),
                ordered=self.ordered,
            )
            await consumer.start()
            self._consumer = consumer
        else:
            await self._consumer.also(topic, wanted)
        self.topics[topic] = TopicUse(wanted, self._clock.monotonic_ms())

    def _runner(self, loop: asyncio.AbstractEventLoop, report: HandlerReport) -> HandlerRunner:
        # Called on the I/O thread; the runner works on our loop.
        if self.ordered:
            return TurnRunner(loop, report, self._arrived, self._closed)
        return FreeRunner(loop, report, self._arrived, self._closed)

    async def leave(self) -> None:
        """Commit and leave; leased messages are redelivered to the remaining members."""
        self.left = True
        if self._committing is not None:
            self._committing.cancel()
        if self._send_backs:
            await asyncio.wait(self._send_backs, timeout=KEPT_MS / 1000)
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await consumer.close()
        self._closed()

    def _closed(self) -> None:
        """The member is closed: drop all messages."""
        for held in list(self.book.held()):
            if held.state is not HeldState.RETURNING:
                self.book.forget(held)
        for use in self.topics.values():
            _wake(use, everybody=True)

    def _arrived(self, messages: Sequence[LeasableMessage]) -> None:
        for leasable in messages:
            message = leasable.message
            self.book.arrived(leasable, message.topic, message.size, message.attempt)
        for topic in {leasable.message.topic for leasable in messages}:
            use = self.topics.get(topic)
            if use is not None:
                _wake(use)

    async def queues(self) -> int:
        """The number of the group's queues that are assigned to this gateway."""
        return 0 if self._consumer is None else await self._consumer.queue_count()

    def unfiltered(self, topic: str) -> list[Missing]:
        """The topic's queues here that are blocked because their filter fails, and why."""
        waiting = {} if self._consumer is None else self._consumer.waiting
        return [
            Missing(str(queue), why(failure))
            for queue, failure in waiting.items()
            if queue.topic == topic
        ]

    @property
    def receiving(self) -> int:
        """The number of waiting receives."""
        return sum(use.receiving for use in self.topics.values())

    # -- receiving --------------------------------------------------------------------------------

    async def receive(
        self, topic: str, count: int, invisible_ms: int, wait_ms: int
    ) -> list[GroupHeld]:
        """Lease up to `count` messages, as soon as there is one; empty after `wait_ms`.

        Raises Busy if too many receives are waiting.
        """
        if self.receiving >= RECEIVES_WAITING_MAX:
            raise Busy(
                f"{RECEIVES_WAITING_MAX} receives of group {self.group} are waiting "
                "already, the maximum"
            )
        use = self.topics[topic]
        loop = asyncio.get_running_loop()
        until = loop.time() + max(wait_ms, TURN_GRACE_MS if self.ordered else 0) / 1000
        use.receiving += 1
        try:
            while True:
                given = self._hand_out(topic, count, invisible_ms)
                left_s = until - loop.time()
                if given or left_s <= 0 or self.left:
                    return given
                await self._news(use, left_s)
        finally:
            use.receiving -= 1
            use.last_ms = self._clock.monotonic_ms()
            if self.book.ready(topic):
                _wake(use)  # another receive may be able to use them

    def _hand_out(self, topic: str, count: int, invisible_ms: int) -> list[GroupHeld]:
        now_ms = self._clock.monotonic_ms()
        self._expire(now_ms)
        given: list[GroupHeld] = []
        while len(given) < count:
            size_bytes = sum(held.size_bytes for held in given)
            found = self.book.receive(
                topic, count - len(given), RECEIVE_BYTES_MAX - size_bytes, invisible_ms, now_ms
            )
            wanted = len(given) + len(found)
            for held in found:
                if held.message.may_begin():
                    given.append(held)
                else:
                    self._withdraw(held)
            if len(given) == wanted:
                break
        return given

    def revoke(self, topic: str, numbers: dict[int, GroupHeld]) -> None:
        """Revoke leases that were not sent to the client: their messages can be leased again."""
        for number, held in numbers.items():
            if held.number == number and held.state is HeldState.LEASED:
                self.book.revoke(held)
        use = self.topics.get(topic)
        if use is not None and self.book.ready(topic):
            _wake(use)

    async def _news(self, use: TopicUse, within_s: float) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        use.waiters.append(waiter)
        next_ms = self.book.next_expiry_ms
        if next_ms is not None:
            within_s = min(within_s, max(next_ms - self._clock.monotonic_ms(), 1) / 1000)
        try:
            await asyncio.wait([waiter], timeout=within_s)
        finally:
            if waiter in use.waiters:
                use.waiters.remove(waiter)

    def _withdraw(self, held: GroupHeld) -> None:
        self.book.forget(held)
        held.message.withdraw()

    # -- acknowledging ----------------------------------------------------------------------------

    def find(self, number: int) -> GroupHeld | LeaseEnd | None:
        """The message of a lease, or how the lease ended; None if it is unknown."""
        return self.book.find(number, self._clock.monotonic_ms())

    def ack(self, held: GroupHeld) -> None:
        """Acknowledge a message. Raises HttpError (410) if its queue was reassigned."""
        self._check(held)
        self.book.settle(held, LeaseEnd.ACKED)
        held.message.finish()
        self._commit_soon()

    def extend(self, held: GroupHeld, invisible_ms: int) -> None:
        """Let the lease expire `invisible_ms` from now."""
        self._check(held)
        self.book.extend(held, invisible_ms, self._clock.monotonic_ms())

    async def retry(self, held: GroupHeld, delay_level: int, reason: str) -> None:
        """Redeliver a message: after a delay level; in order, after a moment at its position."""
        self._check(held)
        if not self.ordered:
            await self._give_back(held, delay_level, reason, LeaseEnd.RETRIED)
            return
        if delay_level:
            raise BadRequest(
                "in ordered consumption a message keeps its position, so delay_level is not "
                "supported",
                hint="leave delay_level at 0, or let the lease expire later (extend)",
            )
        self.book.settle(held, LeaseEnd.RETRIED)
        held.message.again(held.attempt)

    async def dead_letter(self, held: GroupHeld, reason: str) -> None:
        """Send a message to the dead-letter queue; it is stored in %DLQ%group on return."""
        self._check(held)
        await self._give_back(held, -1, reason, LeaseEnd.DEAD_LETTERED)

    def _check(self, held: GroupHeld) -> None:
        if held.state is HeldState.RETURNING:
            raise HttpError(HTTPStatus.CONFLICT, "this lease is being acknowledged already")
        if self.left:
            raise gone(LeaseEnd.LOST)  # the last commit may not include this message
        if not held.message.counts():
            self._withdraw(held)
            raise gone(LeaseEnd.LOST)

    async def _give_back(self, held: GroupHeld, level: int, reason: str, end: LeaseEnd) -> None:
        """Send a message back to the brokers, even if the caller disconnects."""
        self.book.returning(held)
        task = asyncio.ensure_future(self._giving_back(held, level, reason, end))
        self._send_backs.add(task)
        task.add_done_callback(self._send_backs.discard)
        failure = await asyncio.shield(task)
        if failure is not None:
            raise failure

    async def _giving_back(
        self, held: GroupHeld, level: int, reason: str, end: LeaseEnd
    ) -> KourouError | None:
        failure = await self._sent_back(held, level, reason)
        if failure is None:
            self.book.returned(held, end)
            self._commit_soon()
        else:
            self.book.kept(held, self._clock.monotonic_ms(), KEPT_MS)
        return failure

    async def _sent_back(self, held: GroupHeld, level: int, reason: str) -> KourouError | None:
        consumer = self._consumer
        if consumer is None:
            return gone(LeaseEnd.LOST)
        leasable = held.message
        try:
            await consumer.give_back(
                leasable.message, delay_level=level, reason=reason, finish=not self.ordered
            )
        except KourouError as error:
            if isinstance(error, UnknownOutcome):
                _log.warning(
                    "lease-end-failed: group %(group)s: message %(record)s may be redelivered "
                    "twice: %(error)s",
                    {"group": self.group, "record": leasable.message, "error": error},
                )
            return error
        if self.ordered:
            leasable.finish()
        return None

    def _commit_soon(self) -> None:
        self._uncommitted = True
        if self._committing is None and not self.left:
            self._committing = background(self._commit(), f"committing leases of {self.group}")

    async def _commit(self) -> None:
        try:
            while self._uncommitted and self._consumer is not None:
                await asyncio.sleep(COMMIT_AFTER_MS / 1000)
                self._uncommitted = False  # messages finished from now on need another commit
                if self._consumer is not None:
                    await self._consumer.commit()
        finally:
            self._committing = None

    # -- periodic checks --------------------------------------------------------------------------

    async def look(self) -> None:
        """Check for expired leases, lost queues and idle topics; called once a second."""
        now_ms = self._clock.monotonic_ms()
        self._expire(now_ms)
        self._looks += 1
        if self.ordered or self._looks % LOOK_ROUNDS == 0:
            for held in list(self.book.held()):
                if held.state is HeldState.READY and not held.message.may_begin():
                    self._withdraw(held)
        consumer = self._consumer
        idle = [topic for topic in self.topics if self._is_idle(topic, now_ms)]
        if consumer is None or not idle or self.changing.locked():
            return
        async with self.changing:
            for topic in idle:
                if self._is_idle(topic, now_ms) and len(self.topics) > 1:
                    _log.info(
                        "topic-idle: group %(group)s: stopped consuming %(topic)s: no more "
                        "receives",
                        {"group": self.group, "topic": topic},
                    )
                    del self.topics[topic]
                    await consumer.without(topic)

    def _is_idle(self, topic: str, now_ms: int) -> bool:
        use = self.topics[topic]
        silent = not use.receiving and now_ms - use.last_ms >= IDLE_MS
        return silent and not self.book.out_of(topic)

    def is_idle(self) -> bool:
        """Whether the group has neither receives nor leases here."""
        now_ms = self._clock.monotonic_ms()
        self._expire(now_ms)
        return not self.book.out and all(self._is_idle(topic, now_ms) for topic in self.topics)

    def _expire(self, now_ms: int) -> None:
        for held in self.book.expire(now_ms):
            _log.info(
                "lease-expired: group %(group)s: a lease of %(record)s expired (next attempt: "
                "%(attempt)d)",
                {"group": self.group, "record": held.message.message, "attempt": held.attempt},
            )
            if not self.ordered and held.expiries >= LEASE_EXPIRIES_MAX:
                self.book.taken(held)
                self._start_task(self._give_up(held))
            elif (use := self.topics.get(held.topic)) is not None:
                _wake(use)

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = background(work, f"dead letters of group {self.group}")
        self._send_backs.add(task)
        task.add_done_callback(self._send_backs.discard)

    async def _give_up(self, held: GroupHeld) -> None:
        reason = f"its lease expired {held.expiries} times without an acknowledgement"
        failure = await self._sent_back(held, -1, reason)
        if failure is None:
            self.book.returned(held, LeaseEnd.DEAD_LETTERED)
            self._commit_soon()
        else:
            _log.warning(
                "dead-letter-refused: group %(group)s: no broker accepted a dead letter: %(error)s",
                {"group": self.group, "error": failure},
            )
            self.book.again(held)


def gone(end: LeaseEnd) -> HttpError:
    """The error for a request about an ended lease (410)."""
    text, hint = _GONE[end]
    return HttpError(HTTPStatus.GONE, text, hint=hint)


_GONE = {
    LeaseEnd.ACKED: ("this lease was acknowledged before", ""),
    LeaseEnd.RETRIED: ("this lease has ended: its message was returned for a retry", ""),
    LeaseEnd.DEAD_LETTERED: ("this lease has ended: its message is a dead letter", ""),
    LeaseEnd.EXPIRED: (
        "this lease expired; its message is redelivered",
        "receive with a longer invisible_ms, or extend leases in time",
    ),
    LeaseEnd.LOST: (
        "this lease is lost: the queue was assigned to another consumer, or the gateway left the "
        "group",
        "the message is redelivered",
    ),
}


def _wake(use: TopicUse, *, everybody: bool = False) -> None:
    """Wake one of the waiting receives, or all."""
    while use.waiters:
        waiter = use.waiters.popleft()
        if not waiter.done():
            waiter.set_result(None)
            if not everybody:
                return
