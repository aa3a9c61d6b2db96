"""Administration from a client: `client.admin.topics.create(...)` and its kin."""

from __future__ import annotations

from collections.abc import Mapping

from kourou.client.admin_dead_letters import DeadLetters
from kourou.client.admin_desk import AdminDesk
from kourou.client.admin_filters import Filters
from kourou.client.admin_groups import Groups, Offsets
from kourou.client.admin_history import History
from kourou.client.admin_members import Members
from kourou.client.admin_messages import Messages
from kourou.client.admin_name_servers import NameServers
from kourou.client.admin_reading import Reading
from kourou.client.admin_replicas import Replicas
from kourou.client.admin_topics import Topics
from kourou.client.connections import body_of
from kourou.client.explain.gather import Explain
from kourou.client.io_thread import on_io_thread
from kourou.client.session import Session
from kourou.errors import BadRequest, TopicNotFound
from kourou.model.permission import WRITE
from kourou.protocol.bodies import (
    BrokerStats,
    ClusterInfo,
    decode_broker_stats,
    decode_kv_table,
    decode_properties_text,
    encode_properties_text,
)
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
from kourou.protocol.settings_body import SettingTold, decode_settings_told


class Brokers(AdminDesk):
    """`client.admin.brokers`; a broker is named by its name, and its leader is asked."""

    async def _leader(self, broker_name: str) -> str:
        leaders = await self._leaders()
        if broker_name not in leaders:
            raise BadRequest(
                f"broker {broker_name!r} is unknown or has no leader",
                hint=f"brokers with a leader: {', '.join(leaders)}",
            )
        return leaders[broker_name]

    @on_io_thread
    async def names(self) -> list[str]:
        """The names of all brokers that have a leader."""
        return sorted(await self._leaders())

    @on_io_thread
    async def config(self, broker_name: str) -> dict[str, str]:
        """The broker's settings, as its properties file would have them."""
        reply = await self._ask(await self._leader(broker_name), GetBrokerConfig())
        return decode_properties_text(body_of(reply))

    @on_io_thread
    async def settings(self, broker_name: str) -> list[SettingTold]:
        """The same, each with what it may be, whether it may be changed now, and why not.

        Raises DecodeError where the broker is of another make, which tells values only.
        """
        request = GetBrokerConfig(described=True)
        return decode_settings_told(
            body_of(await self._ask(await self._leader(broker_name), request))
        )

    @on_io_thread
    async def update_config(
        self, broker_name: str, settings: Mapping[str, str], *, reason: str = ""
    ) -> None:
        """Change settings while the broker runs, all or none; `reason` goes into the history.

        Raises for one that may not be changed so.
        """
        body = encode_properties_text(settings)
        request = UpdateBrokerConfig(reason=reason)
        await self._ask(await self._leader(broker_name), request, body=body)

    @on_io_thread
    async def runtime(self, broker_name: str) -> dict[str, str]:
        """Rates, bounds and sizes, as texts under RocketMQ's names."""
        reply = await self._ask(await self._leader(broker_name), GetBrokerRuntimeInfo())
        return decode_kv_table(body_of(reply))

    @on_io_thread
    async def wipe_write_perm(self, broker_name: str) -> None:
        """Take the broker's queues out of the routes for sending, at every name server (F359).

        Producers know it when they refresh their routes, within 30 s; consumers go on. It holds
        until `add_write_perm` or until the broker is gone.
        """
        await self._leader(broker_name)
        await self._session.name_servers.tell_all(WipeWritePermOfBroker(broker_name=broker_name))

    @on_io_thread
    async def add_write_perm(self, broker_name: str) -> None:
        """Undo `wipe_write_perm`."""
        await self._leader(broker_name)
        await self._session.name_servers.tell_all(AddWritePermOfBroker(broker_name=broker_name))

    @on_io_thread
    async def writable(self, broker_name: str) -> bool | None:
        """Do routes offer the broker to producers? None where no topic of its own tells.

        That is the topic named as the broker, of which RocketMQ's tools make use, too.
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
        """Delete expired log segments now, at whatever hour; done within seconds."""
        await self._ask(await self._leader(broker_name), DeleteExpiredCommitLog())

    @on_io_thread
    async def clean_expired_queues(self, broker_name: str) -> None:
        """Delete files of queues and index that name only what the log no longer has."""
        await self._ask(await self._leader(broker_name), CleanExpiredConsumeQueue())

    @on_io_thread
    async def clean_unused_topics(self, broker_name: str) -> None:
        """Delete queues that no topic of the broker names any more."""
        await self._ask(await self._leader(broker_name), CleanUnusedTopic())

    @on_io_thread
    async def statistics(self, broker_name: str, item: str, key: str) -> BrokerStats:
        """Sums and rates of the last minute, hour and day under RocketMQ's names.

        `TOPIC_PUT_NUMS` and `TOPIC_PUT_SIZE` of a topic, `GROUP_GET_NUMS` and `GROUP_GET_SIZE` of
        `topic@group`, `SNDBCK_PUT_NUMS` likewise, `BROKER_PUT_NUMS` and `BROKER_GET_NUMS` of the
        cluster's name. Raises Rejected for what was never counted.
        """
        request = ViewBrokerStatsData(stats_name=item, stats_key=key)
        reply = await self._ask(await self._leader(broker_name), request)
        return decode_broker_stats(body_of(reply))


class Cluster(AdminDesk):
    """`client.admin.cluster`."""

    @on_io_thread
    async def info(self) -> ClusterInfo:
        """All clusters, their brokers and addresses, as the name server knows them."""
        return await self._cluster()


class Admin:
    """All families of administration of one client."""

    def __init__(self, session: Session) -> None:
        self.topics = Topics(session)
        self.groups = Groups(session)
        self.offsets = Offsets(session)
        self.members = Members(session)
        self.messages = Messages(session)
        self.reading = Reading(session)
        self.brokers = Brokers(session)
        self.cluster = Cluster(session)
        self.name_servers = NameServers(session)
        self.dead_letters = DeadLetters(session)
        self.history = History(session)
        self.filters = Filters(session)
        self.replicas = Replicas(session)
        self.explain = Explain(session)
