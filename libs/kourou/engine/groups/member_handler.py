"""Requests of connected clients: heartbeats, lists of clients, and locks of queues.

State: none of its own; engine.groups.membership and engine.groups.queue_locks keep it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from kourou.engine.admin.access_gate import AccessGate
from kourou.engine.admin.quota_gate import QuotaGate
from kourou.engine.context import BrokerContext
from kourou.engine.control import decide_consumer_group
from kourou.engine.effects import Effect
from kourou.engine.groups.membership import ConsumerPart, GroupClient, Heartbeat, MembershipChange
from kourou.engine.groups.queue_locks import Place, QueueLocks
from kourou.errors import Code, GroupNotFound, KourouError, NotLeader, Rejected, Unavailable
from kourou.events.control_events import Cause
from kourou.filtering.subscriptions import check_allowed, heartbeat_subscription, parse_subscription
from kourou.model import names
from kourou.model.subscription import GroupConfig
from kourou.protocol.bodies.heartbeat_body import (
    HeartbeatBody,
    decode_heartbeat,
    decode_subscription_check,
)
from kourou.protocol.bodies.lists_body import (
    ClientConnection,
    ConsumerConnection,
    LockBatch,
    ProducerConnection,
    ProducerInfo,
    decode_lock_batch,
    encode_consumer_connection,
    encode_consumer_ids,
    encode_locked_queues,
    encode_producer_connection,
    encode_producer_table,
)
from kourou.protocol.messages.groups import (
    CheckClientConfig,
    GetAllProducerInfo,
    GetConsumerConnectionList,
    GetConsumerListByGroup,
    GetProducerConnectionList,
    HeartBeat,
    LockBatchMq,
    NotifyConsumerIdsChanged,
    UnlockBatchMq,
    UnregisterClient,
)
from kourou.protocol.request import Request
from kourou.runtime import LogWarning, Notify, Peer, Received, Reply

EnsureGroup = Callable[[str, Received, str], GroupConfig]
"""(group, request, reason) -> the group, created if that is allowed; raises Rejected."""


class MemberHandler:
    """Handles clients' requests about themselves, and queries about clients."""

    def __init__(self, context: BrokerContext, gate: AccessGate, quotas: QuotaGate) -> None:
        self._gate = gate
        self._quotas = quotas
        self._control = context.control
        self._members = context.members
        self._recorder = context.recorder
        self._confirmations = context.confirmations
        self._policy = context.policy

    def handlers(self) -> dict[type[Request], Callable[[int, Received, Any], list[Effect]]]:
        """Return the handler of each request type."""
        return {
            HeartBeat: self.heartbeat,
            UnregisterClient: self.unregister,
            GetConsumerListByGroup: self.consumer_ids,
            GetConsumerConnectionList: self.consumer_connections,
            GetProducerConnectionList: self.producer_connections,
            GetAllProducerInfo: self.producer_table,
            CheckClientConfig: self.check_config,
        }

    def heartbeat(self, now_ms: int, received: Received, _request: HeartBeat) -> list[Effect]:
        """Handle a heartbeat (34); create the client's groups and their retry topics.

        The whole heartbeat is refused while another user is connected with the client ID. A group
        that must not be created is refused separately: the client's other groups are registered all
        the same, and the reply has the first refusal's code. The reply waits until the groups that
        the heartbeat created are committed.
        """
        beat = _heartbeat(decode_heartbeat(b"".join(received.body)), received)
        self._members.check(received.to.peer, beat)
        effects: list[Effect] = []
        if not self._gate.may_act_as(received, beat.client_id, effects):
            return effects
        before = self._confirmations.appended
        code = Code.SUCCESS
        refused: list[str] = []
        consumers: list[ConsumerPart] = []
        for part in beat.consumers:
            try:
                actor = received.actor_of_client(beat.client_id)
                cause = Cause(actor, "first heartbeat of a consumer")
                self._found(part.group, received, cause)
            except KourouError as error:
                code = code or error.wire_code
                refused.append(str(error))
            else:
                consumers.append(part)
        change = self._members.heartbeat(
            now_ms, received.to.peer, replace(beat, consumers=tuple(consumers))
        )
        if change.refused:
            code = code or Code.SUBSCRIPTION_PARSE_FAILED
            refused += change.refused
        effects += self._notify_clients(change)
        # With SUCCESS, Kourou's clients log the remark; RocketMQ's ignore it.
        remark = "; ".join(refused) if refused else "\n".join(change.differing)
        reply = Reply(received.to, code, remark)
        if self._confirmations.appended == before:
            return [*effects, reply]
        end = self._confirmations.appended
        return effects + self._confirmations.defer(now_ms, end, reply, decision=True)

    def ensure_group(self, group: str, received: Received, reason: str) -> GroupConfig:
        """Create the new group that a pull or commit names, if allowed, as a heartbeat does.

        No reply mentions the group, so no reply waits until it is committed. Raises GroupNotFound
        (26) if the group must not be created, or cannot be created now, and BadRequest for an
        invalid name.
        """
        try:
            self._found(group, received, Cause(received.actor, reason))
        except Unavailable as error:
            raise GroupNotFound(
                f"consumer group {group} cannot be created: {error}", hint="retry later"
            ) from error
        return self._control.groups.get(group) or GroupConfig(group)

    def _found(self, group: str, received: Received, cause: Cause) -> None:
        """Create a consumer group and its retry topic where they are missing; may refuse.

        A follower creates none, but lets the group read, because its leader may be lost for good.
        """
        events = decide_consumer_group(
            self._control, group, auto_create=self._policy.auto_create_group
        )
        if events:
            self._quotas.check_new_group(received, group)
            with suppress(NotLeader):
                self._recorder.record(events, cause, received.wall_ms)

    def check_config(
        self, _now_ms: int, received: Received, _request: CheckClientConfig
    ) -> list[Effect]:
        """Check a consumer's filter before the consumer starts (46): 0, or the error."""
        asked = decode_subscription_check(b"".join(received.body)).subscription
        check_allowed(asked.expression_type, property_filter=self._policy.property_filter)
        parse_subscription(asked.topic, asked.expression, asked.expression_type)
        return [Reply(received.to)]

    def unregister(
        self, _now_ms: int, received: Received, request: UnregisterClient
    ) -> list[Effect]:
        """Remove a client from a group (35)."""
        effects: list[Effect] = []
        if not self._gate.may_act_as(received, request.client_id, effects):
            return effects
        change = self._members.unregister(
            received.to.peer,
            request.client_id,
            producer_group=request.producer_group,
            consumer_group=request.consumer_group,
        )
        return [*effects, *self._notify_clients(change), Reply(received.to)]

    def disconnected(self, peer: Peer) -> list[Effect]:
        """Remove the memberships of a closed connection."""
        return self._notify_clients(self._members.disconnect(peer))

    def expire(self, now_ms: int) -> list[Effect]:
        """Remove the clients that were silent for too long."""
        return self._notify_clients(self._members.expire(now_ms))

    def consumer_ids(
        self, _now_ms: int, received: Received, request: GetConsumerListByGroup
    ) -> list[Effect]:
        """Reply with the client IDs of a consumer group (38)."""
        ids = self._members.consumer_ids(request.consumer_group)
        if not ids:
            raise Rejected(f"group {request.consumer_group} has no consumer at this broker")
        return [Reply(received.to, body=(encode_consumer_ids(ids),))]

    def consumer_connections(
        self, _now_ms: int, received: Received, request: GetConsumerConnectionList
    ) -> list[Effect]:
        """Reply with the consumers of a group, and their subscriptions (203)."""
        group = self._members.consumer_group(request.consumer_group)
        if group is None:
            raise GroupNotFound(
                f"group {request.consumer_group} has no consumer at this broker",
                code=Code.CONSUMER_NOT_ONLINE,
            )
        body = encode_consumer_connection(
            ConsumerConnection(
                connections=_connections(self._members.consumers(request.consumer_group)),
                subscriptions=group.subscriptions,
                consume_type=group.consume_type,
                message_model=group.message_model,
                consume_from_where=group.consume_from_where,
            )
        )
        return [Reply(received.to, body=(body,))]

    def producer_connections(
        self, _now_ms: int, received: Received, request: GetProducerConnectionList
    ) -> list[Effect]:
        """Reply with the producers of a group (204)."""
        members = self._members.producers(request.producer_group)
        if not members:
            raise Rejected(f"group {request.producer_group} has no producer at this broker")
        body = encode_producer_connection(ProducerConnection(_connections(members)))
        return [Reply(received.to, body=(body,))]

    def producer_table(
        self, now_ms: int, received: Received, _request: GetAllProducerInfo
    ) -> list[Effect]:
        """Reply with every producer of every group, and its last heartbeat (328)."""
        table = {
            group: [
                ProducerInfo(
                    client_id=member.client_id,
                    remote_ip=member.peer.address[0],
                    language=member.language,
                    version=member.version,
                    last_update_timestamp=received.wall_ms - (now_ms - member.seen_ms),
                )
                for member in self._members.producers(group)
            ]
            for group in self._members.producer_groups()
        }
        return [Reply(received.to, body=(encode_producer_table(table),))]

    def _notify_clients(self, change: MembershipChange) -> list[Effect]:
        effects: list[Effect] = [*change.clashes]
        for group, peers in change.notify.items():
            config = self._control.groups.get(group)
            wanted = config is None or config.notify_consumer_ids_changed_enable
            if not (wanted and self._policy.notify_consumer_ids_changed):
                continue
            notice = NotifyConsumerIdsChanged(consumer_group=group)
            effects += [Notify(peer, notice) for peer in peers]
        return effects


