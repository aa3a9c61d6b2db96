"""Administration of name servers: key-value pairs, order settings, the servers' own settings.

Name servers do not replicate to each other, so a change is sent to each of them; a query to any.
"""

from __future__ import annotations

from collections.abc import Mapping

from kourou.client.admin.base_api import AdminApi
from kourou.client.session.connections import body_of, header_of
from kourou.client.session.io_thread import on_io_thread
from kourou.errors import BadRequest, Code, KourouError
from kourou.model.names import ORDER_NAMESPACE
from kourou.protocol.bodies.route_bodies import decode_kv_table, decode_topic_list
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
from kourou.protocol.wire.properties_text import decode_properties_text, encode_properties_text

_NONE = frozenset({int(Code.QUERY_NOT_FOUND)})


class NameServersApi(AdminApi):
    """Name server administration: `client.admin.name_servers`."""

    @on_io_thread
    async def put(self, namespace: str, key: str, value: str) -> None:
        """Set the value of a key at every name server."""
        request = PutKvConfig(namespace=namespace, key=key, value=value)
        await self._session.name_servers.send_to_all(request)

    @on_io_thread
    async def get(self, namespace: str, key: str) -> str | None:
        """Return the value of a key, or None."""
        request = GetKvConfig(namespace=namespace, key=key)
        reply = await self._session.name_servers.ask(request, also=_NONE)
        if reply.code != Code.SUCCESS:
            return None
        return header_of(reply, GetKvConfigResponse).value

    @on_io_thread
    async def delete(self, namespace: str, key: str) -> None:
        """Delete a key at every name server; a missing key is not an error."""
        await self._session.name_servers.send_to_all(DeleteKvConfig(namespace=namespace, key=key))

    @on_io_thread
    async def list(self, namespace: str) -> dict[str, str]:
        """Return all keys of a namespace with their values."""
        request = GetKvListByNamespace(namespace=namespace)
        reply = await self._session.name_servers.ask(request, also=_NONE)
        return decode_kv_table(body_of(reply)) if reply.code == Code.SUCCESS else {}

    @on_io_thread
    async def put_order(self, topic: str, queues: Mapping[str, int]) -> None:
        """Set the brokers of an ordered topic, with the number of queues of each."""
        if not queues:
            raise BadRequest(
                "an order setting must name at least one broker", hint="broker-a:4;broker-b:4"
            )
        value = ";".join(f"{name}:{count}" for name, count in queues.items())
        request = PutKvConfig(namespace=ORDER_NAMESPACE, key=topic, value=value)
        await self._session.name_servers.send_to_all(request)

    @on_io_thread
    async def settings(self) -> dict[str, dict[str, str]]:
        """Return every setting of each name server that replies, by its address."""
        replies = await self._session.name_servers.ask_each(GetNamesrvConfig())
        return {name: decode_properties_text(body_of(reply)) for name, reply in replies.items()}

    @on_io_thread
    async def each(self) -> dict[str, dict[str, str] | KourouError]:
        """Return for every known name server its settings, or the error if it does not reply."""
        found = await self._session.name_servers.outcomes(GetNamesrvConfig())
        return {
            name: one if isinstance(one, KourouError) else decode_properties_text(body_of(one))
            for name, one in found.items()
        }

    @on_io_thread
    async def update_settings(self, settings: Mapping[str, str]) -> None:
        """Change settings at every name server; raises an error if one cannot change."""
        body = encode_properties_text(settings)
        await self._session.name_servers.send_to_all(UpdateNamesrvConfig(), body)

    @on_io_thread
    async def topics_of(self, cluster: str) -> tuple[str, ...]:
        """Return the topics of one cluster's brokers, sorted."""
        reply = await self._session.name_servers.ask(GetTopicsByCluster(cluster=cluster))
        return tuple(sorted(decode_topic_list(body_of(reply))[0]))
