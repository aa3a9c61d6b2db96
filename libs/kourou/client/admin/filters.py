"""Administration of Python filters.

Every broker stores the filters of a group and numbers their versions itself, so results are keyed
by broker. A change is sent to the leaders of all brokers, of the given broker or cluster, or of the
brokers that have a given topic.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from kourou.client.admin.base_api import AdminApi
from kourou.client.filters.uploads import author as author_of
from kourou.client.session.connections import body_of, header_of
from kourou.client.session.io_thread import on_io_thread
from kourou.errors import (
    BadRequest,
    Code,
    FilterFailed,
    KourouError,
    Rejected,
    TopicNotFound,
    Unavailable,
)
from kourou.model.filter import FilterAction, FilterPolicy, FilterState, FilterVersion
from kourou.protocol.bodies.filter_bodies import (
    FilterFigures,
    FilterTrial,
    decode_filter_servers,
    decode_filter_statistics,
    decode_filter_trial,
    decode_filters,
)
from kourou.protocol.messages.filter_server import (
    ChangeFilter,
    FilterResponse,
    GetFilters,
    GetFilterStatistics,
    PutFilter,
    TryFilter,
)

_UNKNOWN = (Code.QUERY_NOT_FOUND,)
_NOBODY = "kourou-nobody"
"""The name of a group that has no filters."""


@dataclass(frozen=True, slots=True)
class FilterChangeResult:
    """The state of a filter at one broker after a change.

    `version` is the version that the request named; `active` is the version that runs, or None.
    `created` states whether the upload created a new version. `quarantined` is the reason why
    `version` must not run, or None.
    """

    version: int
    active: int | None
    created: bool = False
    quarantined: str | None = None


class FiltersApi(AdminApi):
    """Filter administration: `client.admin.filters`."""

    # -- query ------------------------------------------------------------------------------------

    @on_io_thread
    async def list(
        self, group: str = "", name: str = "", *, broker: str | None = None
    ) -> dict[str, tuple[FilterState, ...]]:
        """Return filters by broker, without sources: of all groups, one group, or one filter."""
        found: dict[str, tuple[FilterState, ...]] = {}
        request = GetFilters(consumer_group=group, name=name)
        for where, address in (await self._chosen(broker)).items():
            reply = await self._ask(address, request, also=_UNKNOWN)
            found[where] = ()
            if reply.code == Code.SUCCESS:
                found[where] = tuple(decode_filters(body_of(reply)))
        return found

    @on_io_thread
    async def source(
        self, group: str, name: str, version: int | None = None, *, broker: str | None = None
    ) -> FilterVersion:
        """Return a version with its source; without a number the active one, or else the newest.

        The brokers are queried in order until one has the filter. Raises Rejected if none has it.
        """
        failure: KourouError | None = None
        for address in (await self._chosen(broker)).values():
            try:
                return await self._source(address, group, name, version)
            except Rejected as error:
                if error.wire_code != Code.QUERY_NOT_FOUND:
                    raise
                failure = error
        assert failure is not None, "there is a leader, or _chosen raises"
        raise failure

    async def _source(
        self, address: str, group: str, name: str, version: int | None
    ) -> FilterVersion:
        async def look(number: int | None, *, with_source: bool) -> FilterState:
            request = GetFilters(
                consumer_group=group, name=name, version=number, with_source=with_source
            )
            (found,) = decode_filters(body_of(await self._ask(address, request)))
            return found

        if version is None:
            bare = await look(None, with_source=False)
            version = bare.newest if bare.active is None else bare.active
            if version is None:
                raise Rejected(f"filter {name!r} has no version", code=Code.QUERY_NOT_FOUND)
        found = (await look(version, with_source=True)).version(version)
        if found is None or found.source is None:
            raise Rejected(
                f"version {version} of filter {name!r} is not stored", code=Code.QUERY_NOT_FOUND
            )
        return found

    @on_io_thread
    async def servers(
        self, *, topic: str | None = None, broker: str | None = None
    ) -> dict[str, tuple[str, ...]]:
        """Return the addresses of the filter servers that are online, by broker name."""
        found: dict[str, tuple[str, ...]] = {}
        for name, address in (await self._where(topic, broker, None)).items():
            found[name] = await self._servers(name, address, topic)
        return found

    async def _servers(self, name: str, address: str, topic: str | None = None) -> tuple[str, ...]:
        """Return the filter servers of a broker, at addresses that this client can reach.

        Only a name server knows these addresses, because it knows the listener that the client
        connected to. It returns them with the route of any topic of that broker, including the
        topic with the broker's own name. If no route contains any, the list of the broker itself is
        used.
        """
        try:
            known = await self._session.routes.refresh(topic or name)
        except TopicNotFound:
            found: tuple[str, ...] = ()
        else:
            found = known.route.filter_server_table.get(address, ())
        if found:
            return found
        # A group without filters: the reply is short and still contains the filter servers.
        request = GetFilters(consumer_group=_NOBODY)
        return tuple(decode_filter_servers(body_of(await self._ask(address, request))))

    # -- change -----------------------------------------------------------------------------------

    @on_io_thread
    async def put(
        self,
        group: str,
        name: str,
        source: str,
        *,
        note: str = "",
        author: str = "",
        enable: bool = True,
        topic: str | None = None,
        broker: str | None = None,
        cluster: str | None = None,
    ) -> dict[str, FilterChangeResult]:
        """Upload a source; a broker that already has this source keeps its version number.

        With `enable` the version becomes active if it never ran at that broker before and the
        broker allows it. Raises Rejected, with line and reason, if the source is not a valid
        filter.
        """
        body = source.encode(errors="surrogatepass")
        request = PutFilter(
            consumer_group=group,
            name=name,
            sha256=hashlib.sha256(body).hexdigest(),
            author=author or author_of(self._session.client_id),
            note=note,
            enable=enable,
        )
        done: dict[str, FilterChangeResult] = {}
        for where, address in (await self._where(topic, broker, cluster)).items():
            reply = await self._ask(address, request, body=body)
            done[where] = _change(header_of(reply, FilterResponse))
        return done

    @on_io_thread
    async def enable(
        self,
        group: str,
        name: str,
        version: int | None = None,
        *,
        reason: str = "",
        topic: str | None = None,
        broker: str | None = None,
        cluster: str | None = None,
    ) -> dict[str, FilterChangeResult]:
        """Activate a version, without a number the newest; this also ends its quarantine."""
        request = ChangeFilter(
            consumer_group=group,
            name=name,
            action=FilterAction.ENABLE,
            version=version,
            reason=reason,
        )
        return await self._change(request, topic, broker, cluster)

    @on_io_thread
    async def disable(
        self,
        group: str,
        name: str,
        *,
        reason: str = "",
        topic: str | None = None,
        broker: str | None = None,
        cluster: str | None = None,
    ) -> dict[str, FilterChangeResult]:
        """Deactivate the filter; the group waits until a version is enabled."""
        request = ChangeFilter(
            consumer_group=group, name=name, action=FilterAction.DISABLE, reason=reason
        )
        return await self._change(request, topic, broker, cluster)

    @on_io_thread
    async def rollback(
        self,
        group: str,
        name: str,
        *,
        reason: str = "",
        topic: str | None = None,
        broker: str | None = None,
        cluster: str | None = None,
    ) -> dict[str, FilterChangeResult]:
        """Activate the version that ran before the active one."""
        request = ChangeFilter(
            consumer_group=group, name=name, action=FilterAction.ROLLBACK, reason=reason
        )
        return await self._change(request, topic, broker, cluster)

    @on_io_thread
    async def set_policy(
        self,
        group: str,
        name: str,
        policy: FilterPolicy | str,
        *,
        reason: str = "",
        topic: str | None = None,
        broker: str | None = None,
        cluster: str | None = None,
    ) -> dict[str, FilterChangeResult]:
        """Set what happens to messages that the filter cannot evaluate: hold, skip or pass."""
        known = [one.value for one in FilterPolicy]
        if policy not in known:
            raise BadRequest(f"{policy!r} is not a filter policy", hint=", ".join(known))
        request = ChangeFilter(
            consumer_group=group,
            name=name,
            action=FilterAction.POLICY,
            policy=str(policy),
            reason=reason,
        )
        return await self._change(request, topic, broker, cluster)

    @on_io_thread
    async def delete(
        self,
        group: str,
        name: str,
        *,
        reason: str = "",
        topic: str | None = None,
        broker: str | None = None,
        cluster: str | None = None,
    ) -> dict[str, FilterChangeResult]:
        """Delete a filter with all its versions; consumers that name it wait."""
        request = ChangeFilter(
            consumer_group=group, name=name, action=FilterAction.DELETE, reason=reason
        )
        return await self._change(request, topic, broker, cluster)

    async def _change(
        self, request: ChangeFilter, topic: str | None, broker: str | None, cluster: str | None
    ) -> dict[str, FilterChangeResult]:
        """Send the change to the brokers and collect the results of those that know the filter.

        Raises Rejected if no broker knows it.
        """
        done: dict[str, FilterChangeResult] = {}
        unknown: KourouError | None = None
        for where, address in (await self._where(topic, broker, cluster)).items():
            try:
                reply = await self._ask(address, request)
            except Rejected as error:
                if error.wire_code != Code.QUERY_NOT_FOUND:
                    raise
                unknown = error
                continue
            done[where] = _change(header_of(reply, FilterResponse))
        if not done and unknown is not None:
            raise unknown
        return done

    async def _where(
        self, topic: str | None, broker: str | None, cluster: str | None
    ) -> Mapping[str, str]:
        if topic is not None:
            if broker is not None or cluster is not None:
                raise BadRequest("give a topic, a broker or a cluster, but only one of them")
            return await self._leaders_of(topic)
        return await self._chosen(broker, cluster)

    # -- requests to filter servers ---------------------------------------------------------------

    @on_io_thread
    async def try_out(
        self,
        group: str,
        name: str,
        topic: str,
        *,
        source: str = "",
        version: int | None = None,
        count: int = 100,
        broker: str | None = None,
    ) -> dict[str, FilterTrial]:
        """Run a filter on the last `count` messages of a topic at each of its brokers.

        A given `source` is run as it is and not stored. Without `source` a stored version runs,
        without a number the newest. One filter server of every broker of the topic, or of the given
        broker, runs the filter; the results are keyed by its address. Raises FilterFailed if a
        broker has no filter server.
        """
        leaders = await self._leaders_of(topic)
        if broker is not None:
            chosen = await self._chosen(broker)
            leaders = {where: one for where, one in leaders.items() if where in chosen}
            if not leaders:
                raise BadRequest(f"broker {broker!r} does not have topic {topic!r}")
        request = TryFilter(
            consumer_group=group, name=name, version=version, topic=topic, count=count
        )
        found: dict[str, FilterTrial] = {}
        for where, address in leaders.items():
            server, body = await self._tried(where, address, request, source)
            found[server] = decode_filter_trial(body)
        return found

    async def _tried(
        self, where: str, address: str, request: TryFilter, source: str
    ) -> tuple[str, memoryview]:
        """Return the address and the reply of the first filter server of a broker that replies."""
        failure: KourouError = FilterFailed(
            f"{where} has no filter server online", hint="start one: kourou filter-server"
        )
        body = source.encode(errors="surrogatepass")
        for server in await self._servers(where, address, request.topic):
            try:
                return server, body_of(await self._ask(server, request, body=body))
            except FilterFailed:
                raise  # the filter was run: another server would return the same error
            except Unavailable as error:
                failure = error
        raise failure

    @on_io_thread
    async def statistics(
        self,
        group: str = "",
        name: str = "",
        *,
        topic: str | None = None,
        broker: str | None = None,
    ) -> dict[str, tuple[FilterFigures, ...]]:
        """Return the statistics of filters by filter server, counted since that server started.

        A server that does not reply is left out; if none replies, the last error is raised.
        """
        found: dict[str, tuple[FilterFigures, ...]] = {}
        failure: KourouError | None = None
        request = GetFilterStatistics(consumer_group=group, name=name)
        for where, address in (await self._where(topic, broker, None)).items():
            for server in await self._servers(where, address, topic):
                try:
                    reply = await self._ask(server, request)
                except KourouError as error:
                    failure = error
                    continue
                found[server] = tuple(decode_filter_statistics(body_of(reply)))
        if not found and failure is not None:
            raise failure
        return found


def _change(answer: FilterResponse) -> FilterChangeResult:
    return FilterChangeResult(answer.version, answer.active, answer.created, answer.quarantined)
