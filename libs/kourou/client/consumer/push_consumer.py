"""A consumer that receives messages: rebalancing, commits, and an orderly end.

Guarantees (at least once):

- an offset is committed only when every message below it was consumed or filtered out
- if a broker has a new leader, the offsets are committed to it again at once
- when a queue is released, its offset is committed once more and its unfinished messages are
  dropped; the next owner receives them again
- a message whose handler failed counts as consumed only when the brokers have stored it in the
  group's retry topic, to which every consumer subscribes; in broadcasting it is skipped

State: soft. Used on the I/O thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from kourou.client.codecs import Decode
from kourou.client.consumer.acknowledgement import Acknowledgements
from kourou.client.consumer.allocation import share_of
from kourou.client.consumer.handlers import HandlerReport, HandlerRunner
from kourou.client.consumer.offsets import (
    LocalOffsets,
    OffsetStore,
    QueueFacts,
    RemoteOffsets,
    local_offsets_path,
)
from kourou.client.consumer.outcomes import ConsumeRefused, reason_of
from kourou.client.consumer.puller import Puller
from kourou.client.consumer.queue_consumption import (
    ConsumeCounts,
    ConsumedQueue,
    ConsumptionContext,
)
from kourou.client.consumer.received import ReceivedMessage, from_record
from kourou.client.consumer.send_back import SendBackRequests
from kourou.client.filters.python_filter import Filter
from kourou.client.introspection.running_info import (
    SAMPLE_MS,
    ConsumeStatistics,
    HandlerResult,
    RunningInfo,
    filter_properties,
    properties_of,
    stalled_properties,
)
from kourou.client.session.client_session import Session
from kourou.client.session.heartbeats import ClientMembership
from kourou.client.session.io_thread import background, is_set_within
from kourou.client.settings.client_settings import ConsumerSettings, consume_timestamp_ms
from kourou.clock import Clock
from kourou.errors import BadRequest, FilterFailed
from kourou.model.limits import FAILURE_REASON_LENGTH_MAX
from kourou.model.names import RETRY_PREFIX, retry_topic
from kourou.model.subscription import ConsumeFromWhere, ConsumeType, MessageModel, Subscription
from kourou.model.topic import MessageQueue

SUCCESS = "CR_SUCCESS"
LATER = "CR_LATER"
RAISED = "CR_THROW_EXCEPTION"

QUEUES_AT_ONCE = 32
"""The number of queues per round of concurrent requests.

