"""What name servers keep for operators: keys and values, order settings, their own settings.

Name servers do not tell each other, so a change goes to each of them; a question to any.
"""

from __future__ import annotations

from collections.abc import Mapping

from kourou.client.admin_desk import AdminDesk
from kourou.client.connections import body_of, header_of
from kourou.client.io_thread import on_io_thread
from kourou.errors import BadRequest, Code, KourouError
from kourou.protocol.bodies import (
    decode_kv_table,
    decode_properties_text,
    decode_topic_list,
    encode_properties_text,
)
from kourou.protocol.messages.namesrv import (
    DeleteKvConfig,
    GetKvConfig,
    GetKvConfigResponse,
    GetKvListByNamespace,
    GetNamesrvConfig,
    GetTopicsByCluster,
    PutKvConfig,
    UpdateNamesrvConfig,
)

ORDER_NAMESPACE = "ORDER_TOPIC_CONFIG"
"""Topic -> `broker:queues;broker:queues`: how RocketMQ's ordered topics name their queues."""

_NONE = frozenset({int(Code.QUERY_NOT_FOUND)})


class NameServers(AdminDesk):
    """`client.admin.name_servers`."""

    @on_io_thread
    async def put(self, namespace: str, key: str, value: str) -> None:
        """Give a key a value, at every name server."""
        request = PutKvConfig(namespace=namespace, key=key, value=value)
        await self._session.name_servers.tell_all(request)

    @on_io_thread
    async def get(self, namespace: str, key: str) -> str | None:
        """The value of a key, or None."""
        request = GetKvConfig(namespace=namespace, key=key)
        reply = await self._session.name_servers.ask(request, also=_NONE)
        if reply.code != Code.SUCCESS:
            return None
        return header_of(reply, GetKvConfigResponse).value

    @on_io_thread
    async def delete(self, namespace: str, key: str) -> None:
        """Remove a key, at every name server; one that is not there is no error."""
        await self._session.name_servers.tell_all(DeleteKvConfig(namespace=namespace, key=key))

    @on_io_thread
    async def list(self, namespace: str) -> dict[str, str]:
        """All keys of a namespace with their values."""
        request = GetKvListByNamespace(namespace=namespace)
        reply = await self._session.name_servers.ask(request, also=_NONE)
        return decode_kv_table(body_of(reply)) if reply.code == Code.SUCCESS else {}

    @on_io_thread
    async def put_order(self, topic: str, queues: Mapping[str, int]) -> None:
        """Which brokers an ordered topic has, with how many queues each."""
        if not queues:
            raise BadRequest(
                "an order setting must name at least one broker", hint="broker-a:4;broker-b:4"
            )
        value = ";".join(f"{name}:{count}" for name, count in queues.items())
        request = PutKvConfig(namespace=ORDER_NAMESPACE, key=topic, value=value)
        await self._session.name_servers.tell_all(request)

    @on_io_thread
    async def settings(self) -> dict[str, dict[str, str]]:
        """Every setting of each name server that answers, by its address."""
        replies = await self._session.name_servers.ask_each(GetNamesrvConfig())
        return {name: decode_properties_text(body_of(reply)) for name, reply in replies.items()}

    @on_io_thread
    async def each(self) -> dict[str, dict[str, str] | KourouError]:
        """Every name server that is known: its settings, or why it does not answer."""
        found = await self._session.name_servers.outcomes(GetNamesrvConfig())
        return {
            name: one if isinstance(one, KourouError) else decode_properties_text(body_of(one))
            for name, one in found.items()
        }

    @on_io_thread
    async def update_settings(self, settings: Mapping[str, str]) -> None:
        """Change settings at every name server; raises for a key that may not be changed so."""
        body = encode_properties_text(settings)
        await self._session.name_servers.tell_all(UpdateNamesrvConfig(), body)

    @on_io_thread
    async def topics_of(self, cluster: str) -> tuple[str, ...]:
        """The topics of one cluster's brokers, sorted."""
        reply = await self._session.name_servers.ask(GetTopicsByCluster(cluster=cluster))
        return tuple(sorted(decode_topic_list(body_of(reply))[0]))
