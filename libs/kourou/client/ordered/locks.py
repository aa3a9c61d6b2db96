"""The brokers' queue locks that this consumer holds, and their renewal.

A lock is valid for HOLD_MS from the moment of the request; the broker keeps it for twice that long
(QUEUE_LOCK_MS). So a consumer that cannot reach the broker stops calling handlers before another
consumer may start. If a lock was not renewed for QUEUE_LOCK_MS, another consumer may have had it in
the meantime: then the cached messages of the queue are invalid, even if the broker grants the lock
again.

State: soft. The brokers hold the authoritative state.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable

from kourou.client.session.client_session import Session
from kourou.client.session.connections import body_of
from kourou.errors import KourouError, Unavailable, UnknownOutcome
from kourou.model.limits import QUEUE_LOCK_MS
from kourou.model.topic import MessageQueue
from kourou.protocol.bodies.lists_body import LockBatch, decode_locked_queues, encode_lock_batch
from kourou.protocol.messages.groups import LockBatchMq, UnlockBatchMq

HOLD_MS = QUEUE_LOCK_MS // 2
RENEW_MS = 20_000
RENEW_AGAIN_MS = 1_000
"""The delay before a renewal is repeated that a broker did not reply to."""

_FAR = 1 << 62

_log = logging.getLogger("kourou.client.consume")


class HeldLock:
    """A lock of this consumer; read from any thread, written on the I/O thread."""

    __slots__ = ("asked_ms", "lost")

    def __init__(self, asked_ms: int) -> None:
        self.asked_ms = asked_ms
        self.lost = False

    def valid(self, now_ms: int) -> bool:
        """Return whether a handler may be called now; monotonic ms."""
        return not self.lost and now_ms - self.asked_ms < HOLD_MS

    def nobody_elses(self, now_ms: int) -> bool:
        """Return whether it is certain that no other consumer had the queue in the meantime.

        Only then may offsets be committed.
        """
        return not self.lost and now_ms - self.asked_ms < QUEUE_LOCK_MS


def unlocked() -> HeldLock:
    """Return a lock that never expires, for queues that need none."""
    return HeldLock(_FAR)


class OrderedLocks:
    """The locks of one consumer. Used on the I/O thread."""

    def __init__(self, session: Session, group: str) -> None:
        self._session = session
        self._group = group
        self._holds: dict[MessageQueue, HeldLock] = {}
        self._doubtful: set[MessageQueue] = set()

    @property
    def held(self) -> list[MessageQueue]:
        """The queues whose locks are valid now; callable from any thread, so it copies first."""
        now_ms = self._session.clock.monotonic_ms()
        return sorted(queue for queue, hold in list(self._holds.items()) if hold.valid(now_ms))

    @property
    def all(self) -> list[MessageQueue]:
        """The queues whose locks this consumer may have at the brokers."""
        return list({**self._holds, **dict.fromkeys(self._doubtful)})

    def hold(self, queue: MessageQueue) -> HeldLock | None:
        """Return this consumer's lock of a queue, valid or not, or None."""
        return self._holds.get(queue)

    async def lock(self, queues: Collection[MessageQueue]) -> dict[MessageQueue, HeldLock]:
        """Lock queues; those that another consumer has locked are left out of the result."""
        wanted = [queue for queue in queues if queue not in self._holds]
        if wanted:
            asked_ms = self._session.clock.monotonic_ms()
            granted, _ = await self._ask(wanted)
            for queue in granted:
                self._holds[queue] = HeldLock(asked_ms)
        return {queue: self._holds[queue] for queue in queues if queue in self._holds}

    async def renew(self) -> tuple[list[MessageQueue], bool]:
        """Renew all locks; returns the queues that were lost, and whether every broker replied."""
        holds = dict(self._holds)
        if not holds:
            return [], True
        asked_ms = self._session.clock.monotonic_ms()
        granted, unanswered = await self._ask(holds)
        lost: list[MessageQueue] = []
        for queue, hold in holds.items():
            if queue in unanswered or self._holds.get(queue) is not hold:
                continue
            if queue in granted and hold.nobody_elses(asked_ms):
                hold.asked_ms = asked_ms
            else:
                hold.lost = True
                lost.append(queue)
        return lost, not unanswered

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """Release locks; if a broker cannot be reached, its locks expire."""
        given = [queue for queue in queues if queue in self._holds or queue in self._doubtful]
        self.forget(given)
        if given:
            await asyncio.gather(*(self._give(*one) for one in self._by_broker(given)))

    def forget(self, queues: Iterable[MessageQueue]) -> None:
        """Drop these locks without telling the brokers: another consumer may have them now."""
        for queue in queues:
            self._doubtful.discard(queue)
            hold = self._holds.pop(queue, None)
            if hold is not None:
                hold.lost = True

    def needless(self, topic: str, wanted: Collection[MessageQueue]) -> list[MessageQueue]:
        """Return the queues of a topic that may be locked by this consumer and are not wanted."""
        return [queue for queue in self.all if queue.topic == topic and queue not in wanted]

    # -- requests to brokers ----------------------------------------------------------------------

    async def _ask(
        self, queues: Collection[MessageQueue]
    ) -> tuple[set[MessageQueue], set[MessageQueue]]:
        """Return the queues that are locked now, and those of brokers that did not reply."""
        granted: set[MessageQueue] = set()
        unanswered: set[MessageQueue] = set()
        brokers = self._by_broker(queues)
        outcomes = await asyncio.gather(*(self._take(*one) for one in brokers))
        for (_, asked), locked in zip(brokers, outcomes, strict=True):
            if locked is None:
                unanswered.update(asked)
            else:
                granted.update(locked.intersection(asked))
        return granted, unanswered

    async def _take(self, name: str, queues: list[MessageQueue]) -> set[MessageQueue] | None:
        try:
            address = await self._leader(name, queues[0].topic)
            reply = await self._session.connections.ask(
                address,
                LockBatchMq(),
                body=self._body(queues),
                timeout_ms=self._session.settings.request_timeout_ms,
            )
            locked = set(decode_locked_queues(body_of(reply)))
        except KourouError as error:
            if isinstance(error, UnknownOutcome):
                self._doubtful.update(queue for queue in queues if queue not in self._holds)
            _log.warning(
                "lock-failed: group %(group)s: locking queues at %(broker)s failed: %(error)s",
                {"group": self._group, "broker": name, "error": error},
            )
            self._session.routes.stale(queues[0].topic)  # there may be a new leader
            return None
        self._doubtful.difference_update(queues)
        return locked

    async def _give(self, name: str, queues: list[MessageQueue]) -> None:
        try:
            address = await self._leader(name, queues[0].topic)
            await self._session.connections.ask(
                address,
                UnlockBatchMq(),
                body=self._body(queues),
                timeout_ms=self._session.settings.request_timeout_ms,
                hurried=True,
            )
        except KourouError as error:
            _log.info(
                "unlock-failed: group %(group)s: unlocking queues at %(broker)s failed: %(error)s",
                {"group": self._group, "broker": name, "error": error},
            )

    async def _leader(self, name: str, topic: str) -> str:
        """Return the address of the leader, which has the locks. Raises Unavailable without one."""
        known = await self._session.routes.find(topic)
        address = known.leader_address(name)
        if address is None:
            raise Unavailable(f"broker {name} has no leader")
        return address

    def _body(self, queues: list[MessageQueue]) -> bytes:
        batch = LockBatch(self._group, self._session.client_id, tuple(queues))
        return encode_lock_batch(batch)

    def _by_broker(self, queues: Iterable[MessageQueue]) -> list[tuple[str, list[MessageQueue]]]:
        found: dict[str, list[MessageQueue]] = {}
        for queue in sorted(queues):
            found.setdefault(queue.broker_name, []).append(queue)
        return list(found.items())