A slow broker delays only one round at a time, and does not get thousands of requests at once.
"""

AGAIN_MS = 1_000
"""The delay before an incomplete rebalance is repeated."""

SEND_BACKS_END_MS = 1_000
"""How long `close` waits for messages that are being sent back to the brokers."""

_log = logging.getLogger("kourou.client.consume")


class _OneCall:
    """The lease of such a message: keeps the outcome that its handler reports."""

    def __init__(self) -> None:
        self.said: list[BaseException | None] = []

    def ask(self, offset: int, failure: BaseException | None) -> None:
        """Record what the handler reports for its message."""
        self.said.append(failure)


async def called_directly(
    runner: HandlerRunner,
    record: bytes,
    decode: Decode | None,
    clock: Clock,
    *,
    batched: bool,
    order: bool = False,
) -> HandlerResult:
    """Call the handler with this record and return the result."""
    message = from_record(record, "", decode)
    lease = message.lease = _OneCall()
    item: ReceivedMessage | list[ReceivedMessage] = [message] if batched else message
    started_ms = clock.monotonic_ms()
    failure = await runner.call(item)
    if lease.said:
        failure = lease.said[0]
    spent_ms = clock.monotonic_ms() - started_ms
    if failure is None:
        return HandlerResult(SUCCESS, "", spent_ms, order)
    result = LATER if isinstance(failure, ConsumeRefused) else RAISED
    reason = reason_of(failure, FAILURE_REASON_LENGTH_MAX)
    return HandlerResult(result, reason, spent_ms, order)


class StartOffsets:
    """The start offsets of one group. `at_once` is the number of queues to request concurrently.

    It is 1 for an application's own offset store, whose `load` may not support concurrent calls.
    """

    def __init__(
        self, settings: ConsumerSettings, offsets: OffsetStore, facts: QueueFacts, clock: Clock
    ) -> None:
        self._settings = settings
        self._offsets = offsets
        self._facts = facts
        self._clock = clock
        ours = isinstance(offsets, RemoteOffsets | LocalOffsets)
        self.at_once = QUEUES_AT_ONCE if ours else 1

    async def of(self, queues: Sequence[MessageQueue]) -> list[int | BaseException]:
        """Return for each queue, requested concurrently, its start offset or the error."""
        return await asyncio.gather(*map(self._of, queues), return_exceptions=True)

    async def _of(self, queue: MessageQueue) -> int:
        stored = await self._offsets.load(queue)
        if stored is not None and stored >= 0:
            return stored
        facts = self._facts
        if queue.topic.startswith(RETRY_PREFIX):
            return await facts.min_offset(queue)  # all failed messages of the group must be retried
        match self._settings.consume_from_where:
            case ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
                return await facts.min_offset(queue)
            case ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
                now_ms = self._clock.now_ms()
                timestamp_ms = consume_timestamp_ms(self._settings.consume_timestamp, now_ms)
                return await facts.offset_by_time(queue, timestamp_ms)
            case _:
                return await facts.max_offset(queue)


class PushConsumer:
    """One consumer of one group, for any number of topics."""

    def __init__(
        self,
        session: Session,
        settings: ConsumerSettings,
        subscriptions: Mapping[str, Subscription],
        make_runner: Callable[[HandlerReport], HandlerRunner],
        *,
        decode: Decode | None = None,
        batched: bool = False,
        offsets: OffsetStore | None = None,
        filters: Iterable[Filter] = (),
    ) -> None:
        if not subscriptions:
            raise BadRequest("no subscription: a consumer needs at least one topic")
        self.group = settings.consumer_group
        self.settings = settings
        self._session = session
        self._subscriptions = dict(subscriptions)
        if settings.message_model is MessageModel.CLUSTERING:
            topic = retry_topic(self.group)
            self._subscriptions.setdefault(
                topic, Subscription(topic, version=_newest(subscriptions))
            )
        self._offsets = self._default_offsets() if offsets is None else offsets
        self._starts = StartOffsets(settings, self._offsets, session.facts, session.clock)
        self._send_back = SendBackRequests(session, self.group, settings.max_reconsume_times)
        self.counts = ConsumeCounts()
        self._statistics = ConsumeStatistics()
        self._filters = session.filter_pulls(self.group, settings.filter_failover)
        for one in filters:
            self._filters.uploads.want(one)
        self._acknowledgements = Acknowledgements(
            settings,
            self._send_back,
            self.counts,
            self._statistics,
            self._retry_wanted,
            batched=batched,
        )
        self._around = ConsumptionContext(
            settings=settings,
            puller=Puller(
                self.group,
                session.connections,
                session.routes,
                session.clock,
                session.tracing,
                self._filters,
            ),
            decode=decode,
            runner=self._make_runner(make_runner),
            batch_size=settings.consume_message_batch_max_size,
            batched=batched,
            heartbeat_soon=session.heartbeats.soon,
            route_stale=session.routes.stale,
            clock=session.clock,
            counts=self.counts,
            statistics=self._statistics,
        )
        self._acknowledgements.serve(self._around.runner)
        self._queues: dict[MessageQueue, ConsumedQueue] = {}
        self._rebalance_wanted = asyncio.Event()
        self._commit_wanted = asyncio.Event()
        self._rebalancing = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []
        self._waiting: set[asyncio.TimerHandle] = set()
        self._closing = False
        self._started_ms = session.clock.now_ms()

    def _make_runner(self, make_runner: Callable[[HandlerReport], HandlerRunner]) -> HandlerRunner:
        """Return the runner that calls the handler."""
        return make_runner(self._acknowledgements)

    def _default_offsets(self) -> OffsetStore:
        if self.settings.message_model is MessageModel.CLUSTERING:
            return RemoteOffsets(self.group, self._session.facts)
        root = self._session.settings.local_offsets_dir
        return LocalOffsets(local_offsets_path(root, self._session.client_id, self.group))

    @property
    def membership(self) -> ClientMembership:
        """The group membership for heartbeats."""
        return ClientMembership(
            group=self.group,
            consume_type=ConsumeType.CONSUME_PASSIVELY,
            message_model=self.settings.message_model,
            consume_from_where=self.settings.consume_from_where,
            subscriptions=tuple(self._subscriptions.values()),
        )

    @property
    def assigned(self) -> list[MessageQueue]:
        """The queues that this consumer consumes now, sorted, without those of the retry topic.

        Callable from any thread: the queues are copied first, because the I/O thread changes them.
        """
        queues = list(self._queues)
        return sorted(queue for queue in queues if not queue.topic.startswith(RETRY_PREFIX))

    # -- lifecycle --------------------------------------------------------------------------------

    async def start(self) -> None:
        """Join the group and start consuming; topics that do not exist yet are watched."""
        session = self._session
        for topic in self._subscriptions:
            session.routes.watch(topic)
            known = await session.routes.find_existing(topic)
            if known is None and not topic.startswith(RETRY_PREFIX):
                _log.warning(
                    "topic-awaited: group %(group)s: waiting for topic %(topic)s to be created",
                    {"group": self.group, "topic": topic},
                )
        await session.join(self)
        await self._upload_filters()
        session.routes.listen(self._route_changed)
        session.routes.listen_leaders(self._leader_changed)
        await self._rebalance_once()
        self._tasks = [
            background(self._keep_balanced(), f"rebalancing group {self.group}"),
            background(self._keep_committed(), f"committing of group {self.group}"),
            background(self._keep_looking(), f"looking after handlers of group {self.group}"),
        ]

    async def _upload_filters(self) -> None:
        """Upload the filters to the brokers; if one is refused, the start fails.

        Brokers that are added later get the filters before anything is pulled from them.
        """
        for topic, subscription in self._subscriptions.items():
            known = self._session.routes.known(topic)
            if subscription.class_filter_mode and known is not None and not known.borrowed:
                await self._filters.uploads.put(known, [subscription.expression])

    async def close(self) -> None:
        """Wait for running handlers, commit offsets, leave the group.

        Brokers that cannot be reached are not waited for: what was consumed since the last commit
        is then redelivered, to other consumers of this group or at the next start.
        """
        if self._closing:
            return
        self._closing = True
        if isinstance(self._offsets, RemoteOffsets):
            self._offsets.hurried = True
        self._session.routes.unlisten(self._route_changed)
        self._session.routes.unlisten_leaders(self._leader_changed)
        for task in self._tasks:
            task.cancel()
        for timer in self._waiting:
            timer.cancel()
        async with self._rebalancing:
            for consumed in self._queues.values():
                consumed.pause()
            if not await self._around.runner.close(self.settings.await_termination_ms):
                _log.warning(
                    "handlers-running: group %(group)s: handlers are still running after "
                    "%(waited_ms)d ms; their messages will be redelivered",
                    {"group": self.group, "waited_ms": self.settings.await_termination_ms},
                )
            # Reports that runners made before their end are processed in this iteration of the
            # loop.
            await asyncio.sleep(0)
            await self._acknowledgements.close(SEND_BACKS_END_MS)
            await self._commit(self._queues.values(), "at close; some messages will be redelivered")
            await self._release_queues()
        await self._session.leave(self)

    async def _release_queues(self) -> None:
        """Release the queues after the last commit."""
        for consumed in self._queues.values():
            consumed.stop()
        self._queues.clear()

    # -- rebalancing ------------------------------------------------------------------------------

    def rebalance_soon(self) -> None:
        """Rebalance soon; callable on the I/O thread."""
        self._rebalance_wanted.set()

    def _route_changed(self, topic: str) -> None:
        if topic in self._subscriptions:
            self.rebalance_soon()

    async def _keep_balanced(self) -> None:
        interval_ms = self._session.settings.rebalance_interval_ms
        while not self._closing:
            await is_set_within(self._rebalance_wanted, interval_ms)
            self._rebalance_wanted.clear()
            await self._rebalance_once()

    async def _rebalance_once(self) -> None:
        """Compute this consumer's share of every topic, release other queues, start new ones."""
        async with self._rebalancing:
            if self._closing:
                return
            complete = True
            for topic, subscription in self._subscriptions.items():
                try:
                    share = await self._share(topic)
                except Exception as error:  # noqa: BLE001 - an application's allocation may raise anything
                    _log.warning(
                        "assignment-failed: group %(group)s: queue assignment of %(topic)s "
                        "unchanged: %(error)r",
                        {"group": self.group, "topic": topic, "error": error},
                    )
                    complete = False
                    continue
                await self._give_up(topic, share)
                complete &= await self._begin(share, subscription)
                self._divide_thresholds(topic)
        if not complete:
            self._later(AGAIN_MS, self.rebalance_soon)

    async def _share(self, topic: str) -> set[MessageQueue]:
        """Return this consumer's queues of one topic.

        Raises KourouError if they are unknown now.
        """
        known = await self._session.routes.find_existing(topic)
        if known is None:
            return set()
        if self.settings.message_model is MessageModel.BROADCASTING:
            return set(known.readable)
        members = await self._session.members(self.group, known)
        return set(
            share_of(self.settings.allocation, known.readable, members, self._session.client_id)
        )

    async def _give_up(self, topic: str, share: set[MessageQueue]) -> None:
        lost = [
            consumed
            for queue, consumed in self._queues.items()
            if queue.topic == topic and (queue not in share or consumed.ended)
        ]
        if not lost:
            return
        offsets: dict[MessageQueue, int] = {}
        for consumed in lost:
            del self._queues[consumed.queue]
            offsets[consumed.queue] = consumed.stop()
        _log.info(
            "queues-released: group %(group)s: released %(queues)s",
            {"group": self.group, "queues": ", ".join(map(str, offsets))},
        )
        try:
            await self._offsets.save(offsets)
        except Exception as error:  # noqa: BLE001 - an application's offset store may raise anything
            _log.warning(
                "final-commit-failed: group %(group)s: the last offsets were not committed: "
                "%(error)r",
                {"group": self.group, "error": error},
            )

    async def _begin(self, share: Collection[MessageQueue], subscription: Subscription) -> bool:
        """Start the new queues of the share; returns False if some must be tried again."""
        wanted = {queue for queue in share if queue not in self._queues}
        beginnable = sorted(await self._beginnable(wanted))
        complete = len(beginnable) == len(wanted)
        at_once = self._starts.at_once
        for first in range(0, len(beginnable), at_once):
            if self._closing:
                break
            queues = beginnable[first : first + at_once]
            for queue, start in zip(queues, await self._starts.of(queues), strict=True):
                if isinstance(
                    start, BaseException
                ):  # an application's offset store may raise anything
                    _log.warning(
                        "queue-start-failed: group %(group)s: cannot start consuming %(queue)s "
                        "yet: %(error)r",
                        {"group": self.group, "queue": queue, "error": start},
                    )
                    complete = False
                    continue
                consumed = ConsumedQueue(queue, subscription, start, self._around, len(share))
                self._queues[queue] = consumed
                consumed.start()
                _log.info(
                    "queue-started: group %(group)s: consuming %(queue)s from offset %(offset)d",
                    {"group": self.group, "queue": queue, "offset": start},
                )
        return complete

    async def _beginnable(self, queues: Collection[MessageQueue]) -> Collection[MessageQueue]:
        """Return the queues that may be started now; the others are tried again."""
        return queues

    def _divide_thresholds(self, topic: str) -> None:
        ours = [consumed for queue, consumed in self._queues.items() if queue.topic == topic]
        for consumed in ours:
            consumed.divide(len(ours))

    # -- offsets ----------------------------------------------------------------------------------

    async def _keep_committed(self) -> None:
        interval_ms = self._session.settings.persist_consumer_offset_interval_ms
        while not self._closing:
            await is_set_within(self._commit_wanted, interval_ms)
            self._commit_wanted.clear()
            await self._commit(list(self._queues.values()), "for now")

    async def _commit(self, queues: Iterable[ConsumedQueue], when: str) -> None:
        changed = {
            consumed: consumed.window.commit_offset
            for consumed in queues
            if consumed.window.commit_offset != consumed.committed
        }
        if not changed:
            return
        try:
            await self._offsets.save(
                {consumed.queue: offset for consumed, offset in changed.items()}
            )
        except Exception as error:  # noqa: BLE001 - an application's offset store may raise anything
            _log.warning(
                "commit-failed: group %(group)s: offsets were not committed %(when)s: %(error)r",
                {"group": self.group, "when": when, "error": error},
            )
            return
        for consumed, offset in changed.items():
            consumed.committed = offset

    def _leader_changed(self, name: str, _address: str) -> None:
        """Commit again, because the last commits may not have reached a broker's new leader."""
        for queue, consumed in self._queues.items():
            if queue.broker_name == name:
                consumed.committed = None
                self._commit_wanted.set()

    async def commit(self) -> None:
        """Commit the consumed offsets now."""
        await self._commit(list(self._queues.values()), "now")

    async def reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Handle an offset reset by an operator (request code 220).

        Drops cached messages and restarts at the new offsets.
        """
        async with self._rebalancing:
            if self._closing:
                return
            moved: dict[MessageQueue, int] = {}
            for queue, offset in offsets.items():
                consumed = self._queues.pop(queue, None)
                if consumed is not None:
                    consumed.stop()
                    moved[queue] = offset
            if not moved:
                return
            _log.warning(
                "offsets-reset: group %(group)s: offsets were reset to %(offsets)s",
                {"group": self.group, "offsets": listed_offsets(moved)},
            )
            await self._offsets.save(moved)
            counts = Counter(queue.topic for queue in (*self._queues, *moved))
            for queue, offset in moved.items():
                consumed = ConsumedQueue(
                    queue,
                    self._subscriptions[queue.topic],
                    offset,
                    self._around,
                    counts[queue.topic],
                )
                consumed.committed = offset
                self._queues[queue] = consumed
                consumed.start()

    # -- failures and status ----------------------------------------------------------------------

    def _retry_wanted(self) -> None:
        """Look up the retry topic: it may have been created only when a message was sent back."""
        topic = retry_topic(self.group)
        if self._session.routes.known(topic) is None:
            self._session.routes.stale(topic)

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(SAMPLE_MS / 1000)
            self.sample()

    def sample(self) -> None:
        """Sample the consume rates, and send back messages whose handlers exceed the time limit."""
        now_ms = self._session.clock.monotonic_ms()
        self._statistics.sample(now_ms, self._around.runner.times())
        self._acknowledgements.check_stuck(now_ms)

    def status(self, topic: str) -> dict[MessageQueue, int]:
        """Return the next offset to commit for each queue of a topic (request code 221)."""
        return {
            queue: consumed.window.commit_offset
            for queue, consumed in sorted(self._queues.items())
            if queue.topic == topic
        }

    @property
    def waiting(self) -> dict[MessageQueue, FilterFailed]:
        """The queues that are blocked because their filter cannot be evaluated, with the error."""
        return {
            queue: consumed.filter_failure
            for queue, consumed in sorted(self._queues.items())
            if consumed.filter_failure is not None
        }

    def running_info(self) -> RunningInfo:
        """Return this consumer's running info (request code 307)."""
        queues = {queue: one.info() for queue, one in sorted(self._queues.items())}
        return RunningInfo(
            properties=properties_of(self.settings)
            | filter_properties(self.counts.filter_failures, self.waiting)
            | stalled_properties(queues, self._session.clock.now_ms()),
            subscriptions=tuple(self._subscriptions.values()),
            queues=queues,
            rates=self._statistics.rates(),
            started_ms=self._started_ms,
        )

    async def consume_directly(self, record: bytes) -> HandlerResult:
        """Call the handler with a stored message on an operator's request (request code 309).

        Queues and offsets are not affected. Raises BadRequest if there is only an iterator.
        """
        return await called_directly(
            self._around.runner,
            record,
            self._around.decode,
            self._session.clock,
            batched=self._around.batched,
        )

    # -- timers -----------------------------------------------------------------------------------

    def _later(self, delay_ms: int, action: Callable[[], None]) -> None:
        def act() -> None:
            self._waiting.discard(timer)
            action()

        timer = asyncio.get_running_loop().call_later(delay_ms / 1000, act)
        self._waiting.add(timer)


def _newest(subscriptions: Mapping[str, Subscription]) -> int:
    return max(one.version for one in subscriptions.values())


def listed_offsets(offsets: Mapping[MessageQueue, int]) -> str:
    """Return the offsets of queues for a log line."""
    return ", ".join(f"{queue!s}={offset}" for queue, offset in sorted(offsets.items()))
