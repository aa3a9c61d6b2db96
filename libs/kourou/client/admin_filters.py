"""Filters in Python, as an operator handles them.

Every broker keeps a group's filters itself, and numbers their versions itself; so answers come by
broker. A change goes to the leaders that are named, or to all, or to those of a topic.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from kourou.client.admin_desk import AdminDesk
from kourou.client.connections import body_of, header_of
from kourou.client.filter_uploads import author as author_of
from kourou.client.io_thread import on_io_thread
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
from kourou.protocol.filter_bodies import (
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
"""A group without filters."""


@dataclass(frozen=True, slots=True)
class FilterChange:
    """What became of a filter at one broker.

    `version` is the one that was asked about, `active` the one that runs (None: none), `created`
    whether the upload is new there. `quarantined` says why `version` must not run, if so.
    """

    version: int
    active: int | None
    created: bool = False
    quarantined: str | None = None


class Filters(AdminDesk):
    """`client.admin.filters`."""

    # -- looking ----------------------------------------------------------------------------------

    @on_io_thread
    async def list(
        self, group: str = "", name: str = "", *, broker: str | None = None
    ) -> dict[str, tuple[FilterState, ...]]:
        """The filters of all groups, of one, or one filter: by broker, without their sources."""
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
        """A version with its source; the active one without a number, or else the newest.

        The first broker that has it is asked. Raises Rejected where none has.
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
        """The addresses of the filter servers, by broker name; those that are there now."""
        found: dict[str, tuple[str, ...]] = {}
        for name, address in (await self._where(topic, broker, None)).items():
            found[name] = await self._servers(name, address, topic)
        return found

    async def _servers(self, name: str, address: str, topic: str | None = None) -> tuple[str, ...]:
        """The filter servers of a broker, at addresses that can be dialled from here.

        Only a name server knows which those are, for it knows the listener that it was asked at; it
        tells them with the route of any topic of that broker, as of the one with its own name. The
        broker tells what it knows itself, which is better than nothing where no route tells any.
        """
        try:
            known = await self._session.routes.refresh(topic or name)
        except TopicNotFound:
            found: tuple[str, ...] = ()
        else:
            found = known.route.filter_server_table.get(address, ())
        if found:
            return found
        # A group that has none: the answer is short, and tells the filter servers all the same.
        request = GetFilters(consumer_group=_NOBODY)
        return tuple(decode_filter_servers(body_of(await self._ask(address, request))))

    # -- deciding ---------------------------------------------------------------------------------

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
    ) -> dict[str, FilterChange]:
        """Upload a source; what a broker has already keeps its version there.

        With `enable` it runs from now on if it never ran there before and the broker allows it.
        Raises BadRequest with line and reason for what is no filter.
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
        done: dict[str, FilterChange] = {}
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
    ) -> dict[str, FilterChange]:
        """Let a version run from now on, the newest without a number; out of quarantine, too."""
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
    ) -> dict[str, FilterChange]:
        """Let none run: the group waits until one is enabled."""
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
    ) -> dict[str, FilterChange]:
        """Let the version run again that ran before the one that runs."""
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
    ) -> dict[str, FilterChange]:
        """Say what becomes of messages that the filter cannot judge: hold, skip or pass."""
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
    ) -> dict[str, FilterChange]:
        """Delete a filter with its versions; consumers that name it wait."""
        request = ChangeFilter(
            consumer_group=group, name=name, action=FilterAction.DELETE, reason=reason
        )
        return await self._change(request, topic, broker, cluster)

    async def _change(
        self, request: ChangeFilter, topic: str | None, broker: str | None, cluster: str | None
    ) -> dict[str, FilterChange]:
        """The change at all brokers that know the filter; Rejected if none does."""
        done: dict[str, FilterChange] = {}
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

    # -- asking filter servers --------------------------------------------------------------------

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
        """What a filter says of the last `count` messages of a topic at each of its brokers.

        `source` is tried as it is and kept nowhere; without one it is a stored version, the newest
        without a number. One filter server of every broker of the topic is asked, or of one; the
        answers come by its address. Raises FilterFailed where a broker has no filter server.
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
        """The answer of the first filter server of a broker that gives one, and its address."""
        failure: KourouError = FilterFailed(
            f"{where} has no filter server online", hint="start one: kourou filter-server"
        )
        body = source.encode(errors="surrogatepass")
        for server in await self._servers(where, address, request.topic):
            try:
                return server, body_of(await self._ask(server, request, body=body))
            except FilterFailed:
                raise  # it was tried: another server would say the same
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
        """What filters have done in each filter server since it started, by its address.

        A server that does not answer is left out; if none answers, its error is raised.
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


def _change(answer: FilterResponse) -> FilterChange:
    return FilterChange(answer.version, answer.active, answer.created, answer.quarantined)
