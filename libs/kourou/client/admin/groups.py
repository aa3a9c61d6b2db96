"""Administration of consumer groups, their offsets and their consumers.

A consumer is connected to every broker of its topics, so any broker that knows it can be queried.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from kourou.client.admin.base_api import AdminApi
from kourou.client.consumer.received import ReceivedMessage
from kourou.client.session.connections import body_of, header_of
from kourou.client.session.io_thread import on_io_thread
from kourou.errors import Code, GroupNotFound, KourouError, TimedOut, Unavailable
from kourou.model.names import check_group
from kourou.model.subscription import GroupConfig, Subscription
from kourou.model.topic import MessageQueue
from kourou.protocol.bodies.config_bodies import (
    decode_consumer_offsets,
    decode_group_configs,
    encode_group_config,
)
from kourou.protocol.bodies.lists_body import (
    ClientConnection,
    ConsumerConnection,
    ProducerInfo,
    decode_consumer_connection,
    decode_producer_connection,
    decode_producer_table,
)
from kourou.protocol.bodies.statistics_bodies import (
    BrokerConsumeStats,
    OffsetWrapper,
    QueueTimeSpan,
    decode_broker_consume_stats,
    decode_consume_stats,
    decode_correction_offsets,
    decode_offset_table,
    decode_time_spans,
)
from kourou.protocol.bodies.status_bodies import (
    ConsumerRunningInfo,
    DirectResult,
    decode_consumer_running_info,
    decode_consumer_status,
    decode_direct_result,
)
from kourou.protocol.messages.groups import (
    ConsumeMessageDirectly,
    DeleteSubscriptionGroup,
    GetAllProducerInfo,
    GetAllSubscriptionGroupConfig,
    GetBrokerConsumeStats,
    GetConsumerConnectionList,
    GetConsumerRunningInfo,
    GetConsumeStats,
    GetProducerConnectionList,
    InvokeBrokerToGetConsumerStatus,
    QueryConsumeTimeSpan,
    UpdateAndCreateSubscriptionGroup,
)
from kourou.protocol.messages.pulls import (
    CloneGroupOffset,
    GetAllConsumerOffset,
    GetMaxOffset,
    GetMaxOffsetResponse,
    InvokeBrokerToResetOffset,
    QueryCorrectionOffset,
    SearchOffsetByTimestamp,
    SearchOffsetByTimestampResponse,
    UpdateConsumerOffset,
)

Connections: TypeAlias = list[ClientConnection]
Names: TypeAlias = list[str]

TO_THE_END_MS = -1
"""A reset time that means the end of the queue: skip everything."""


@dataclass(frozen=True, slots=True)
class OffsetMove:
    """A group's offset in one queue before and after a move.

    `before` is None if the group has no committed offset in the queue.
    """

    before: int | None
    after: int

    @property
    def skipped(self) -> int:
        """The number of messages that the group does not receive because of the move."""
        return max(0, self.after - self.before) if self.before is not None else 0

    @property
    def repeated(self) -> int:
        """The number of messages that the group receives again because of the move."""
        return max(0, self.before - self.after) if self.before is not None else 0


class GroupsApi(AdminApi):
    """Consumer group administration: `client.admin.groups`."""

    @on_io_thread
    async def create(
        self,
        group: str | GroupConfig,
        *,
        cluster: str | None = None,
        broker: str | None = None,
        reason: str = "",
    ) -> None:
        """Create or change a group at every broker, at those of one cluster, or at one broker.

        `reason`, here and below, is recorded in the brokers' history.
        """
        config = GroupConfig(group) if isinstance(group, str) else group
        check_group(config.name)
        await self._tell(
            (await self._chosen(broker, cluster)).values(),
            UpdateAndCreateSubscriptionGroup(reason=reason),
            encode_group_config(config),
        )

    @on_io_thread
    async def delete(
        self,
        group: str,
        *,
        remove_offsets: bool = False,
        cluster: str | None = None,
        broker: str | None = None,
        reason: str = "",
    ) -> None:
        """Delete a group at every broker or at one; `remove_offsets` also deletes its offsets."""
        request = DeleteSubscriptionGroup(
            group_name=group, remove_offset=remove_offsets, reason=reason
        )
        await self._tell((await self._chosen(broker, cluster)).values(), request)

    @on_io_thread
    async def configs(
        self, *, cluster: str | None = None, broker: str | None = None
    ) -> dict[str, dict[str, GroupConfig]]:
        """Return group settings by broker and group: of all brokers, one cluster, or one broker."""
        found: dict[str, dict[str, GroupConfig]] = {}
        for name, address in (await self._chosen(broker, cluster)).items():
            reply = await self._ask(address, GetAllSubscriptionGroupConfig())
            found[name] = {one.name: one for one in decode_group_configs(body_of(reply))[0]}
        return found

    @on_io_thread
    async def list(self) -> list[GroupConfig]:
        """Return all groups, sorted by name; if brokers differ, as the first broker has them."""
        found: dict[str, GroupConfig] = {}
        for reply in await self._answers(
            (await self._leaders()).values(), GetAllSubscriptionGroupConfig()
        ):
            for config in decode_group_configs(body_of(reply))[0]:
                found.setdefault(config.name, config)
        return [found[name] for name in sorted(found)]

    @on_io_thread
    async def members(self, group: str) -> Connections:
        """Return the connected consumers of a group, each once.

        Raises Rejected if there is none.
        """
        return list((await self.connections(group)).connections)

    @on_io_thread
    async def connections(self, group: str) -> ConsumerConnection:
        """Return a group's connected consumers, its consume type and its subscriptions.

        Consumers of all brokers are merged, each listed once. Raises Rejected if no consumer is
        connected to any broker.
        """
        addresses = (await self._leaders()).values()
        request = GetConsumerConnectionList(consumer_group=group)
        replies = await self._answers(addresses, request)
        found = [decode_consumer_connection(body_of(reply)) for reply in replies]
        return replace(found[0], connections=_each_once(one.connections for one in found))

    @on_io_thread
    async def producers(self, group: str) -> Connections:
        """Return the connected producers of a group, each once.

        Raises Rejected if there is none.
        """
        addresses = (await self._leaders()).values()
        request = GetProducerConnectionList(producer_group=group)
        replies = await self._answers(addresses, request)
        return _each_once(decode_producer_connection(body_of(one)).connections for one in replies)


def _each_once(listed: Iterable[Sequence[ClientConnection]]) -> Connections:
    """Return the clients of all brokers' lists, each once, sorted by client ID."""
    found: dict[str, ClientConnection] = {}
    for clients in listed:
        for client in clients:
            found.setdefault(client.client_id, client)
    return [found[name] for name in sorted(found)]


