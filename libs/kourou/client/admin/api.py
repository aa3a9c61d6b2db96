"""The administration API of a client: `client.admin.topics.create(...)` and the other families."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from kourou.client.admin.base_api import AdminApi, ByBroker, EveryBrokerApi
from kourou.client.admin.dead_letters import DeadLettersApi
from kourou.client.admin.filters import FiltersApi
from kourou.client.admin.groups import GroupsApi, MembersApi, OffsetsApi
from kourou.client.admin.history import HistoryApi
from kourou.client.admin.messages import MessagesApi, Reading
from kourou.client.admin.name_servers import NameServersApi
from kourou.client.admin.replicas import ReplicasApi
from kourou.client.admin.topics import TopicsApi
from kourou.client.admin.users import UsersApi
from kourou.client.explain.api import Explain
from kourou.client.session.client_session import Session
from kourou.client.session.connections import body_of
from kourou.client.session.io_thread import on_io_thread
from kourou.errors import Rejected, TopicNotFound
from kourou.model.quota import Quota, check_quota, check_quota_name, quota_kind
from kourou.model.topic import WRITE
from kourou.protocol.bodies.broker_bodies import SettingView, decode_setting_views
from kourou.protocol.bodies.quota_bodies import decode_quotas
from kourou.protocol.bodies.route_bodies import ClusterInfo, decode_kv_table
from kourou.protocol.bodies.statistics_bodies import BrokerStats, decode_broker_stats
from kourou.protocol.messages.broker_admin import (
    CleanExpiredConsumeQueue,
    CleanUnusedTopic,
    DeleteExpiredCommitLog,
    GetBrokerConfig,
    GetBrokerRuntimeInfo,
    UpdateBrokerConfig,
    ViewBrokerStatsData,
)
from kourou.protocol.messages.namesrv import AddWritePermOfBroker, WipeWritePermOfBroker
from kourou.protocol.messages.quotas import ListQuotas, RemoveQuota, SetQuota
from kourou.protocol.wire.properties_text import decode_properties_text, encode_properties_text

Quotas: TypeAlias = list[Quota]


class BrokersApi(AdminApi):
    """Broker administration: `client.admin.brokers`.

    Methods take the broker's name and send the request to the broker's leader.
    """

    @on_io_thread
    async def names(self) -> list[str]:
        """Return the names of all brokers that have a leader."""
        return sorted(await self._leaders())

    @on_io_thread
    async def config(self, broker_name: str) -> dict[str, str]:
        """Return the broker's settings in the form of its properties file."""
        reply = await self._ask(await self._leader(broker_name), GetBrokerConfig())
        return decode_properties_text(body_of(reply))

    @on_io_thread
    async def settings(self, broker_name: str) -> list[SettingView]:
        """Return the broker's settings with their allowed values and whether they can change now.

        Raises DecodeError if the broker is not a Kourou broker: RocketMQ's brokers return values
        only.
        """
        request = GetBrokerConfig(described=True)
        return decode_setting_views(
            body_of(await self._ask(await self._leader(broker_name), request))
        )

    @on_io_thread
    async def update_config(
        self, broker_name: str, settings: Mapping[str, str], *, reason: str = ""
    ) -> None:
        """Change settings of the running broker, all or none; `reason` is recorded in the history.

        Raises Rejected if a setting cannot be changed at run time.
        """
        body = encode_properties_text(settings)
        request = UpdateBrokerConfig(reason=reason)
        await self._ask(await self._leader(broker_name), request, body=body)

    @on_io_thread
    async def runtime(self, broker_name: str) -> dict[str, str]:
        """Return rates, bounds and sizes as texts under RocketMQ's names."""
        reply = await self._ask(await self._leader(broker_name), GetBrokerRuntimeInfo())
        return decode_kv_table(body_of(reply))

    @on_io_thread
    async def wipe_write_perm(self, broker_name: str) -> None:
        """Remove the broker's queues from the routes for sending, at every name server.

        Producers apply the change when they refresh their routes, within 30 s. Consumers are not
        affected. The change lasts until `add_write_perm`, or until the broker unregisters.
        """
        await self._leader(broker_name)
        await self._session.name_servers.send_to_all(WipeWritePermOfBroker(broker_name=broker_name))

    @on_io_thread
    async def add_write_perm(self, broker_name: str) -> None:
        """Undo `wipe_write_perm`."""
        await self._leader(broker_name)
        await self._session.name_servers.send_to_all(AddWritePermOfBroker(broker_name=broker_name))

    @on_io_thread
    async def writable(self, broker_name: str) -> bool | None:
        """Return whether routes offer the broker to producers, or None if that is unknown.

        The permission is read from the route of the topic that has the broker's name, as RocketMQ's
        tools do. The result is None if the broker has no such topic.
        """
        try:
            known = await self._session.routes.refresh(broker_name)
        except TopicNotFound:
            return None
        for data in known.route.queue_datas:
            if data.broker_name == broker_name and not known.borrowed:
                return bool(data.perm & WRITE)
        return None

    @on_io_thread
    async def delete_expired_log(self, broker_name: str) -> None:
        """Delete expired log segments now, at any hour of the day; takes effect within seconds."""
        await self._ask(await self._leader(broker_name), DeleteExpiredCommitLog())

    @on_io_thread
    async def clean_expired_queues(self, broker_name: str) -> None:
        """Delete queue and index files whose entries all refer to deleted parts of the log."""
        await self._ask(await self._leader(broker_name), CleanExpiredConsumeQueue())

    @on_io_thread
    async def clean_unused_topics(self, broker_name: str) -> None:
        """Delete queues that belong to no topic of the broker any more."""
        await self._ask(await self._leader(broker_name), CleanUnusedTopic())

    @on_io_thread
    async def statistics(self, broker_name: str, item: str, key: str) -> BrokerStats:
        """Return sums and rates of the last minute, hour and day for one of RocketMQ's statistics.

        `key` is the topic for `TOPIC_PUT_NUMS` and `TOPIC_PUT_SIZE`, `topic@group` for
        `GROUP_GET_NUMS`, `GROUP_GET_SIZE` and `SNDBCK_PUT_NUMS`, and the cluster's name for
        `BROKER_PUT_NUMS` and `BROKER_GET_NUMS`. Raises Rejected if nothing was counted under that
        key.
        """
        request = ViewBrokerStatsData(stats_name=item, stats_key=key)
        reply = await self._ask(await self._leader(broker_name), request)
        return decode_broker_stats(body_of(reply))


