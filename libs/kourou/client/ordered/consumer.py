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

State: soft. Used on the I/O thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any

from kourou.client.consumer.handlers import Report, Runner
from kourou.client.consumer.push_consumer import PushConsumer
from kourou.client.consumer.queue_consumption import ConsumedQueue
from kourou.client.introspection.running_info import RunningInfo, ordered_properties
from kourou.client.ordered.delivery import OrderedDelivery
from kourou.client.ordered.locks import RENEW_AGAIN_MS, RENEW_MS, Hold, OrderedLocks, unlocked
from kourou.client.session.background import background
from kourou.client.session.client_session import Session
from kourou.client.settings.client_settings import ConsumerSettings
from kourou.model.names import RETRY_PREFIX
from kourou.model.subscription import MessageModel
from kourou.model.topic import MessageQueue

_log = logging.getLogger("kourou.client.consume")


class Lock(Enum):
    """What happens to the lock of a queue that is released."""

    GIVE_BACK = auto()
    KEEP = auto()  # the queue is started again at another offset
    FORGET = auto()  # another consumer may have it


@dataclass(slots=True, eq=False)
class _Leaving:
    """A queue that is no longer consumed, but whose handler may still run."""

    consumed: ConsumedQueue
    lock: Lock

    @property
    def commits(self) -> bool:
        return self.lock is Lock.GIVE_BACK


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
        self._partings: set[asyncio.Task[None]] = set()
        super().__init__(session, settings, *args, **more)
        self._around.ordered = True

    def _make_runner(self, make_runner: Callable[[Report], Runner]) -> Runner:
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

    async def _let_go(self) -> None:
        """At close: commit what had not ended before, and release locks where no handler runs."""
        await super()._let_go()
        for task in self._partings:
            task.cancel()
        ended = [
            leaving for queue, leaving in self._leaving.items() if not self._delivery.calling(queue)
        ]
        await self._part(ended)
        if self._locks is not None:
            await self._locks.unlock(
                [queue for queue in self._locks.all if not self._delivery.calling(queue)]
            )

    # -- assignment -------------------------------------------------------------------------------

    async def _beginnable(self, queues: Collection[MessageQueue]) -> Collection[MessageQueue]:
        """Return the queues to start now: those that are locked, and not still being released."""
        fresh = [queue for queue in queues if queue not in self._leaving]
        holds: Mapping[MessageQueue, Hold]
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
            _log.info("group %s: released %s", self.group, ", ".join(map(str, lost)))
            await self._leave(lost, Lock.GIVE_BACK)
        if self._locks is not None:
            # Locked for an assignment that changed before the queue was started.
            wanted = {*share, *self._queues, *self._leaving}
            needless = self._locks.needless(topic, wanted)
            for queue in needless:
                self._delivery.end(queue)
            await self._locks.unlock(needless)

    async def _leave(self, queues: Iterable[MessageQueue], lock: Lock) -> None:
        """Stop consuming these queues; those with a running handler are released when it ends."""
        idle: list[_Leaving] = []
        for queue in queues:
            consumed = self._queues.pop(queue)
            consumed.pause()
            leaving = self._leaving[queue] = _Leaving(consumed, lock)
            if self._delivery.end(queue):
                idle.append(leaving)
            else:
                task = background(self._part_later(leaving), f"leaving {queue!s}")
                self._partings.add(task)
                task.add_done_callback(self._partings.discard)
        await self._part(idle)

    async def _part_later(self, leaving: _Leaving) -> None:
        await self._delivery.idle(leaving.consumed.queue)
        await self._part([leaving])
        self.rebalance_soon()  # it may have been assigned again in the meantime

    async def _part(self, left: Collection[_Leaving]) -> None:
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
                _log.warning("group %s: the last offsets were not committed: %r", self.group, error)
        if self._locks is not None:
            by = {kind: [one.consumed.queue for one in left if one.lock is kind] for kind in Lock}
            self._locks.forget(by[Lock.FORGET])
            await self._locks.unlock(by[Lock.GIVE_BACK])
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
        # `wait_for` may lose the cancellation of this task when its event comes at the same time.
        while not self._closing:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_ms / 1000):  # see Heartbeats
                    await self._locks_doubtful.wait()
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
            "group %s: lost the locks of %s; they restart when locked again",
            self.group,
            ", ".join(map(str, lost)),
        )
        async with self._rebalancing:
            for queue in lost:
                leaving = self._leaving.get(queue)
                if leaving is not None:
                    leaving.lock = Lock.FORGET
            await self._leave([queue for queue in lost if queue in self._queues], Lock.FORGET)
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
            _log.warning("group %s: offsets were reset to %s", self.group, moved)
            await self._leave(moved, Lock.KEEP)
            await self._offsets.save(moved)
        self.rebalance_soon()
