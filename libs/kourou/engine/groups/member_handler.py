"""Heartbeats and removal of clients, lists of clients, and notifications to rebalance.

State: none of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from kourou.engine.control import ControlState, decide_consumer_group
from kourou.engine.effects import Effect
from kourou.engine.groups.membership import Change, ConsumerPart, Heartbeat, Member, Membership
from kourou.engine.policy import BrokerPolicy
from kourou.engine.sends.confirmations import Confirmations
from kourou.engine.sends.recorder import Recorder
from kourou.errors import Code, GroupNotFound, KourouError, NotLeader, Rejected, Unavailable
from kourou.events.control_events import Cause
from kourou.filtering.subscribing import check_allowed, heard, parse_subscription
from kourou.model.group import GroupConfig
from kourou.protocol.bodies.heartbeat_body import (
    HeartbeatBody,
    decode_heartbeat,
    decode_subscription_check,
)
from kourou.protocol.bodies.lists_body import (
    Connection,
    ConsumerConnection,
    ProducerConnection,
    ProducerInfo,
    encode_consumer_connection,
    encode_consumer_ids,
    encode_producer_connection,
    encode_producer_table,
)
from kourou.protocol.messages.membership import (
    CheckClientConfig,
    GetAllProducerInfo,
    GetConsumerConnectionList,
    GetConsumerListByGroup,
    GetProducerConnectionList,
    HeartBeat,
    NotifyConsumerIdsChanged,
    UnregisterClient,
)
from kourou.protocol.request import Request
from kourou.runtime.core import LogWarning, Notify, Peer, Received, Reply, ReplyTo

EnsureGroup = Callable[[str, Received, str], GroupConfig]
"""(group, request, reason) -> the group, created if that is allowed; raises Rejected."""


class MemberHandler:
    """Handles clients' requests about themselves, and queries about clients."""

    def __init__(
        self,
        control: ControlState,
        members: Membership,
        recorder: Recorder,
        confirmations: Confirmations,
        policy: BrokerPolicy,
    ) -> None:
        self._control = control
        self._members = members
        self._recorder = recorder
        self._confirmations = confirmations
        self._policy = policy

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

        A group that must not be created is refused separately: the client's other groups are
        registered all the same, and the reply has the first refusal's code. The reply waits until
        the groups that the heartbeat created are committed.
        """
        beat = _heartbeat(decode_heartbeat(b"".join(received.body)), received.to)
        self._members.check(received.to.peer, beat)
        before = self._confirmations.appended
        code = Code.SUCCESS
        refused: list[str] = []
        consumers: list[ConsumerPart] = []
        for part in beat.consumers:
            try:
                cause = Cause(beat.client_id, "first heartbeat of a consumer")
                self._found(part.group, cause, received.wall_ms)
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
        effects = self._tell(change)
        # With SUCCESS, Kourou's clients log the remark; RocketMQ's ignore it.
        remark = "; ".join(refused) if refused else "\n".join(change.differing)
        reply = Reply(received.to, code, remark)
        if self._confirmations.appended == before:
            return [*effects, reply]
        end = self._confirmations.appended
        return effects + self._confirmations.owe(now_ms, end, reply, decision=True)

    def ensure_group(self, group: str, received: Received, reason: str) -> GroupConfig:
        """Create the new group that a pull or commit names, if allowed, as a heartbeat does.

        No reply mentions the group, so no reply waits until it is committed. Raises GroupNotFound
        (26) if the group must not be created, or cannot be created now, and BadRequest for an
        invalid name.
        """
        try:
            self._found(group, Cause(str(received.to.peer), reason), received.wall_ms)
        except Unavailable as error:
            raise GroupNotFound(
                f"consumer group {group} cannot be created: {error}", hint="retry later"
            ) from error
        return self._control.groups.get(group) or GroupConfig(group)

    def _found(self, group: str, cause: Cause, wall_ms: int) -> None:
        """Create a consumer group and its retry topic where they are missing; may refuse.

        A follower creates none, but lets the group read, because its leader may be lost for good.
        """
        events = decide_consumer_group(
            self._control, group, auto_create=self._policy.auto_create_group
        )
        if events:
            with suppress(NotLeader):
                self._recorder.record(events, cause, wall_ms)

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
        change = self._members.unregister(
            received.to.peer,
            request.client_id,
            producer_group=request.producer_group,
            consumer_group=request.consumer_group,
        )
        return [*self._tell(change), Reply(received.to)]

    def disconnected(self, peer: Peer) -> list[Effect]:
        """Remove the memberships of a closed connection."""
        return self._tell(self._members.disconnect(peer))

    def expire(self, now_ms: int) -> list[Effect]:
        """Remove the clients that were silent for too long."""
        return self._tell(self._members.expire(now_ms))

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

    def _tell(self, change: Change) -> list[Effect]:
        effects: list[Effect] = [LogWarning(text) for text in change.clashes]
        for group, peers in change.notify.items():
            config = self._control.groups.get(group)
            wanted = config is None or config.notify_consumer_ids_changed_enable
            if not (wanted and self._policy.notify_consumer_ids_changed):
                continue
            notice = NotifyConsumerIdsChanged(consumer_group=group)
            effects += [Notify(peer, notice) for peer in peers]
        return effects


def _heartbeat(said: HeartbeatBody, by: ReplyTo) -> Heartbeat:
    return Heartbeat(
        client_id=said.client_id,
        language=by.language,
        version=by.version,
        producer_groups=tuple(said.producer_groups),
        consumers=tuple(
            ConsumerPart(
                group=each.group,
                subscriptions=tuple(
                    heard(
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


def _connections(members: list[Member]) -> list[Connection]:
    return [
        Connection(
            client_id=member.client_id,
            client_addr=member.address,
            language=member.language,
            version=member.version,
        )
        for member in members
    ]
