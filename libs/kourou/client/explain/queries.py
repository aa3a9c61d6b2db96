"""Requests about one message: limited in number and time, concurrent, independent of each other.

Requests go to a broker's leader. If it does not reply, they go to a replica that does, which may
lag behind. A request that fails adds its name and its reason to `missing`.

State: soft, for one explanation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from kourou.client.admin.replicas import LogMember
from kourou.client.consumer.received import ReceivedMessage, from_records
from kourou.client.explain.facts import MissingFact
from kourou.client.session.client_session import Session
from kourou.client.session.connections import body_of, header_of
from kourou.errors import Code, Corrupt, KourouError
from kourou.model.limits import EXPLAIN_QUESTIONS_MAX
from kourou.model.topic import TopicConfig
from kourou.model.units import NEVER_MS
from kourou.protocol.bodies.broker_bodies import EventView, decode_event_views
from kourou.protocol.bodies.config_bodies import decode_topic_configs
from kourou.protocol.messages.broker_admin import GetAllTopicConfig, GetHistory
from kourou.protocol.messages.pulls import (
    QueryConsumerOffset,
    QueryConsumerOffsetResponse,
    QueryMessage,
)
from kourou.protocol.request import Request
from kourou.transport.zmq_client import WireReply

T = TypeVar("T")
A = TypeVar("A")


QUESTION_TIMEOUT_MS = 3_000
"""A short timeout, so that an explanation does not wait for a server that is offline."""
COPIES_COUNT = 32
_NONE = frozenset({int(Code.QUERY_NOT_FOUND)})


@dataclass(slots=True)
class Responder:
    """The replica that replies for one broker, and its topics; `leads`: it is the leader."""

    broker: str
    address: str
    leads: bool
    members: list[LogMember]
    topics: Mapping[str, TopicConfig] = field(default_factory=dict)


class Queries:
    """Sends the requests for one explanation. Used on the I/O thread."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.missing: list[MissingFact] = []
        self.responders: dict[str, Responder] = {}
        self.unreachable: list[str] = []
        self._room = asyncio.Semaphore(EXPLAIN_QUESTIONS_MAX)

    # -- brokers ----------------------------------------------------------------------------------

    async def start(self, members: Iterable[LogMember]) -> None:
        """Choose the replica that replies for each broker, and request its topics."""
        by_name: dict[str, list[LogMember]] = {}
        for one in members:
            by_name.setdefault(one.broker_name, []).append(one)
        for name, known in sorted(by_name.items()):
            responder = responder_of(name, known)
            for one in known:
                if one.error is not None and not _answers(one):
                    self.add_missing(f"{name} (brokerId {one.registered_id})", one.error)
            if responder is None:
                self.unreachable.append(name)
            else:
                self.responders[name] = responder
        await self.each(self._topics, self.responders.values())

    async def _topics(self, responder: Responder) -> None:
        reply = await self.ask(f"topics of {responder.broker}", responder, GetAllTopicConfig())
        if reply is not None:
            configs, _ = decode_topic_configs(body_of(reply))
            responder.topics = {one.name: one for one in configs}

    def having(self, topic: str) -> list[Responder]:
        """Return the replicas of the brokers that have this topic."""
        return [responder for responder in self.responders.values() if topic in responder.topics]

    # -- requests ---------------------------------------------------------------------------------

    def add_missing(self, what: str, why: object) -> None:
        """Record missing information, each entry once."""
        missing = MissingFact(what, str(why))
        if missing not in self.missing:
            self.missing.append(missing)

    async def ask(
        self, what: str, responder: Responder, request: Request, *, also: Collection[int] = ()
    ) -> WireReply | None:
        """Return the reply, or None after an error, which is recorded under `what`."""
        try:
            return await self.reply(responder.address, request, also=also)
        except KourouError as error:
            self.add_missing(what, error)
            return None

    async def reply(
        self, address: str, request: Request, *, also: Collection[int] = ()
    ) -> WireReply:
        """Return the reply, or raise its error."""
        async with self._room:
            return await self.session.connections.ask(
                address, request, timeout_ms=QUESTION_TIMEOUT_MS, also=also
            )

    async def attempt(self, what: str, question: Awaitable[T]) -> T | None:
        """Return the result of another request, or None after an error, which is recorded."""
        try:
            return await question
        except KourouError as error:
            self.add_missing(what, error)
            return None

    @staticmethod
    async def each(ask: Callable[[A], Awaitable[T]], whom: Iterable[A]) -> list[T]:
        """Send one request for each item concurrently; returns the results in the same order."""
        return list(await asyncio.gather(*(ask(one) for one in whom)))

    # -- shared requests --------------------------------------------------------------------------

    async def by_key(self, responder: Responder, topic: str, key: str) -> list[ReceivedMessage]:
        """Return the newest messages of a topic that have this unique or business key."""
        request = QueryMessage(
            topic=topic,
            key=key,
            max_num=COPIES_COUNT,
            begin_timestamp=0,
            end_timestamp=NEVER_MS,
        )
        what = f"messages of {topic} at {responder.broker}"
        reply = await self.ask(what, responder, request, also=_NONE)
        if reply is None or reply.code != Code.SUCCESS:
            return []
        try:
            found = from_records(body_of(reply), responder.broker)
        except Corrupt as error:
            self.add_missing(what, error)
            return []
        return [one for one in found if one.message_id == key or key in one.keys]

    async def everywhere(self, topics: Iterable[str], key: str) -> list[ReceivedMessage]:
        """Return such messages of several topics, from all brokers that have them."""
        pairs = [(responder, topic) for topic in topics for responder in self.having(topic)]
        found = await self.each(lambda pair: self.by_key(*pair, key), pairs)
        return [one for some in found for one in some]

    async def committed(
        self, responder: Responder, group: str, topic: str, queue_id: int
    ) -> int | None:
        """Return a group's committed offset in a queue; None if there is none or it is unknown."""
        request = QueryConsumerOffset(consumer_group=group, topic=topic, queue_id=queue_id)
        what = f"progress of {group} in {topic}/{responder.broker}/{queue_id}"
        reply = await self.ask(what, responder, request, also=_NONE)
        if reply is None or reply.code != Code.SUCCESS:
            return None
        return header_of(reply, QueryConsumerOffsetResponse).offset

    async def history(
        self, responder: Responder, aggregate: str, types: list[str], count_max: int
    ) -> list[EventView]:
        """Return the control events of an aggregate, newest first."""
        what = f"history of {aggregate} at {responder.broker}"
        request = GetHistory(aggregate=aggregate, types=types, max_count=count_max)
        reply = await self.ask(what, responder, request)
        return [] if reply is None else decode_event_views(body_of(reply))


def responder_of(name: str, members: list[LogMember]) -> Responder | None:
    """Return the leader if it replies, else the most up-to-date replica; None if none replies."""
    answering = [one for one in members if _answers(one)]
    if not answering:
        return None
    leading = [one for one in answering if one.view is None or one.view.leads]
    chosen = max(leading or answering, key=_end)
    return Responder(name, chosen.address, bool(leading), members)


def _answers(member: LogMember) -> bool:
    """Return whether a replica replies. RocketMQ's brokers reply, but do not know `GetReplicas`."""
    if member.error is not None:
        return member.error.wire_code == Code.REQUEST_CODE_NOT_SUPPORTED
    return member.view is not None


def _end(member: LogMember) -> tuple[int, int]:
    return (0, 0) if member.view is None else (member.view.epoch, member.view.end)
