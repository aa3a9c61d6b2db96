"""Which queues this member holds the brokers' locks of, and keeping them.

A lock is good for HOLD_MS from the moment it was asked for; the broker keeps it for twice that
(QUEUE_LOCK_MS), so a member that cannot reach the broker has stopped calling handlers by the time
somebody else may begin. A lock that was not refreshed for QUEUE_LOCK_MS may have been another's
meanwhile: what is cached of its queue is worth nothing then, even if the broker grants it again.

State: soft. The truth is the broker's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable

from kourou.client.connections import body_of
from kourou.client.session import Session
from kourou.errors import KourouError, Unavailable, UnknownOutcome
from kourou.model.limits import QUEUE_LOCK_MS
from kourou.model.queue import MessageQueue
from kourou.protocol.lists_body import LockBatch, decode_locked_queues, encode_lock_batch
from kourou.protocol.messages.locks import LockBatchMq, UnlockBatchMq

HOLD_MS = QUEUE_LOCK_MS // 2
RENEW_MS = 20_000
RENEW_AGAIN_MS = 1_000
"""How soon a renewal is tried again that a broker did not answer."""

_FAR = 1 << 62

_log = logging.getLogger("kourou.client.consume")


class Hold:
    """A lock that this member has; read from any thread, written on the I/O thread."""

    __slots__ = ("asked_ms", "lost")

    def __init__(self, asked_ms: int) -> None:
        self.asked_ms = asked_ms
        self.lost = False

    def valid(self, now_ms: int) -> bool:
        """May a handler be called now? Monotonic ms."""
        return not self.lost and now_ms - self.asked_ms < HOLD_MS

    def nobody_elses(self, now_ms: int) -> bool:
        """Is it certain that no other member had the queue meanwhile? Then offsets may be kept."""
        return not self.lost and now_ms - self.asked_ms < QUEUE_LOCK_MS


def unlocked() -> Hold:
    """What queues have that need no lock: one that never ends."""
    return Hold(_FAR)


class OrderedLocks:
    """The locks of one member. Used on the I/O thread."""

    def __init__(self, session: Session, group: str) -> None:
        self._session = session
        self._group = group
        self._holds: dict[MessageQueue, Hold] = {}
        self._doubtful: set[MessageQueue] = set()

    @property
    def held(self) -> list[MessageQueue]:
        """The queues whose locks are good now. Any thread may ask, hence the copy in one step."""
        now_ms = self._session.clock.monotonic_ms()
        return sorted(queue for queue, hold in list(self._holds.items()) if hold.valid(now_ms))

    @property
    def all(self) -> list[MessageQueue]:
        """The queues whose locks may be ours at the brokers."""
        return list({**self._holds, **dict.fromkeys(self._doubtful)})

    def hold(self, queue: MessageQueue) -> Hold | None:
        """This member's lock of a queue, good or not."""
        return self._holds.get(queue)

    async def lock(self, queues: Collection[MessageQueue]) -> dict[MessageQueue, Hold]:
        """Lock what can be locked now; what another member still holds is left out."""
        wanted = [queue for queue in queues if queue not in self._holds]
        if wanted:
            asked_ms = self._session.clock.monotonic_ms()
            granted, _ = await self._ask(wanted)
            for queue in granted:
                self._holds[queue] = Hold(asked_ms)
        return {queue: self._holds[queue] for queue in queues if queue in self._holds}

    async def renew(self) -> tuple[list[MessageQueue], bool]:
        """Refresh all; the queues that were lost, and whether every broker answered."""
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
        """Give back; who cannot be told now finds out when the locks lapse."""
        given = [queue for queue in queues if queue in self._holds or queue in self._doubtful]
        self.forget(given)
        if given:
            await asyncio.gather(*(self._give(*one) for one in self._by_broker(given)))

    def forget(self, queues: Iterable[MessageQueue]) -> None:
        """These are held no more, and nobody is told: the broker's lock may be somebody else's."""
        for queue in queues:
            self._doubtful.discard(queue)
            hold = self._holds.pop(queue, None)
            if hold is not None:
                hold.lost = True

    def needless(self, topic: str, wanted: Collection[MessageQueue]) -> list[MessageQueue]:
        """Queues of a topic that are, or may be, locked by us and that are not wanted."""
        return [queue for queue in self.all if queue.topic == topic and queue not in wanted]

    # -- asking brokers ---------------------------------------------------------------------------

    async def _ask(
        self, queues: Collection[MessageQueue]
    ) -> tuple[set[MessageQueue], set[MessageQueue]]:
        """The queues that are ours now, and those of brokers that did not answer."""
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
            _log.warning("group %s: locking queues at %s failed: %s", self._group, name, error)
            self._session.routes.stale(queues[0].topic)  # another one may lead by now
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
            _log.info("group %s: unlocking queues at %s failed: %s", self._group, name, error)

    async def _leader(self, name: str, topic: str) -> str:
        """Address of the broker that has the locks; Unavailable when it has no leader."""
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