class OffsetsApi(AdminApi):
    """Offsets of consumer groups: `client.admin.offsets`."""

    @on_io_thread
    async def of(self, group: str, topic: str | None = None) -> dict[MessageQueue, OffsetWrapper]:
        """Return committed and maximum offset per queue of a group, for all topics or one."""
        request = GetConsumeStats(consumer_group=group, topic=topic)
        leaders = await self._leaders() if topic is None else await self._leaders_of(topic)
        found: dict[MessageQueue, OffsetWrapper] = {}
        for reply in await self._answers(leaders.values(), request):
            found.update(decode_consume_stats(body_of(reply)).offsets)
        return dict(sorted(found.items()))

    @on_io_thread
    async def at(
        self, broker: str, group: str, topic: str | None = None
    ) -> dict[MessageQueue, OffsetWrapper]:
        """Return the same for one broker.

        Raises GroupNotFound or TopicNotFound if the broker does not have that group or topic.
        """
        request = GetConsumeStats(consumer_group=group, topic=topic)
        found: dict[MessageQueue, OffsetWrapper] = {}
        for address in (await self._chosen(broker)).values():
            found.update(decode_consume_stats(body_of(await self._ask(address, request))).offsets)
        return dict(sorted(found.items()))

    @on_io_thread
    async def lag(self, group: str, topic: str) -> int:
        """Return the consumer lag of a group in a topic, in messages, over all queues."""
        request = GetConsumeStats(consumer_group=group, topic=topic)
        lag = 0
        for address in (await self._leaders_of(topic)).values():
            stats = decode_consume_stats(body_of(await self._ask(address, request)))
            lag += sum(
                max(0, one.broker_offset - one.consumer_offset) for one in stats.offsets.values()
            )
        return lag

    @on_io_thread
    async def reset(
        self, group: str, topic: str, timestamp_ms: int, *, force: bool = True, reason: str = ""
    ) -> dict[MessageQueue, int]:
        """Reset a group to the first messages stored at or after a time, or to `TO_THE_END_MS`.

        Returns the new offset of each queue. Without `force` no queue is moved forward. Connected
        consumers restart at the new offsets; a group without consumers starts there next time.
        Raises GroupNotFound if no broker has the group for this topic.
        """
        request = InvokeBrokerToResetOffset(
            topic=topic, group=group, timestamp=timestamp_ms, is_force=force, reason=reason
        )
        moved: dict[MessageQueue, int] = {}
        for address in (await self._leaders_of(topic)).values():
            moved.update(decode_offset_table(body_of(await self._ask(address, request))))
        if not moved:
            raise GroupNotFound(f"no broker has group {group!r} for topic {topic!r}")
        return dict(sorted(moved.items()))

    @on_io_thread
    async def preview_reset(
        self, group: str, topic: str, timestamp_ms: int, *, force: bool = True
    ) -> dict[MessageQueue, OffsetMove]:
        """Return what `reset` would change now, per queue; changes nothing."""
        leaders = await self._leaders_of(topic)
        known = await self._committed(leaders, group)
        queues = [
            queue
            for queue in (await self._session.routes.find(topic)).readable
            if queue.broker_name in leaders
        ]

        async def move(queue: MessageQueue) -> OffsetMove:
            target = await self._offset_at(leaders[queue.broker_name], queue, timestamp_ms)
            before = known.get(queue)
            if before is not None and not force:
                target = min(target, before)
            return OffsetMove(before, target)

        moves = await asyncio.gather(*map(move, queues))
        return dict(zip(queues, moves, strict=True))

    async def _offset_at(self, address: str, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset that a reset to this time selects, as the broker computes it."""
        if timestamp_ms < 0:
            end = GetMaxOffset(topic=queue.topic, queue_id=queue.queue_id)
            return header_of(await self._ask(address, end), GetMaxOffsetResponse).offset
        request = SearchOffsetByTimestamp(
            topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp_ms
        )
        found = header_of(await self._ask(address, request), SearchOffsetByTimestampResponse)
        return found.offset

    @on_io_thread
    async def preview_clone(
        self, source: str, target: str, topic: str | None = None
    ) -> dict[MessageQueue, OffsetMove]:
        """Return what `clone` would change now, per queue; changes nothing."""
        leaders = await self._leaders() if topic is None else await self._leaders_of(topic)
        wanted, known = await asyncio.gather(
            self._committed(leaders, source), self._committed(leaders, target)
        )
        return {
            queue: OffsetMove(known.get(queue), offset)
            for queue, offset in sorted(wanted.items())
            if topic is None or queue.topic == topic
        }

    @on_io_thread
    async def committed(self, group: str, *, broker: str | None = None) -> dict[MessageQueue, int]:
        """Return the committed offsets of a group; queues without one are left out."""
        return await self._committed(await self._chosen(broker), group)

    async def _committed(self, leaders: Mapping[str, str], group: str) -> dict[MessageQueue, int]:
        found: dict[MessageQueue, int] = {}
        for name, address in leaders.items():
            reply = await self._ask(address, GetAllConsumerOffset())
            for whose, topic, offsets in decode_consumer_offsets(body_of(reply)):
                if whose == group:
                    found.update(
                        {MessageQueue(topic, name, number): at for number, at in offsets.items()}
                    )
        return found

    @on_io_thread
    async def clone(
        self, source: str, target: str, topic: str | None = None, *, reason: str = ""
    ) -> None:
        """Copy the committed offsets of group `source` to group `target`."""
        request = CloneGroupOffset(src_group=source, dest_group=target, topic=topic, reason=reason)
        leaders = await self._leaders() if topic is None else await self._leaders_of(topic)
        await self._tell(leaders.values(), request)

    @on_io_thread
    async def commit(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Commit offsets for a group as one of its consumers would.

        Running consumers are not reset. To move a group that has running consumers, use `reset`.
        Raises Unavailable if a queue's broker has no leader.
        """
        for queue, offset in offsets.items():
            address = await self._leader_of(queue)
            request = UpdateConsumerOffset(
                consumer_group=group,
                topic=queue.topic,
                queue_id=queue.queue_id,
                commit_offset=offset,
            )
            await self._ask(address, request)

    @on_io_thread
    async def time_spans(self, group: str, topic: str) -> dict[MessageQueue, QueueTimeSpan]:
        """Return per queue the first, last and last consumed store time, and the delay."""
        request = QueryConsumeTimeSpan(topic=topic, group=group)
        found: dict[MessageQueue, QueueTimeSpan] = {}
        for reply in await self._answers((await self._leaders_of(topic)).values(), request):
            for span in decode_time_spans(body_of(reply)):
                found[span.queue] = span
        return dict(sorted(found.items()))

    @on_io_thread
    async def lowest(
        self, topic: str, *, compared_with: str, without: str = ""
    ) -> dict[str, dict[int, int]]:
        """Return the lowest committed offset of all groups: broker -> queue ID -> offset.

        `without` excludes groups; several names are joined by commas. A queue in which the group
        `compared_with` is behind all other groups has the value 2^63 - 1.
        """
        request = QueryCorrectionOffset(
            topic=topic, compare_group=compared_with, filter_groups=without or None
        )
        return {
            name: decode_correction_offsets(body_of(await self._ask(address, request)))
            for name, address in (await self._leaders_of(topic)).items()
        }

    @on_io_thread
    async def everywhere(
        self, broker_name: str, *, ordered_only: bool = False
    ) -> BrokerConsumeStats:
        """Return the offsets of all groups of one broker, and the sum of their lags."""
        address = (await self._leaders()).get(broker_name)
        if address is None:
            raise Unavailable(f"broker {broker_name!r} is unknown or has no leader")
        request = GetBrokerConsumeStats(is_order=ordered_only)
        return decode_broker_consume_stats(body_of(await self._ask(address, request)))


class MembersApi(AdminApi):
    """Consumers of a group: `client.admin.members`."""

    @on_io_thread
    async def running_info(
        self, group: str, client_id: str, *, stacks: bool = False
    ) -> ConsumerRunningInfo:
        """Return a consumer's settings, subscriptions, queues and rates.

        With `stacks` the result also contains the stacks of its threads. Raises GroupNotFound if no
        broker knows that consumer, TimedOut if it does not reply.
        """
        request = GetConsumerRunningInfo(
            consumer_group=group, client_id=client_id, jstack_enable=stacks
        )
        failure: KourouError = GroupNotFound(
            f"no broker has consumer {client_id!r} in group {group!r}",
            code=Code.CONSUMER_NOT_ONLINE,
        )
        for address in (await self._leaders()).values():
            try:
                reply = await self._ask(address, request)
            except KourouError as error:
                if error.wire_code == Code.CONSUME_MSG_TIMEOUT:
                    raise TimedOut(f"consumer {client_id} did not respond: {error}") from error
                if error.wire_code != Code.CONSUMER_NOT_ONLINE:
                    failure = error
                continue
            return decode_consumer_running_info(body_of(reply))
        raise failure

    @on_io_thread
    async def running_infos(
        self, group: str, *, stacks: bool = False
    ) -> dict[str, ConsumerRunningInfo | KourouError]:
        """Return the running info of every consumer by client ID, or the error if it gave none."""
        ids = await self._ids(group)
        found = await asyncio.gather(
            *(self.running_info(group, client_id, stacks=stacks) for client_id in ids),
            return_exceptions=True,
        )
        infos: dict[str, ConsumerRunningInfo | KourouError] = {}
        for client_id, one in zip(ids, found, strict=True):
            if isinstance(one, BaseException) and not isinstance(one, KourouError):
                raise one
            infos[client_id] = one
        return infos

    @on_io_thread
    async def subscriptions(self, group: str) -> dict[str, tuple[Subscription, ...] | KourouError]:
        """Return each consumer's subscriptions by client ID, or the error if it gave none."""
        return {
            client_id: tuple(sorted(info.subscriptions, key=lambda one: one.topic))
            if isinstance(info, ConsumerRunningInfo)
            else info
            for client_id, info in (await self.running_infos(group)).items()
        }

    async def _ids(self, group: str) -> Names:
        request = GetConsumerConnectionList(consumer_group=group)
        replies = await self._answers((await self._leaders()).values(), request)
        listed = (decode_consumer_connection(body_of(reply)).connections for reply in replies)
        return [one.client_id for one in _each_once(listed)]

    @on_io_thread
    async def positions(
        self, group: str, topic: str, client_id: str = ""
    ) -> dict[str, dict[MessageQueue, int]]:
        """Return each consumer's reported positions in a topic by client ID, or those of one.

        A position is what the consumer would commit next; it may be ahead of the committed offset.
        Consumers that do not reply are left out.
        """
        request = InvokeBrokerToGetConsumerStatus(
            topic=topic, group=group, client_addr=client_id or None
        )
        found: dict[str, dict[MessageQueue, int]] = {}
        for reply in await self._answers((await self._leaders_of(topic)).values(), request):
            for name, queues in decode_consumer_status(body_of(reply)).members.items():
                found.setdefault(name, {}).update(queues)
        return {name: dict(sorted(found[name].items())) for name in sorted(found)}

    @on_io_thread
    async def consume(
        self, group: str, message: ReceivedMessage, client_id: str = ""
    ) -> DirectResult:
        """Let a consumer process this stored message now; the group's offsets do not change.

        Without `client_id` the broker selects the consumer with the most recent heartbeat. The
        result contains the handler's outcome (`CR_SUCCESS`, `CR_LATER`, `CR_THROW_EXCEPTION` and
        others).
        """
        request = ConsumeMessageDirectly(
            consumer_group=group,
            client_id=client_id or None,
            msg_id=message.offset_message_id,
            broker_name=message.queue.broker_name,
            topic=message.queue.topic,
        )
        address = (await self._leaders()).get(message.queue.broker_name)
        if address is None:
            raise GroupNotFound(f"broker {message.queue.broker_name} has no leader")
        return decode_direct_result(body_of(await self._ask(address, request)))

    @on_io_thread
    async def consume_many(
        self, group: str, messages: Sequence[ReceivedMessage], client_id: str = ""
    ) -> list[DirectResult | KourouError]:
        """Do the same for several messages in turn; each has its own result or error."""
        results: list[DirectResult | KourouError] = []
        for message in messages:
            try:
                results.append(await self.consume(group, message, client_id))
            except KourouError as error:
                results.append(error)
        return results

    @on_io_thread
    async def all_producers(self, broker: str | None = None) -> dict[str, list[ProducerInfo]]:
        """Return the producers of one broker or all, by group.

        A client that several brokers list appears once, with its most recent heartbeat.
        """
        groups: dict[str, dict[str, ProducerInfo]] = {}
        addresses = (await self._chosen(broker)).values()
        for reply in await self._answers(addresses, GetAllProducerInfo()):
            for group, producers in decode_producer_table(body_of(reply)).items():
                known = groups.setdefault(group, {})
                for one in producers:
                    former = known.get(one.client_id)
                    if former is None or former.last_update_timestamp < one.last_update_timestamp:
                        known[one.client_id] = one
        return {
            group: [groups[group][client_id] for client_id in sorted(groups[group])]
            for group in sorted(groups)
        }
