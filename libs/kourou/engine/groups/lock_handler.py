"""Locks of queues that clients consume in order: LOCK_BATCH_MQ (41), UNLOCK_BATCH_MQ (42).

A client that was refused a queue receives NOTIFY_CONSUMER_IDS_CHANGED (40) as soon as the queue is
free. So a takeover does not wait for that client's next rebalance, which may be 20 s away
(RocketMQ's brokers send nothing).

State: soft of its own: whether recording fails now, so that this is logged once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kourou.engine.effects import Effect
from kourou.engine.groups.membership import Membership
from kourou.engine.groups.queue_locks import Place, QueueLocks
from kourou.engine.policy import BrokerPolicy
from kourou.engine.sends.confirmations import Confirmations
from kourou.engine.sends.recorder import Recorder
from kourou.errors import KourouError
from kourou.events.control_events import Cause
from kourou.model import names
from kourou.protocol.bodies.lists_body import LockBatch, decode_lock_batch, encode_locked_queues
from kourou.protocol.messages.locks import LockBatchMq, UnlockBatchMq
from kourou.protocol.messages.membership import NotifyConsumerIdsChanged
from kourou.protocol.request import Request
from kourou.runtime.core import LogWarning, Notify, Received, Reply


class LockHandler:
    """Handles requests 41 and 42."""

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
        """Return the handler of each request type."""
        return {LockBatchMq: self.lock, UnlockBatchMq: self.unlock}

    def lock(self, now_ms: int, received: Received, _request: LockBatchMq) -> list[Effect]:
        """Lock queues for a client, or refresh its locks (41); reply with those that it holds.

        The reply waits until the change is committed. Queues of other brokers are not granted.
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
        """Release queues of a client (42); queues that it does not hold are unchanged."""
        batch = _batch(received)
        waiting = self._locks.unlock(now_ms, batch.group, batch.client_id, self._places(batch))
        warnings = self._record(batch.client_id, "unlock", received.wall_ms)
        return [*warnings, Reply(received.to), *self._tell(batch.group, waiting)]

    def expire(self, now_ms: int, wall_ms: int) -> list[Effect]:
        """End the locks of clients that were silent for too long."""
        waiting = self._locks.expire(now_ms)
        effects: list[Effect] = [*self._record("broker", "lapsed", wall_ms)]
        for group, clients in waiting.items():
            effects += self._tell(group, clients)
        return effects

    def _places(self, batch: LockBatch) -> list[Place]:
        name = self._policy.broker_name
        return [(each.topic, each.queue_id) for each in batch.queues if each.broker_name == name]

    def _record(self, actor: str, why: str, wall_ms: int) -> list[Effect]:
        """Record what changed; if that fails, the change is in effect all the same.

        Every tick retries: ordered consumption must not end because a disk is full.
        """
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
    """Decode the request and check its names, because they stay in tables."""
    batch = decode_lock_batch(b"".join(received.body))
    names.check_client_id(batch.client_id)
    names.check_group(batch.group)
    for topic in {queue.topic for queue in batch.queues}:
        names.check_topic(topic)
    return batch
