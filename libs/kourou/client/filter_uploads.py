"""The filters that one consumer brings along, and which brokers have them.

A broker keeps a source that it has already under its version, so uploading again does no harm. What
runs is the group's affair: an operator may have enabled another version, which is said once.

State: soft: what brokers answered. The filters themselves are theirs.
"""

from __future__ import annotations

import asyncio
import getpass
import logging
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from kourou.client.connections import Connections, header_of
from kourou.client.message_filters import Filter
from kourou.client.routes import QueueMap
from kourou.errors import FilterFailed, KourouError, Rejected
from kourou.model.limits import FILTER_AUTHOR_LENGTH_MAX
from kourou.protocol.messages.filter_server import FilterResponse, PutFilter

REFUSED = "refused"
"""The kind of failure of a filter that a broker does not take (kinds: docs/filters.md)."""

_log = logging.getLogger("kourou.client.consume")


@dataclass(frozen=True, slots=True)
class Uploaded:
    """What a broker answered: the version of our source there, and the one that runs."""

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
        """This filter is to be at every broker that is pulled from; it replaces one of its name."""
        known = self._wanted.get(wanted.name)
        if known is not None and known.sha256 != wanted.sha256:
            for key in [key for key in self._uploaded if key[1] == wanted.name]:
                del self._uploaded[key]
        self._wanted[wanted.name] = wanted

    def at(self, broker_name: str, name: str) -> Uploaded | None:
        """What a broker answered; None where nothing was uploaded."""
        return self._uploaded.get((broker_name, name))

    def forget(self, broker_name: str, name: str) -> bool:
        """A filter server says that its broker lacks the filter. True: it is uploaded again."""
        self._uploaded.pop((broker_name, name), None)
        wanted = self._wanted.get(name)
        return wanted is not None and wanted.source is not None

    async def put(self, known: QueueMap, names: Iterable[str]) -> None:
        """Upload filters to all brokers of a route that lack them.

        Raises Rejected with the words of a broker that refuses one. A broker that does not answer
        is asked again before something is pulled through it.
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
                _log.info("group %s: filter upload postponed: %s", self._group, outcome)

    async def ready(self, known: QueueMap, broker_name: str, name: str) -> None:
        """Make sure that a broker has the filter. Raises FilterFailed if it refuses it.

        Raises Unavailable or UnknownOutcome if it does not answer.
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
            return  # stored already; or there is nobody who could take it now
        async with self._locks[broker_name]:
            if (broker_name, name) in self._uploaded:
                return  # by another queue of this broker, meanwhile
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
        self._say(broker_name, name, answer)

    def _say(self, broker_name: str, name: str, answer: FilterResponse) -> None:
        if answer.active == answer.version:
            _log.info(
                "group %s: %s runs version %d of filter %s%s",
                self._group,
                broker_name,
                answer.version,
                name,
                ", which is new" if answer.created else "",
            )
            return
        what = "no version is running, so consumption waits"
        if answer.quarantined is not None:
            what = f"that version is quarantined ({answer.quarantined})"
        elif answer.active is not None:
            what = f"version {answer.active} is running"
        _log.warning(
            "group %s: %s stored filter %s as version %d, but %s; enable it "
            "with: kourou admin filter enable",
            self._group,
            broker_name,
            name,
            answer.version,
            what,
        )


def author(client_id: str) -> str:
    """Who uploads, as it is kept with the version: the user of this process, and the client."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        user = ""
    text = f"{user} {client_id}" if user else client_id
    return "".join(filter(str.isprintable, text))[:FILTER_AUTHOR_LENGTH_MAX]