class QuotasApi(EveryBrokerApi):
    """Administration of quotas: `client.admin.quotas`.

    `kind` is user, topic or group. The name `*` is for all that have no quota of their own.
    `reason` of a change is recorded in the brokers' history.
    """

    @on_io_thread
    async def set(
        self,
        kind: str,
        name: str,
        *,
        publish_bytes: int | None = None,
        publish_messages: int | None = None,
        fetch_bytes: int | None = None,
        fetch_messages: int | None = None,
        requests: int | None = None,
        connections: int | None = None,
        topics: int | None = None,
        groups: int | None = None,
        stored_bytes: int | None = None,
        reason: str = "",
    ) -> None:
        """Limit a user, topic or group at every broker, per second; None: not limited.

        `connections` is how many a user may have open at each broker, `topics` and `groups` how
        many topics and consumer groups that it created may exist there. It replaces the quota of
        that name as a whole.
        """
        quota = check_quota(
            Quota(
                kind=quota_kind(kind),
                name=name,
                publish_bytes=publish_bytes,
                publish_messages=publish_messages,
                fetch_bytes=fetch_bytes,
                fetch_messages=fetch_messages,
                requests=requests,
                connections=connections,
                topics=topics,
                groups=groups,
                stored_bytes=stored_bytes,
            )
        )
        limits = {unit.value: limit for unit, limit in quota.limits().items()}
        request = SetQuota(kind=kind, name=name, reason=reason, **limits)
        await self._change(lambda _: request)

    @on_io_thread
    async def remove(self, kind: str, name: str, *, reason: str = "") -> None:
        """Remove a quota at every broker that has it. Raises Rejected if none has it."""
        check_quota_name(quota_kind(kind), name)
        listed = await self._listed()
        having = {
            broker
            for broker, found in listed.items()
            if any((one.kind, one.name) == (kind, name) for one in found)
        }
        if not having and not listed.missing:
            raise Rejected(f"{kind} {name!r} has no quota", hint="kourou quota list")
        request = RemoveQuota(kind=kind, name=name, reason=reason)
        await self._change(
            lambda broker: request if broker in having else None, b"", listed.missing
        )

    @on_io_thread
    async def list(self) -> ByBroker[Quotas]:
        """Return all quotas of each broker, by kind and name."""
        return await self._listed()

    async def _listed(self) -> ByBroker[Quotas]:
        return await self._read(ListQuotas(), lambda reply: decode_quotas(body_of(reply)))


class ClusterApi(AdminApi):
    """Cluster information: `client.admin.cluster`."""

    @on_io_thread
    async def info(self) -> ClusterInfo:
        """Return all clusters with their brokers and addresses, as the name server has them."""
        return await self._cluster()


class Admin:
    """All administration APIs of one client."""

    def __init__(self, session: Session) -> None:
        self.topics = TopicsApi(session)
        self.groups = GroupsApi(session)
        self.offsets = OffsetsApi(session)
        self.members = MembersApi(session)
        self.messages = MessagesApi(session)
        self.reading = Reading(session)
        self.brokers = BrokersApi(session)
        self.cluster = ClusterApi(session)
        self.name_servers = NameServersApi(session)
        self.dead_letters = DeadLettersApi(session)
        self.history = HistoryApi(session)
        self.filters = FiltersApi(session)
        self.replicas = ReplicasApi(session)
        self.quotas = QuotasApi(session)
        self.users = UsersApi(session)
        self.explain = Explain(session)
