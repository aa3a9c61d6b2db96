"""A consumer that processes the messages of each queue in order (RocketMQ's orderly consumer).

Guarantees, in addition to those of kourou.client.consumer.push_consumer:

- a queue is consumed only while its lock at the broker is held, so two consumers never call
  handlers with its messages at the same time. In broadcasting there are no locks, because consumers
  do not share queues
- a queue that moves to another consumer is released in this order: no new handler call starts; the
  running one ends, however long it takes; its offset is committed; the lock is released. So the
  next consumer continues at that offset, without duplicates
- after a lock was lost (the broker was unreachable for a minute, or another consumer got the lock)
  nothing is committed: the cached messages of the queue are dropped, and it is started again
- at close, a queue whose handler still runs after `await_termination_ms` keeps its lock, until the
  lock expires at the broker

State: soft. Everything runs on the I/O thread except `finished`, `failed` and `wanted` of
`OrderedDelivery`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any

from kourou.client.consumer.acknowledgement import CANCELLED_HANDLERS, log_refusal, offsets_by_lease
from kourou.client.consumer.handlers import HandlerReport, HandlerRunner, Item
from kourou.client.consumer.outcomes import (
    ConsumeRefused,
    DeadLetter,
    PartlyConsumed,
    RolledBack,
    Suspend,
    delay_level_of,
    reason_of,
)
from kourou.client.consumer.push_consumer import PushConsumer, listed_offsets
from kourou.client.consumer.queue_consumption import ConsumeCounts, ConsumedQueue
from kourou.client.consumer.received import ReceivedMessage
from kourou.client.consumer.send_back import SendBackRequests
from kourou.client.introspection.running_info import (
    ConsumeStatistics,
    OrderedWait,
    RunningInfo,
    ordered_properties,
)
from kourou.client.ordered.locks import RENEW_AGAIN_MS, RENEW_MS, HeldLock, OrderedLocks, unlocked
from kourou.client.ordered.turns import (
    TURN_ITEMS,
    DeliveryTurn,
    OneRefused,
    SingleTurn,
    first_of,
    messages_of,
)
from kourou.client.session.client_session import Session
from kourou.client.session.io_thread import ThreadQueue, background, is_set_within
from kourou.client.settings.client_settings import ConsumerSettings
from kourou.clock import Clock
from kourou.errors import KourouError
from kourou.model.limits import FAILURE_REASON_LENGTH_MAX
from kourou.model.names import RETRY_PREFIX
from kourou.model.subscription import MessageModel
from kourou.model.topic import MessageQueue

_log = logging.getLogger("kourou.client.consume")


@dataclass(slots=True, eq=False)
class _Target:
    """One queue.

    `turn` is running or passed to the runner; `aside` is true while dead letters are sent; `pause`
    is the timer that ends a pause.
    """

    queue: MessageQueue
    hold: HeldLock
    items: deque[Item] = field(default_factory=deque)
    uncommitted: list[Item] = field(default_factory=list)
    turn: DeliveryTurn | None = None
    aside: bool = False
    pause: asyncio.TimerHandle | None = None
    pause_until_ms: int = 0
    ended: bool = False
    waiters: list[asyncio.Future[None]] = field(default_factory=list)


class OrderedDelivery:
    """Delivers the messages of one consumer: one handler call at a time for each queue.

        ConsumedQueue --submit--> target --DeliveryTurn--> runner  (this is the queue's runner ...)
        Window <--finish-- target <--report-- runner            (... and the runner's report)

    Guarantees:

    - the next message of a queue is delivered only when the previous one is finished
    - a message that failed is redelivered first, after a pause during which its queue is blocked;
      after `max_reconsume_times` it is sent to the dead-letter queue and the queue continues
      (-1: never)
    - a target that is ended starts no handler call; `idle` waits for the running one
    """

    def __init__(
        self,
        group: str,
        settings: ConsumerSettings,
        clock: Clock,
        counts: ConsumeCounts,
        statistics: ConsumeStatistics,
        dead_letters: SendBackRequests,
        *,
        auto_commit: bool = True,
    ) -> None:
        self._group = group
        self._settings = settings
        self._clock = clock
        self._counts = counts
        self._statistics = statistics
        self._dead_letters = dead_letters
        self._auto_commit = auto_commit
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._reports: ThreadQueue[tuple[DeliveryTurn, BaseException | None]] = ThreadQueue(
            loop, self._take
        )
        self._targets: dict[MessageQueue, _Target] = {}
        self._by_turn: dict[DeliveryTurn, _Target] = {}
        self._away: set[asyncio.Task[None]] = set()
        self._runner: HandlerRunner | None = None
        self._closing = False

    def over(self, make_runner: Callable[[HandlerReport], HandlerRunner]) -> OrderedDelivery:
        """Create the runner that runs the turns; returns this object, as the queues' runner."""
        self._runner = make_runner(self)
        return self

    @property
    def _inner(self) -> HandlerRunner:
        assert self._runner is not None, "over comes first"
        return self._runner

    # -- queues -----------------------------------------------------------------------------------

    def open(self, queue: MessageQueue, hold: HeldLock) -> None:
        """Start a target for a queue that is now locked; its previous target must be idle."""
        target = self._targets.get(queue)
        if target is not None and target.hold is hold and not target.ended:
            return
        assert target is None or target.turn is None, f"a handler of {queue!s} still runs"
        self._targets[queue] = _Target(queue, hold)

    def end(self, queue: MessageQueue) -> bool:
        """Start no more handler calls; returns False while one runs, which `idle` waits for."""
        target = self._targets.get(queue)
        if target is None:
            return True
        target.ended = True
        target.items.clear()
        if target.pause is not None:
            target.pause.cancel()
            target.pause = None
        if target.turn is not None:
            target.turn.stopped = True
        return self._forget_idle(target)

    async def idle(self, queue: MessageQueue) -> None:
        """Wait until no handler of an ended target runs and its results are counted."""
        target = self._targets.get(queue)
        if target is not None and target.ended and not self._forget_idle(target):
            waiter = self._loop.create_future()
            target.waiters.append(waiter)
            await waiter

    def go_on(self, queue: MessageQueue) -> None:
        """Continue a queue whose lock is valid again."""
        target = self._targets.get(queue)
        if target is not None:
            self._next(target)

    def calling(self, queue: MessageQueue) -> bool:
        """Return whether a handler of the queue runs; for use after `close`."""
        target = self._targets.get(queue)
        return target is not None and target.turn is not None and target.turn.calling

    def waits(self) -> dict[MessageQueue, OrderedWait]:
        """Return the queues that are paused after a failure, with failed message and end time."""
        found: dict[MessageQueue, OrderedWait] = {}
        for queue, target in sorted(self._targets.items()):
            if target.pause is not None and target.items:
                first = first_of(target.items[0])
                found[queue] = OrderedWait(first.offset, first.attempt - 1, target.pause_until_ms)
        return found

    def _forget_idle(self, target: _Target) -> bool:
        if target.turn is not None or target.aside:
            return False
        if self._targets.get(target.queue) is target:
            del self._targets[target.queue]
        for waiter in target.waiters:
            if not waiter.done():
                waiter.set_result(None)
        target.waiters.clear()
        return True

    # -- the queues' runner -----------------------------------------------------------------------

    def submit(self, items: Sequence[Item]) -> None:
        """Accept items of one queue."""
        target = self._targets.get(first_of(items[0]).queue) if items else None
        if target is not None and not target.ended:
            target.items.extend(items)
            self._next(target)

    def _next(self, target: _Target) -> None:
        """Start the target's next turn if nothing prevents it."""
        if target.turn is not None or target.aside or target.pause is not None:
            return
        if target.ended or self._closing:
            return
        waiting = target.items
        while waiting and first_of(waiting[0]).lease.window.dropped:
            waiting.popleft()  # from before an offset correction
        if not waiting or not target.hold.valid(self._clock.monotonic_ms()):
            return
        items = [waiting.popleft() for _ in range(min(len(waiting), TURN_ITEMS))]
        turn = target.turn = DeliveryTurn(items, target.hold, self._clock)
        self._by_turn[turn] = target
        self._inner.submit([turn])

    async def close(self, timeout_ms: int) -> bool:
        """Start no new calls, wait for running ones, then count what they finished."""
        self._closing = True
        for target in self._targets.values():
            if target.pause is not None:
                target.pause.cancel()
        for turn in self._by_turn:
            turn.stopped = True
        ended = await self._inner.close(timeout_ms)
        for task in list(self._away):
            task.cancel()
        for turn, target in list(self._by_turn.items()):
            self._count(target, turn)
        return ended

    def running(self) -> list[Item]:
        """Return no items: handler calls of orderly consumers have no time limit."""
        return []

    def times(self) -> list[int]:
        """Return the call durations that were measured since the last call."""
        return self._inner.times()

    async def call(self, item: Item) -> BaseException | None:
        """Call the handler with an item from outside the consumer, independent of all queues."""
        return await self._inner.call(SingleTurn([item], unlocked(), self._clock))

    # -- the runner's report, from any thread -----------------------------------------------------

    def finished(self, item: DeliveryTurn) -> None:
        """Report the end of a turn, perhaps before its last item."""
        self._reports.put((item, None))

    def failed(self, item: DeliveryTurn, error: BaseException) -> None:
        """Report that the handler failed at the turn's first unfinished item."""
        self._reports.put((item, error))

    def wanted(self, item: DeliveryTurn) -> bool:
        """Return True: a turn that was stopped ends by itself and is reported."""
        return True

    # -- outcomes of turns ------------------------------------------------------------------------

    def _take(self, reports: list[tuple[DeliveryTurn, BaseException | None]]) -> None:
        for turn, error in reports:
            target = self._by_turn.pop(turn, None)
            if target is None:
                continue
            self._count(target, turn)
            target.turn = None
            left = turn.items[turn.done :]
            target.items.extendleft(reversed(left))
            if error is not None and left:
                self._refused(target, error)
            if target.ended:
                target.items.clear()
                self._forget_idle(target)
            else:
                self._next(target)

    def _count(self, target: _Target, turn: DeliveryTurn) -> None:
        """Finish the completed items, or keep them until they are committed; can be repeated."""
        done, first = turn.done, turn.taken
        turn.taken = done
        if self._auto_commit:
            self._finish(turn.items[first:done])
            return
        committed = min(turn.committed, done)
        if committed > first:
            self._finish([*target.uncommitted, *turn.items[first:committed]])
            target.uncommitted = []
        target.uncommitted += turn.items[max(first, committed) : done]

    def _finish(self, items: Sequence[Item]) -> None:
        for lease, offsets in offsets_by_lease(items).items():
            self._counts.consumed += len(offsets)
            self._statistics.of(lease.consumed.queue.topic).consumed += len(offsets)
            lease.finish(offsets)

    def _refused(self, target: _Target, error: BaseException) -> None:
        """Handle a failure of the target's first item."""
        item = target.items[0]
        if isinstance(error, PartlyConsumed) and type(item) is list:
            target.items[0] = item = self._consumed_first(target, item, error.count)
        messages = messages_of(item)
        if isinstance(error, OneRefused):
            target.items[0] = item = self._consumed_first(target, item, error.index)
            messages, error = messages_of(item)[:1], error.error
        self._counts.failed += len(messages)
        self._statistics.of(target.queue.topic).failed += len(messages)
        later = isinstance(error, ConsumeRefused) and delay_level_of(error) >= 0
        blocked = "the queue is blocked until it succeeds"
        log_refusal(self._group, messages, error, later=later, consequence=blocked)
        given_up = [one for one in messages if self._is_given_up(one, error)]
        for message in messages:
            message.attempt += 1
        if target.ended:
            return
        if given_up:
            target.aside = True
            task = background(
                self._put_aside(target, item, given_up, error), f"dead letters of {target.queue!s}"
            )
            self._away.add(task)
            task.add_done_callback(self._away.discard)
            return
        if isinstance(error, RolledBack) and not self._auto_commit:
            target.items.extendleft(reversed(target.uncommitted))
            target.uncommitted = []
        self._pause(target, error)

    def _consumed_first(self, target: _Target, item: list[ReceivedMessage], count: int) -> Item:
        """Finish the first `count` messages of a list; returns the rest of it."""
        count = min(max(count, 0), len(item) - 1)
        if count:
            if self._auto_commit:
                self._finish([item[:count]])
            else:
                target.uncommitted.append(item[:count])
        return item[count:]

    def _is_given_up(self, message: ReceivedMessage, error: BaseException) -> bool:
        if isinstance(error, DeadLetter):
            return True
        if isinstance(error, CANCELLED_HANDLERS):
            return False  # the call was cancelled: the message did not fail
        most = self._settings.max_reconsume_times
        return most >= 0 and message.reconsume_times >= most

    async def _put_aside(
        self, target: _Target, item: Item, given_up: list[ReceivedMessage], error: BaseException
    ) -> None:
        """Send messages to the dead-letter queue; then the queue continues with the rest."""
        reason = reason_of(error, FAILURE_REASON_LENGTH_MAX)
        gone: list[ReceivedMessage] = []
        try:
            for message in given_up:
                await self._dead_letters.send_back(message, delay_level=-1, reason=reason)
                gone.append(message)
        except KourouError as failure:
            _log.warning(
                "dead-letter-failed: group %(group)s: %(record)s could not be sent to the "
                "dead-letter queue; its queue is blocked: %(error)s",
                {"group": self._group, "record": given_up[len(gone)], "error": failure},
            )
        finally:
            target.aside = False
        self._drop_dead_letters(target, item, gone)
        if target.ended:
            self._forget_idle(target)
        elif len(gone) < len(given_up) or (
            len(gone) < len(messages_of(item)) and not isinstance(error, DeadLetter)
        ):
            self._pause(target, error)
        else:
            self._next(target)

    def _drop_dead_letters(self, target: _Target, item: Item, gone: list[ReceivedMessage]) -> None:
        """Remove messages from the queue that are dead letters now."""
        if not gone:
            return
        self._counts.sent_back += len(gone)
        for message in gone:
            message.lease.finish([message.offset])
        if target.items and target.items[0] is item:
            left = [message for message in messages_of(item) if message not in gone]
            target.items.popleft()
            if left:
                target.items.appendleft(left)

    def _pause(self, target: _Target, error: BaseException) -> None:
        """Block the queue for a pause."""
        pause_ms = error.pause_ms if isinstance(error, Suspend) else None
        if pause_ms is None:
            pause_ms = self._settings.redelivery_delay_ms

        def over() -> None:
            target.pause = None
            self._next(target)

        target.pause_until_ms = self._clock.now_ms() + pause_ms
        target.pause = self._loop.call_later(pause_ms / 1000, over)


class LockEnd(Enum):
    """What happens to the lock of a queue that is released."""

    GIVE_BACK = auto()
    KEEP = auto()  # the queue is started again at another offset
    FORGET = auto()  # another consumer may have it


@dataclass(slots=True, eq=False)
class _Leaving:
    """A queue that is no longer consumed, but whose handler may still run."""

    consumed: ConsumedQueue
    lock: LockEnd

    @property
    def commits(self) -> bool:
        return self.lock is LockEnd.GIVE_BACK


class OrderedConsumer(PushConsumer):
    """One orderly consumer of a group."""

    def __init__(
        self,
        session: Session,
        settings: ConsumerSettings,
        *args: Any,
        auto_commit: bool = True,
        **more: Any,
    ) -> None:
        self._auto_commit = auto_commit
        self._locks: OrderedLocks | None = None
        if settings.message_model is MessageModel.CLUSTERING:
            self._locks = OrderedLocks(session, settings.consumer_group)
        self._locks_doubtful = asyncio.Event()
        self._leaving: dict[MessageQueue, _Leaving] = {}
        self._leave_tasks: set[asyncio.Task[None]] = set()
        super().__init__(session, settings, *args, **more)
        self._around.ordered = True

    def _make_runner(self, make_runner: Callable[[HandlerReport], HandlerRunner]) -> HandlerRunner:
        self._delivery = OrderedDelivery(
            self.group,
            self.settings,
            self._session.clock,
            self.counts,
            self._statistics,
            self._send_back,
            auto_commit=self._auto_commit,
        )
        return self._delivery.over(make_runner)

    @property
    def locked(self) -> list[MessageQueue]:
        """The queues whose locks are valid now, sorted, without those of the group's retry topic.

        Empty in broadcasting.
        """
        held = [] if self._locks is None else self._locks.held
        return [queue for queue in held if not queue.topic.startswith(RETRY_PREFIX)]

    # -- lifecycle --------------------------------------------------------------------------------

    async def start(self) -> None:
        """Join the group and start consuming."""
        await super().start()
        if self._locks is not None:
            self._tasks.append(
                background(self._keep_locked(self._locks), f"locks of group {self.group}")
            )

    async def _release_queues(self) -> None:
        """At close: commit what had not ended before, and release locks where no handler runs."""
        await super()._release_queues()
        for task in self._leave_tasks:
            task.cancel()
        ended = [
            leaving for queue, leaving in self._leaving.items() if not self._delivery.calling(queue)
        ]
        await self._leave_queues(ended)
        if self._locks is not None:
            await self._locks.unlock(
                [queue for queue in self._locks.all if not self._delivery.calling(queue)]
            )

    # -- assignment -------------------------------------------------------------------------------

    async def _beginnable(self, queues: Collection[MessageQueue]) -> Collection[MessageQueue]:
        """Return the queues to start now: those that are locked, and not still being released."""
        fresh = [queue for queue in queues if queue not in self._leaving]
        holds: Mapping[MessageQueue, HeldLock]
        if self._locks is None:
            holds = {queue: unlocked() for queue in fresh}
        else:
            holds = await self._locks.lock(fresh)
        for queue, hold in holds.items():
            self._delivery.open(queue, hold)
        return list(holds)

    async def _give_up(self, topic: str, share: set[MessageQueue]) -> None:
        lost = [
            queue
            for queue, consumed in self._queues.items()
            if queue.topic == topic and (queue not in share or consumed.ended)
        ]
        if lost:
            _log.info(
                "queues-released: group %(group)s: released %(queues)s",
                {"group": self.group, "queues": ", ".join(map(str, lost))},
            )
            await self._leave(lost, LockEnd.GIVE_BACK)
        if self._locks is not None:
            # Locked for an assignment that changed before the queue was started.
            wanted = {*share, *self._queues, *self._leaving}
            needless = self._locks.needless(topic, wanted)
            for queue in needless:
                self._delivery.end(queue)
            await self._locks.unlock(needless)

    async def _leave(self, queues: Iterable[MessageQueue], lock: LockEnd) -> None:
        """Stop consuming these queues; those with a running handler are released when it ends."""
        idle: list[_Leaving] = []
        for queue in queues:
            consumed = self._queues.pop(queue)
            consumed.pause()
            leaving = self._leaving[queue] = _Leaving(consumed, lock)
            if self._delivery.end(queue):
                idle.append(leaving)
            else:
                task = background(self._leave_when_idle(leaving), f"leaving {queue!s}")
                self._leave_tasks.add(task)
                task.add_done_callback(self._leave_tasks.discard)
        await self._leave_queues(idle)

    async def _leave_when_idle(self, leaving: _Leaving) -> None:
        await self._delivery.idle(leaving.consumed.queue)
        await self._leave_queues([leaving])
        self.rebalance_soon()  # it may have been assigned again in the meantime

    async def _leave_queues(self, left: Collection[_Leaving]) -> None:
        """Perform the last steps, without a running handler: commit, release locks, drop queues."""
        if not left:
            return
        offsets: dict[MessageQueue, int] = {}
        for leaving in left:
            queue = leaving.consumed.queue
            commits = leaving.commits and self._is_ours(queue)
            offset = leaving.consumed.stop()
            if commits:
                offsets[queue] = offset
        if offsets:
            try:
                await self._offsets.save(offsets)
            except Exception as error:  # noqa: BLE001 - an application's offset store may raise anything
                _log.warning(
                    "final-commit-failed: group %(group)s: the last offsets were not committed: "
                    "%(error)r",
                    {"group": self.group, "error": error},
                )
        if self._locks is not None:
            by = {
                kind: [one.consumed.queue for one in left if one.lock is kind] for kind in LockEnd
            }
            self._locks.forget(by[LockEnd.FORGET])
            await self._locks.unlock(by[LockEnd.GIVE_BACK])
        for leaving in left:
            self._leaving.pop(leaving.consumed.queue, None)

    def _is_ours(self, queue: MessageQueue) -> bool:
        """Return whether it is certain that no other consumer had the queue in the meantime."""
        if self._locks is None:
            return True
        hold = self._locks.hold(queue)
        return hold is not None and hold.nobody_elses(self._session.clock.monotonic_ms())

    def running_info(self) -> RunningInfo:
        """Return the running info (request code 307), with locks and queues waiting for a retry."""
        info = super().running_info()
        locked = set() if self._locks is None else set(self._locks.held)
        queues = {queue: replace(one, locked=queue in locked) for queue, one in info.queues.items()}
        waits = ordered_properties(self._delivery.waits())
        properties = {**info.properties, "PROP_CONSUMEORDERLY": "true", **waits}
        return replace(info, queues=queues, properties=properties)

    # -- locks ------------------------------------------------------------------------------------

    async def _keep_locked(self, locks: OrderedLocks) -> None:
        pause_ms = RENEW_MS
        while not self._closing:
            await is_set_within(self._locks_doubtful, pause_ms)
            self._locks_doubtful.clear()
            lost, complete = await locks.renew()
            pause_ms = RENEW_MS if complete else RENEW_AGAIN_MS
            if lost:
                await self._lost(locks, lost)
            for queue in list(self._queues):
                self._delivery.go_on(queue)

    def _leader_changed(self, name: str, address: str) -> None:
        super()._leader_changed(name, address)
        self._locks_doubtful.set()

    async def _lost(self, locks: OrderedLocks, lost: list[MessageQueue]) -> None:
        _log.warning(
            "locks-lost: group %(group)s: lost the locks of %(queues)s; they restart when locked "
            "again",
            {"group": self.group, "queues": ", ".join(map(str, lost))},
        )
        async with self._rebalancing:
            for queue in lost:
                leaving = self._leaving.get(queue)
                if leaving is not None:
                    leaving.lock = LockEnd.FORGET
            await self._leave([queue for queue in lost if queue in self._queues], LockEnd.FORGET)
            gone = {*self._queues, *self._leaving}
            locks.forget([queue for queue in lost if queue not in gone])
        self.rebalance_soon()

    # -- offsets ----------------------------------------------------------------------------------

    async def _commit(self, queues: Iterable[ConsumedQueue], when: str) -> None:
        await super()._commit([each for each in queues if self._is_ours(each.queue)], when)

    async def reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Handle an operator's offset reset (request code 220).

        The waiting messages are dropped; consumption restarts at the new offsets when handlers end.
        """
        async with self._rebalancing:
            moved = {queue: offset for queue, offset in offsets.items() if queue in self._queues}
            if self._closing or not moved:
                return
            _log.warning(
                "offsets-reset: group %(group)s: offsets were reset to %(offsets)s",
                {"group": self.group, "offsets": listed_offsets(moved)},
            )
            await self._leave(moved, LockEnd.KEEP)
            await self._offsets.save(moved)
        self.rebalance_soon()
