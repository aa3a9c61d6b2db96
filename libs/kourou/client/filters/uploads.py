"""The filters that one consumer uploads, and which brokers have them.

Uploading again is harmless: a broker keeps the version number of a source that it already has. The
group decides which version runs; if an operator enabled another version, this is logged once.

State: soft: the brokers' replies. The brokers store the filters.
"""

from __future__ import annotations

import asyncio
import getpass
import logging
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from kourou.client.filters.python_filter import Filter
from kourou.client.session.connections import Connections, header_of
from kourou.client.session.route_table import QueueMap
from kourou.errors import FilterFailed, KourouError, Rejected
from kourou.model.limits import FILTER_AUTHOR_LENGTH_MAX
from kourou.protocol.messages.filter_server import FilterResponse, PutFilter

REFUSED = "refused"
"""The failure kind if a broker refuses a filter (kinds: docs/filters.md)."""

_log = logging.getLogger("kourou.client.consume")


@dataclass(frozen=True, slots=True)
class Uploaded:
    """A broker's reply: the version of this source there, and the version that is active."""

    version: int
    active: int | None


class FilterUploads:
    """The filters of one consumer. Used on the I/O thread."""

    def __init__(
        self, group: str, client_id: str, connections: Connections, timeout_ms: int
    ) -> None:
        self._group = group
        self._author = author(client_id)
        self._connections = connections
        self._timeout_ms = timeout_ms
        self._wanted: dict[str, Filter] = {}
        self._uploaded: dict[tuple[str, str], Uploaded] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def want(self, wanted: Filter) -> None:
        """Upload this filter to every broker that is pulled from; replaces one of the same name."""
        known = self._wanted.get(wanted.name)
        if known is not None and known.sha256 != wanted.sha256:
            for key in [key for key in self._uploaded if key[1] == wanted.name]:
                del self._uploaded[key]
        self._wanted[wanted.name] = wanted

    def at(self, broker_name: str, name: str) -> Uploaded | None:
        """Return a broker's reply; None if nothing was uploaded."""
        return self._uploaded.get((broker_name, name))

    def forget(self, broker_name: str, name: str) -> bool:
        """Record that a broker lacks the filter; returns whether it can be uploaded again."""
        self._uploaded.pop((broker_name, name), None)
        wanted = self._wanted.get(name)
        return wanted is not None and wanted.source is not None

    async def put(self, known: QueueMap, names: Iterable[str]) -> None:
        """Upload filters to all brokers of a route that lack them.

        Raises Rejected with a broker's reason if it refuses one. If a broker does not reply, the
        upload is repeated before the next pull from that broker.
        """
        names = list(names)
        tasks = [
            asyncio.ensure_future(self._put(known, broker_name, name))
            for broker_name in known.brokers
            for name in names
        ]
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, Rejected) or (
                isinstance(outcome, BaseException) and not isinstance(outcome, KourouError)
            ):
                raise outcome
            if isinstance(outcome, KourouError):
                _log.info(
                    "filter-upload-postponed: group %(group)s: filter upload postponed: %(error)s",
                    {"group": self._group, "error": outcome},
                )

    async def ready(self, known: QueueMap, broker_name: str, name: str) -> None:
        """Make sure that a broker has the filter.

        Raises FilterFailed if the broker refuses it, Unavailable or UnknownOutcome if the broker
        does not reply.
        """
        if (broker_name, name) in self._uploaded:
            return
        try:
            await self._put(known, broker_name, name)
        except Rejected as error:
            raise FilterFailed(
                f"broker {broker_name} rejected filter {name}: {error.message}",
                hint=error.hint,
                kind=REFUSED,
            ) from error

    async def _put(self, known: QueueMap, broker_name: str, name: str) -> None:
        wanted = self._wanted.get(name)
        address = known.leader_address(broker_name)
        if wanted is None or wanted.source is None or address is None:
            return  # stored already, or no leader can receive it now
        async with self._locks[broker_name]:
            if (broker_name, name) in self._uploaded:
                return  # another queue of this broker uploaded it in the meantime
            reply = await self._connections.ask(
                address,
                PutFilter(
                    consumer_group=self._group,
                    name=name,
                    sha256=wanted.sha256,
                    author=self._author,
                    note=wanted.note,
                ),
                body=wanted.source.encode(),
                timeout_ms=self._timeout_ms,
            )
        answer = header_of(reply, FilterResponse)
        self._uploaded[broker_name, name] = Uploaded(answer.version, answer.active)
        self._log_upload(broker_name, name, answer)

    def _log_upload(self, broker_name: str, name: str, answer: FilterResponse) -> None:
        if answer.active == answer.version and answer.quarantined is None:
            _log.info(
                "filter-version-active: group %(group)s: %(broker)s runs version %(version)d of "
                "filter %(filter)s (%(origin)s)",
                {
                    "group": self._group,
                    "broker": broker_name,
                    "version": answer.version,
                    "filter": name,
                    "origin": "new" if answer.created else "stored before",
                },
            )
            return
        what = "no version is running, so consumption waits"
        if answer.quarantined is not None:
            what = f"that version is quarantined ({answer.quarantined})"
        elif answer.active is not None:
            what = f"version {answer.active} is running"
        _log.warning(
            "filter-version-inactive: group %(group)s: %(broker)s stored filter %(filter)s as "
            "version %(version)d, but %(reason)s; enable it with: kourou admin filter enable",
            {
                "group": self._group,
                "broker": broker_name,
                "filter": name,
                "version": answer.version,
                "reason": what,
            },
        )


def author(client_id: str) -> str:
    """Return the author that is stored with the version: this process's user, and the client ID."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        user = ""
    text = f"{user} {client_id}" if user else client_id
    return "".join(filter(str.isprintable, text))[:FILTER_AUTHOR_LENGTH_MAX]
