"""Clients lock queues that they consume in order: LOCK_BATCH_MQ (41), UNLOCK_BATCH_MQ (42).

Who was refused a queue is told by NOTIFY_CONSUMER_IDS_CHANGED (40) as soon as it is free, so a
takeover does not wait for the next rebalance of that client, which may be 20 s away (RocketMQ's
brokers are silent there).

State: soft of its own: whether recording fails now, so that it is said once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kourou.engine.confirmations import Confirmations
from kourou.engine.effects import Effect
from kourou.engine.membership import Membership
from kourou.engine.policy import BrokerPolicy
from kourou.engine.queue_locks import Place, QueueLocks
from kourou.engine.recording import Recorder
from kourou.errors import KourouError
from kourou.events.control_events import Cause
from kourou.model import names
from kourou.protocol.lists_body import LockBatch, decode_lock_batch, encode_locked_queues
from kourou.protocol.messages.locks import LockBatchMq, UnlockBatchMq
from kourou.protocol.messages.membership import NotifyConsumerIdsChanged
from kourou.protocol.request import Request
from kourou.runtime.effects import LogWarning, Notify, Reply
from kourou.runtime.inputs import Received


class LockDesk:
    """Answers 41 and 42."""

    def __init__(
        self,
        locks: QueueLocks,
        members: Membership,
        recorder: Recorder,
        confirmations: Confirmations,
        policy: BrokerPolicy,
    ) -> None:
        self._locks = locks
        self._members = members
        self._recorder = recorder
        self._confirmations = confirmations
        self._policy = policy
        self._failing = False

    def handlers(self) -> dict[type[Request], Callable[[int, Received, Any], list[Effect]]]:
        """The requests this desk answers."""
        return {LockBatchMq: self.lock, UnlockBatchMq: self.unlock}

    def lock(self, now_ms: int, received: Received, _request: LockBatchMq) -> list[Effect]:
        """Lock queues for a client, or refresh its locks (41); answered with those it holds.

        The answer waits until what changed is confirmed. Queues of other brokers are not granted.
        """
        batch = _batch(received)
        before = self._confirmations.appended
        held = set(self._locks.lock(now_ms, batch.group, batch.client_id, self._places(batch)))
        warnings = self._record(batch.client_id, "lock", received.wall_ms)
        granted = [
            queue
            for queue in batch.queues
            if queue.broker_name == self._policy.broker_name
            and (queue.topic, queue.queue_id) in held
        ]
        reply = Reply(received.to, body=(encode_locked_queues(granted),))
        if self._confirmations.appended == before:
            return [*warnings, reply]
        end = self._confirmations.appended
        owed = self._confirmations.owe(now_ms, end, reply, decision=True)
        return [*warnings, *owed]

    def unlock(self, now_ms: int, received: Received, _request: UnlockBatchMq) -> list[Effect]:
        """A client gives queues back (42); what it does not hold stays as it is."""
        batch = _batch(received)
        waiting = self._locks.unlock(now_ms, batch.group, batch.client_id, self._places(batch))
        warnings = self._record(batch.client_id, "unlock", received.wall_ms)
        return [*warnings, Reply(received.to), *self._tell(batch.group, waiting)]

    def expire(self, now_ms: int, wall_ms: int) -> list[Effect]:
        """End the locks of clients that have been silent for too long."""
        waiting = self._locks.expire(now_ms)
        effects: list[Effect] = [*self._record("broker", "lapsed", wall_ms)]
        for group, clients in waiting.items():
            effects += self._tell(group, clients)
        return effects

    def _places(self, batch: LockBatch) -> list[Place]:
        name = self._policy.broker_name
        return [(each.topic, each.queue_id) for each in batch.queues if each.broker_name == name]

    def _record(self, actor: str, why: str, wall_ms: int) -> list[Effect]:
        """Record what changed. What cannot be written now counts all the same, and is tried again
        with every tick: consuming in order must not end because a disk is full."""
        try:
            for event in self._locks.unrecorded():
                self._recorder.record([event], Cause(actor, why), wall_ms)
        except KourouError as error:
            if self._failing:
                return []
            self._failing = True
            return [LogWarning(f"queue locks are not recorded: {error}")]
        self._failing = False
        return []

    def _tell(self, group: str, clients: Iterable[str]) -> list[Effect]:
        notice = NotifyConsumerIdsChanged(consumer_group=group)
        found = (self._members.consumer_peer(group, client_id) for client_id in clients)
        return [Notify(peer, notice) for peer in found if peer is not None]


def _batch(received: Received) -> LockBatch:
    """What the request says, with names checked: they stay in tables."""
    batch = decode_lock_batch(b"".join(received.body))
    names.check_client_id(batch.client_id)
    names.check_group(batch.group)
    for topic in {queue.topic for queue in batch.queues}:
        names.check_topic(topic)
    return batch
