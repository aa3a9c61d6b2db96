"""Questions about one message: bounded, side by side, and none of them fails the others.

A broker's leader is asked; where none answers, any member of its log that does, which may be
behind. A question that fails leaves its name and its reason in `missing`.

State: soft, for one explanation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from kourou.client.admin_replicas import LogMember
from kourou.client.connections import body_of, header_of
from kourou.client.explain.facts import Missing
from kourou.client.received import ReceivedMessage, from_records
from kourou.client.session import Session
from kourou.errors import Code, Corrupt, KourouError
from kourou.model.limits import EXPLAIN_QUESTIONS_MAX
from kourou.model.topic import TopicConfig
from kourou.protocol.bodies import decode_topic_configs
from kourou.protocol.history_body import ToldEvent, decode_told_events
from kourou.protocol.messages.history import GetHistory
from kourou.protocol.messages.offsets import QueryConsumerOffset, QueryConsumerOffsetResponse
from kourou.protocol.messages.queries import QueryMessage
from kourou.protocol.messages.topics import GetAllTopicConfig
from kourou.protocol.request import Request
from kourou.transport.zmq_client import Reply

T = TypeVar("T")
A = TypeVar("A")

READER_GROUP = "TOOLS_CONSUMER"
"""RocketMQ's own group for looking at messages: every broker has it."""

QUESTION_TIMEOUT_MS = 3_000
"""Who explains does not wait for a server that is gone."""
COPIES_COUNT = 32
FOR_EVER_MS = 2**62
_NONE = frozenset({int(Code.QUERY_NOT_FOUND)})


@dataclass(slots=True)
class Voice:
    """Who answers for one broker, and the topics it has; `leads`: it is the leader."""

    broker: str
    address: str
    leads: bool
    members: list[LogMember]
    topics: Mapping[str, TopicConfig] = field(default_factory=dict)


class Asking:
    """Asks for one explanation. Used on the I/O thread."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.missing: list[Missing] = []
        self.voices: dict[str, Voice] = {}
        self.away: list[str] = []
        self._room = asyncio.Semaphore(EXPLAIN_QUESTIONS_MAX)

    # -- who --------------------------------------------------------------------------------------

    async def begin(self, members: Iterable[LogMember]) -> None:
        """Choose who answers for each broker, and ask which topics it has."""
        by_name: dict[str, list[LogMember]] = {}
        for one in members:
            by_name.setdefault(one.broker_name, []).append(one)
        for name, known in sorted(by_name.items()):
            voice = voice_of(name, known)
            for one in known:
                if one.error is not None and not _answers(one):
                    self.lack(f"{name} (brokerId {one.registered_id})", one.error)
            if voice is None:
                self.away.append(name)
            else:
                self.voices[name] = voice
        await self.each(self._topics, self.voices.values())

    async def _topics(self, voice: Voice) -> None:
        reply = await self.ask(f"topics of {voice.broker}", voice, GetAllTopicConfig())
        if reply is not None:
            configs, _ = decode_topic_configs(body_of(reply))
            voice.topics = {one.name: one for one in configs}

    def having(self, topic: str) -> list[Voice]:
        """Who has this topic."""
        return [voice for voice in self.voices.values() if topic in voice.topics]

    # -- asking -----------------------------------------------------------------------------------

    def lack(self, what: str, why: object) -> None:
        """A fact could not be had; said once."""
        missing = Missing(what, str(why))
        if missing not in self.missing:
            self.missing.append(missing)

    async def ask(
        self, what: str, voice: Voice, request: Request, *, also: Collection[int] = ()
    ) -> Reply | None:
        """The answer; None if there is none, which is noted under `what`."""
        try:
            return await self.reply(voice.address, request, also=also)
        except KourouError as error:
            self.lack(what, error)
            return None

    async def reply(self, address: str, request: Request, *, also: Collection[int] = ()) -> Reply:
        """The answer, or its error."""
        async with self._room:
            return await self.session.connections.ask(
                address, request, timeout_ms=QUESTION_TIMEOUT_MS, also=also
            )

    async def attempt(self, what: str, question: Awaitable[T]) -> T | None:
        """What comes of somebody else's question; None if it fails, which is noted."""
        try:
            return await question
        except KourouError as error:
            self.lack(what, error)
            return None

    @staticmethod
    async def each(ask: Callable[[A], Awaitable[T]], whom: Iterable[A]) -> list[T]:
        """The same of all at once, in their order."""
        return list(await asyncio.gather(*(ask(one) for one in whom)))

    # -- questions that several have --------------------------------------------------------------

    async def by_key(self, voice: Voice, topic: str, key: str) -> list[ReceivedMessage]:
        """The newest messages of a topic that have this unique or business key."""
        request = QueryMessage(
            topic=topic,
            key=key,
            max_num=COPIES_COUNT,
            begin_timestamp=0,
            end_timestamp=FOR_EVER_MS,
        )
        what = f"messages of {topic} at {voice.broker}"
        reply = await self.ask(what, voice, request, also=_NONE)
        if reply is None or reply.code != Code.SUCCESS:
            return []
        try:
            found = from_records(body_of(reply), voice.broker)
        except Corrupt as error:
            self.lack(what, error)
            return []
        return [one for one in found if one.message_id == key or key in one.keys]

    async def everywhere(self, topics: Iterable[str], key: str) -> list[ReceivedMessage]:
        """The same of several topics, at all brokers that have them."""
        pairs = [(voice, topic) for topic in topics for voice in self.having(topic)]
        found = await self.each(lambda pair: self.by_key(*pair, key), pairs)
        return [one for some in found for one in some]

    async def committed(self, voice: Voice, group: str, topic: str, queue_id: int) -> int | None:
        """A group's offset in a queue; None if it has none, or if nobody says."""
        request = QueryConsumerOffset(consumer_group=group, topic=topic, queue_id=queue_id)
        what = f"progress of {group} in {topic}/{voice.broker}/{queue_id}"
        reply = await self.ask(what, voice, request, also=_NONE)
        if reply is None or reply.code != Code.SUCCESS:
            return None
        return header_of(reply, QueryConsumerOffsetResponse).offset

    async def history(
        self, voice: Voice, aggregate: str, types: list[str], count_max: int
    ) -> list[ToldEvent]:
        """What was decided about something, the newest first."""
        what = f"history of {aggregate} at {voice.broker}"
        request = GetHistory(aggregate=aggregate, types=types, max_count=count_max)
        reply = await self.ask(what, voice, request)
        return [] if reply is None else decode_told_events(body_of(reply))


def voice_of(name: str, members: list[LogMember]) -> Voice | None:
    """The leader if it answers, else whoever has most of the log; None if nobody answers."""
    answering = [one for one in members if _answers(one)]
    if not answering:
        return None
    leading = [one for one in answering if one.told is None or one.told.leads]
    chosen = max(leading or answering, key=_end)
    return Voice(name, chosen.address, bool(leading), members)


def _answers(member: LogMember) -> bool:
    """A RocketMQ broker knows nothing of copies, and answers everything else."""
    if member.error is not None:
        return member.error.wire_code == Code.REQUEST_CODE_NOT_SUPPORTED
    return member.told is not None


def _end(member: LogMember) -> tuple[int, int]:
    return (0, 0) if member.told is None else (member.told.epoch, member.told.end)