def _heartbeat(said: HeartbeatBody, received: Received) -> Heartbeat:
    return Heartbeat(
        client_id=said.client_id,
        language=received.to.language,
        version=received.to.version,
        user=received.user,
        source=received.source,
        door=received.door,
        producer_groups=tuple(said.producer_groups),
        consumers=tuple(
            ConsumerPart(
                group=each.group,
                subscriptions=tuple(
                    heartbeat_subscription(
                        topic.topic,
                        topic.expression,
                        topic.expression_type,
                        version=topic.version,
                        class_filter=topic.class_filter_mode,
                    )
                    for topic in each.subscriptions
                ),
                consume_type=each.consume_type,
                message_model=each.message_model,
                consume_from_where=each.consume_from_where,
            )
            for each in said.consumers
        ),
    )


def _connections(members: list[GroupClient]) -> list[ClientConnection]:
    return [
        ClientConnection(
            client_id=member.client_id,
            client_addr=member.address,
            language=member.language,
            version=member.version,
        )
        for member in members
    ]


class LockHandler:
    """Handles requests 41 and 42.

    A client that was refused a queue receives NOTIFY_CONSUMER_IDS_CHANGED (40) as soon as the queue
    is free. So a takeover does not wait for that client's next rebalance, which may be 20 s away
    (RocketMQ's brokers send nothing).

    State: soft of its own: whether recording fails now, so that this is logged once.
    """

    def __init__(self, context: BrokerContext, locks: QueueLocks, gate: AccessGate) -> None:
        self._locks = locks
        self._gate = gate
        self._members = context.members
        self._recorder = context.recorder
        self._confirmations = context.confirmations
        self._policy = context.policy
        self._failing = False

    def handlers(self) -> dict[type[Request], Callable[[int, Received, Any], list[Effect]]]:
        """Return the handler of each request type."""
        return {LockBatchMq: self.lock, UnlockBatchMq: self.unlock}

    def lock(self, now_ms: int, received: Received, _request: LockBatchMq) -> list[Effect]:
        """Lock queues for a client, or refresh its locks (41); reply with those that it holds.

        The reply waits until the change is committed. Queues of other brokers are not granted.
        """
        batch = _batch(received)
        effects: list[Effect] = []
        if not self._gate.may_act_as(received, batch.client_id, effects):
            return effects
        before = self._confirmations.appended
        held = set(self._locks.lock(now_ms, batch.group, batch.client_id, self._places(batch)))
        actor = received.actor_of_client(batch.client_id)
        effects += self._record(actor, "lock", received.wall_ms)
        granted = [
            queue
            for queue in batch.queues
            if queue.broker_name == self._policy.broker_name
            and (queue.topic, queue.queue_id) in held
        ]
        reply = Reply(received.to, body=(encode_locked_queues(granted),))
        if self._confirmations.appended == before:
            return [*effects, reply]
        end = self._confirmations.appended
        return effects + self._confirmations.defer(now_ms, end, reply, decision=True)

    def unlock(self, now_ms: int, received: Received, _request: UnlockBatchMq) -> list[Effect]:
        """Release queues of a client (42); queues that it does not hold are unchanged."""
        batch = _batch(received)
        effects: list[Effect] = []
        if not self._gate.may_act_as(received, batch.client_id, effects):
            return effects
        waiting = self._locks.unlock(now_ms, batch.group, batch.client_id, self._places(batch))
        actor = received.actor_of_client(batch.client_id)
        effects += self._record(actor, "unlock", received.wall_ms)
        return [*effects, Reply(received.to), *self._notify_clients(batch.group, waiting)]

    def expire(self, now_ms: int, wall_ms: int) -> list[Effect]:
        """End the locks of clients that were silent for too long."""
        waiting = self._locks.expire(now_ms)
        effects: list[Effect] = [*self._record("broker", "lapsed", wall_ms)]
        for group, clients in waiting.items():
            effects += self._notify_clients(group, clients)
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
            return [
                LogWarning(
                    "locks-unrecorded: queue locks are not recorded: %(error)s", {"error": error}
                )
            ]
        self._failing = False
        return []

    def _notify_clients(self, group: str, clients: Iterable[str]) -> list[Effect]:
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
