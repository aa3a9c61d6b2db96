"""A client within a Spark process, and the brokers' information about queues.

Spark's Python workers fork, and sockets do not survive that. So all objects here are created on
first use, and none is pickled.

State: soft: an open client, if any.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Self, TypeVar

from kourou.client.client_core import ClientCore
from kourou.client.session.client_session import Session
from kourou.client.session.connections import body_of
from kourou.client.settings.client_settings import ClientSettings
from kourou.errors import KourouError, TopicNotFound, Unavailable, UnknownOutcome
from kourou.model.topic import MessageQueue
from kourou.protocol.bodies.route_bodies import decode_topic_list
from kourou.protocol.bodies.statistics_bodies import decode_topic_stats
from kourou.protocol.messages.broker_admin import GetTopicStatsInfo
from kourou.protocol.messages.namesrv import (
    GetAllTopicListFromNamesrv,
    GetSystemTopicListFromNamesrv,
)
from kourou_spark_etl.source.offsets import OffsetSpan

QUESTIONS_MAX = 64
"""The maximum number of concurrent requests; a thousand topics need a few rounds."""

_REPLIES = "_REPLY_TOPIC"
"""The suffix after a cluster's name of the topic for replies."""

_log = logging.getLogger("kourou.spark")
T = TypeVar("T")


class OpenClient:
    """A client of the cluster; a context manager, for use in the process that opened it."""

    def __init__(self, name_servers: str) -> None:
        self._core = ClientCore(name_servers, ClientSettings())
        self._io = self._core.acquire()
        try:
            self._io.submit(self._core.open()).result()
        except BaseException:
            self._core.release()
            raise

    @property
    def session(self) -> Session:
        """The session; used on the client's own thread."""
        return self._core.session

    def submit(self, work: Coroutine[Any, Any, T]) -> Callable[[], T]:
        """Start work on the client's thread. Returns a function that waits for the result."""
        return self._io.submit(work).result

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run work on the client's thread and wait for it."""
        return self.submit(work)()

    def close(self) -> None:
        """Close every connection."""
        try:
            if self._core.is_open:
                self._io.submit(self._core.close()).result()
        finally:
            self._core.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class NetworkFacts:
    """The information of a cluster's brokers; see kourou_spark_etl.source.ranges.OffsetFacts."""

    def __init__(self, name_servers: str, group: str = "") -> None:
        self._name_servers = name_servers
        self._group = group
        self._client: OpenClient | None = None

    def _open(self) -> OpenClient:
        if self._client is None:
            self._client = OpenClient(self._name_servers)
        return self._client

    def topics(self) -> list[str]:
        """The names of all topics of the name servers, except for those that brokers create."""
        return self._open().run(self._topics())

    async def _topics(self) -> list[str]:
        ask = self._open().session.name_servers.ask
        own, _ = decode_topic_list(body_of(await ask(GetSystemTopicListFromNamesrv())))
        every, _ = decode_topic_list(body_of(await ask(GetAllTopicListFromNamesrv())))
        made = {*own, *(f"{name}{_REPLIES}" for name in own)}
        return sorted(set(every) - made)

    def spans(self, topics: Sequence[str], *, all_of: bool) -> dict[MessageQueue, OffsetSpan]:
        """The offset ranges of every readable queue of these topics."""
        return self._open().run(self._spans(topics, all_of=all_of))

    async def _spans(
        self, topics: Sequence[str], *, all_of: bool
    ) -> dict[MessageQueue, OffsetSpan]:
        turns = asyncio.Semaphore(QUESTIONS_MAX)

        async def one(topic: str) -> dict[MessageQueue, OffsetSpan]:
            async with turns:
                return await self._spans_of(topic, all_of=all_of)

        found: dict[MessageQueue, OffsetSpan] = {}
        for spans in await asyncio.gather(*(one(topic) for topic in topics)):
            found.update(spans)
        return found

    async def _spans_of(self, topic: str, *, all_of: bool) -> dict[MessageQueue, OffsetSpan]:
        session = self._open().session
        try:
            known = await session.routes.refresh(topic)
        except TopicNotFound:
            if all_of:
                raise
            _log.warning(
                "topic-unknown: topic %(topic)s is unknown at the name servers", {"topic": topic}
            )
            return {}
        except (Unavailable, UnknownOutcome) as error:
            last = session.routes.known(topic)
            if all_of or last is None:
                raise
            _log.warning(
                "route-kept: no name server responds; using the known route: %(error)s",
                {"error": error},
            )
            known = last
        found: dict[MessageQueue, OffsetSpan] = {}
        answered = False
        failure: KourouError | None = None
        for broker in known.brokers:
            queues = [queue for queue in known.readable if queue.broker_name == broker]
            address = known.member_address(broker, 0)
            if address is None or not queues:
                continue
            try:
                reply = await session.connections.ask(
                    address,
                    GetTopicStatsInfo(topic=topic),
                    timeout_ms=session.settings.request_timeout_ms,
                )
            except (Unavailable, UnknownOutcome, TopicNotFound) as error:
                if all_of:
                    raise
                _log.warning(
                    "broker-offsets-missing: broker %(broker)s did not return the offsets of topic "
                    "%(topic)s: %(error)s",
                    {"broker": broker, "topic": topic, "error": error},
                )
                failure = error
                continue
            answered = True
            bounds = decode_topic_stats(body_of(reply))
            for queue in queues:
                if queue in bounds:
                    found[queue] = OffsetSpan(bounds[queue].min_offset, bounds[queue].max_offset)
        if failure is not None and not answered:
            raise failure
        return found

    def offset_by_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first offset stored at or after a time."""
        session = self._open().session
        return self._open().run(session.facts.offset_by_time(queue, timestamp_ms))

    def commit(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Commit the group's offsets at the brokers. Raises KourouError if one rejects it."""
        if self._group and offsets:
            self._open().run(self._commit(offsets))

    async def _commit(self, offsets: Mapping[MessageQueue, int]) -> None:
        facts = self._open().session.facts
        outcomes = await asyncio.gather(
            *(facts.commit(self._group, queue, offset) for queue, offset in offsets.items()),
            return_exceptions=True,
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    def close(self) -> None:
        """Close every connection."""
        client, self._client = self._client, None
        if client is not None:
            client.close()
