"""Administration of single consumers: running info, positions, and direct delivery of a message.

A consumer is connected to every broker of its topics, so any broker that knows it can be queried.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from kourou.client.admin.base_api import AdminApi
from kourou.client.consumer.received import ReceivedMessage
from kourou.client.session.connections import body_of
from kourou.client.session.io_thread import on_io_thread
from kourou.errors import Code, GroupNotFound, KourouError, TimedOut
from kourou.model.subscription import Subscription
from kourou.model.topic import MessageQueue
from kourou.protocol.bodies.lists_body import (
    ProducerInfo,
    decode_consumer_connection,
    decode_producer_table,
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
    GetAllProducerInfo,
    GetConsumerConnectionList,
    GetConsumerRunningInfo,
    InvokeBrokerToGetConsumerStatus,
)


class Members(AdminApi):
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
        ids = sorted(await self._ids(group))
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

    async def _ids(self, group: str) -> set[str]:
        request = GetConsumerConnectionList(consumer_group=group)
        ids: set[str] = set()
        for reply in await self._answers((await self._leaders()).values(), request):
            ids.update(
                one.client_id for one in decode_consumer_connection(body_of(reply)).connections
            )
        return ids

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
