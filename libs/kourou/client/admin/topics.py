"""Administration of topics."""

from __future__ import annotations

import asyncio
from typing import TypeAlias

from kourou.client.admin.base_api import AdminApi
from kourou.client.session.connections import body_of
from kourou.client.session.io_thread import on_io_thread
from kourou.errors import TopicNotFound
from kourou.model.names import AUTO_CREATE_TOPIC, check_topic
from kourou.model.topic import MessageQueue, Permission, TopicConfig, TopicRoute
from kourou.protocol.bodies.config_bodies import decode_topic_configs
from kourou.protocol.bodies.lists_body import decode_group_list
from kourou.protocol.bodies.route_bodies import decode_topic_list
from kourou.protocol.bodies.statistics_bodies import TopicOffset, decode_topic_stats
from kourou.protocol.messages.broker_admin import (
    DeleteTopicInBroker,
    GetAllTopicConfig,
    GetTopicStatsInfo,
    QueryTopicConsumeByWho,
    UpdateAndCreateTopic,
)
from kourou.protocol.messages.namesrv import DeleteTopicInNamesrv, GetAllTopicListFromNamesrv

Names: TypeAlias = list[str]

DEFAULT_QUEUES = 8
VISIBLE_MS_MAX = 3_000
"""How long `create` waits for the name servers; brokers register a new topic at once."""

VISIBLE_PAUSE_MS = 20


class TopicsApi(AdminApi):
    """Topic administration: `client.admin.topics`."""

    @on_io_thread
    async def create(
        self,
        topic: str,
        *,
        queues: int = DEFAULT_QUEUES,
        read_queues: int | None = None,
        perm: Permission = Permission.READ_WRITE,
        order: bool = False,
        cluster: str | None = None,
        broker: str | None = None,
        sys_flag: int = 0,
        reason: str = "",
    ) -> None:
        """Create or change a topic at every broker, at those of one cluster, or at one broker.

        Returns when the brokers have the topic and a name server returns its route. `sys_flag` has
        RocketMQ's unit bits: 1 for a unit's topic, 2 for one that units subscribe to. `reason` is
        recorded in the brokers' history.
        """
        check_topic(topic)
        leaders = await self._chosen(broker, cluster)
        request = UpdateAndCreateTopic(
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC,
            read_queue_nums=queues if read_queues is None else read_queues,
            write_queue_nums=queues,
            perm=int(perm),
            order=order,
            topic_sys_flag=sys_flag,
            reason=reason,
        )
        await self._tell(leaders.values(), request)
        await self._wait_visible(topic, set(leaders), request)

    @on_io_thread
    async def set_perm(
        self,
        topic: str,
        perm: Permission,
        *,
        cluster: str | None = None,
        broker: str | None = None,
        reason: str = "",
    ) -> dict[str, int]:
        """Change the topic's read and write permission only; returns the previous value by broker.

        Raises TopicNotFound if none of the selected brokers has the topic.
        """
        chosen = await self._chosen(broker, cluster)
        before: dict[str, int] = {}
        for name, config in (await self._configs(topic)).items():
            if name not in chosen:
                continue
            before[name] = config.perm
            request = UpdateAndCreateTopic(
                topic=topic,
                default_topic=AUTO_CREATE_TOPIC,
                read_queue_nums=config.read_queue_nums,
                write_queue_nums=config.write_queue_nums,
                perm=int(perm),
                order=config.order,
                topic_sys_flag=config.topic_sys_flag,
                reason=reason,
            )
            await self._ask_leader(chosen[name], request)
            await self._wait_visible(topic, {name}, request)
        if not before:
            raise TopicNotFound(f"no matching broker has topic {topic!r}")
        return before

    async def _wait_visible(
        self, topic: str, brokers: set[str], request: UpdateAndCreateTopic
    ) -> None:
        clock = self._session.clock
        until_ms = clock.monotonic_ms() + VISIBLE_MS_MAX
        while True:
            try:
                known = await self._session.routes.refresh(topic)
                registered = {
                    data.broker_name
                    for data in known.route.queue_datas
                    if data.perm == request.perm
                    and data.read_queue_nums == request.read_queue_nums
                    and data.write_queue_nums == request.write_queue_nums
                }
                if not known.borrowed and brokers <= registered:
                    return
            except TopicNotFound:
                pass  # not yet
            if clock.monotonic_ms() >= until_ms:
                return  # it exists; a name server that lags behind will receive the registration
            await asyncio.sleep(VISIBLE_PAUSE_MS / 1000)

    @on_io_thread
    async def delete(self, topic: str, *, cluster: str | None = None, reason: str = "") -> None:
        """Delete a topic and its queues at every broker, then its route at every name server."""
        request = DeleteTopicInBroker(topic=topic, reason=reason)
        await self._tell((await self._leaders(cluster)).values(), request)
        await self._session.name_servers.send_to_all(
            DeleteTopicInNamesrv(topic=topic, cluster_name=cluster)
        )
        self._session.routes.forget(topic)

    @on_io_thread
    async def list(self) -> Names:
        """Return the names of all topics, sorted."""
        reply = await self._session.name_servers.ask(GetAllTopicListFromNamesrv())
        names, _ = decode_topic_list(body_of(reply))
        return sorted(names)

    @on_io_thread
    async def route(self, topic: str) -> TopicRoute:
        """Return the topic's route. Raises TopicNotFound."""
        known = await self._session.routes.refresh(topic)
        if known.borrowed:
            raise TopicNotFound(f"topic {topic!r} not found")
        return known.route

    @on_io_thread
    async def config(self, topic: str) -> dict[str, TopicConfig]:
        """Return the topic's configuration at each broker, by broker name."""
        return await self._configs(topic)

    @on_io_thread
    async def all_configs(
        self, *, cluster: str | None = None, broker: str | None = None
    ) -> dict[str, dict[str, TopicConfig]]:
        """Return topic settings by broker and topic: of all brokers, one cluster, or one broker."""
        found: dict[str, dict[str, TopicConfig]] = {}
        for name, address in (await self._chosen(broker, cluster)).items():
            reply = await self._ask(address, GetAllTopicConfig())
            found[name] = {one.name: one for one in decode_topic_configs(body_of(reply))[0]}
        return found

    async def _configs(self, topic: str) -> dict[str, TopicConfig]:
        found: dict[str, TopicConfig] = {}
        for name, address in (await self._leaders_of(topic)).items():
            reply = await self._ask(address, GetAllTopicConfig())
            configs, _ = decode_topic_configs(body_of(reply))
            for config in configs:
                if config.name == topic:
                    found[name] = config
        return found

    @on_io_thread
    async def stats(self, topic: str) -> dict[MessageQueue, TopicOffset]:
        """Return the minimum and maximum offset and the last store time of every queue."""
        found: dict[MessageQueue, TopicOffset] = {}
        for address in (await self._leaders_of(topic)).values():
            reply = await self._ask(address, GetTopicStatsInfo(topic=topic))
            found.update(decode_topic_stats(body_of(reply)))
        return dict(sorted(found.items()))

    @on_io_thread
    async def consumer_groups(self, topic: str) -> Names:
        """Return the groups that consume the topic."""
        groups: set[str] = set()
        addresses = (await self._leaders_of(topic)).values()
        for reply in await self._answers(addresses, QueryTopicConsumeByWho(topic=topic)):
            groups.update(decode_group_list(body_of(reply)))
        return sorted(groups)
