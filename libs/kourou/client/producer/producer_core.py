"""The shared part of a producer, for both APIs: targets, unique keys, checks.

One core serves all threads and loops of a process. What they share is read-mostly: routes are
replaced and never changed; targets are rebuilt after a route was refreshed; counters may race (then
two messages go to the same queue, and nothing is lost). Each thread has its own generator of unique
keys.

State: soft.
"""

from __future__ import annotations

import asyncio
import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from kourou.client.codecs import encode_body
from kourou.client.producer.drafts import Drafting, delay_property, joined_keys
from kourou.client.producer.pending_sends import (
    Gathering,
    LoopPort,
    PendingBatch,
    PendingSend,
    Port,
    SendTarget,
    Slot,
    Terms,
)
from kourou.client.producer.selectors import (
    RoundRobin,
    Selector,
    chosen_queue,
    queue_of_key,
    require_queues,
)
from kourou.client.producer.sender import ProducerSender, target_to
from kourou.client.requests.replies import Replier
from kourou.client.session.client_session import Session
from kourou.client.session.connections import Pauses
from kourou.client.session.io_thread import ThreadQueue
from kourou.client.session.route_table import QueueMap
from kourou.client.settings.client_settings import ProducerSettings
from kourou.client.transactions.checks import TransactionChecks
from kourou.client.transactions.ends import TransactionEnds
from kourou.errors import BadRequest, NoPermission, TopicNotFound, Unavailable
from kourou.model.limits import DEADLINE_MS_MAX
from kourou.model.message import Message
from kourou.model.names import NOT_FOR_CLIENTS, check_topic
from kourou.model.topic import MessageQueue
from kourou.protocol.record.layout import encode_host
from kourou.protocol.record.message_id import UniqKeyGenerator

if TYPE_CHECKING:
    from kourou.telemetry.tracing import TracedSpan


class Choice(NamedTuple):
    """How the queue is selected; at most one of order_key, queue and selector is given."""

    order_key: str | None = None
    queue: MessageQueue | None = None
    selector: Selector | None = None
    argument: Any = None

    @property
    def pinned(self) -> bool:
        """Whether the message must stay in its queue."""
        return self.order_key is not None or self.queue is not None or self.selector is not None


ROUND_ROBIN = Choice()


def choice_of_named(choice: Choice, message_id: str) -> Choice:
    """Return the choice for a message with a given ID: the same queue for each repetition.

    Raises BadRequest if the ID is invalid.
    """
    if not _NAME.fullmatch(message_id):
        raise BadRequest(
            f"{message_id[:80]!r} is not a message ID",
            hint="use 32 hexadecimal digits in upper case",
        )
    return choice if choice.pinned else Choice(order_key=message_id)


_NAME = re.compile(r"[0-9A-F]{32}")

_TERMS_MAX = 1_024
_SPECIAL_TARGETS_MAX = 4_096
"""The limits of the caches for sends with their own timeouts, which an application may compute."""


class TopicTargets:
    """The targets of one topic, for one route."""

    __slots__ = ("_usual", "map", "name", "robin", "special", "targets", "topic")

    def __init__(self, known: QueueMap, usual: Terms, robin: RoundRobin) -> None:
        self.map = known
        self.topic = known.topic
        self.name = known.topic.encode()
        self.robin = robin
        found = (target_to(known, queue, self.name, usual, led=False) for queue in known.sendable)
        every: list[SendTarget] = [target for target in found if target is not None]
        self._usual = {target.queue: target for target in every}
        # If no queue has a leader, messages wait for one (kourou.client.producer.leader_wait).
        self.targets: list[SendTarget] = [target for target in every if target.address] or every
        self.special: dict[tuple[int, MessageQueue], SendTarget] = {}

    def target(self, queue: MessageQueue, terms: Terms) -> SendTarget:
        """Return the target to one queue with other terms than the default."""
        key = (id(terms), queue)
        target = self.special.get(key)
        if target is None or target.terms is not terms:
            usual = self._usual.get(queue)
            if usual is None:
                raise Unavailable(f"broker {queue.broker_name} is offline")
            target = usual.under(terms)
            if len(self.special) >= _SPECIAL_TARGETS_MAX:
                self.special.clear()
            if not terms.batch:  # the terms of a batch are used once
                self.special[key] = target
        return target


class ProducerCore:
    """One producer of one group."""

    def __init__(self, settings: ProducerSettings, session: Session, client_ip: str) -> None:
        self.settings = settings
        self.io = session.io
        self.sender = ProducerSender(settings, session)
        self.routes = session.routes
        self.clock = session.clock
        self.outgoing: ThreadQueue[list[PendingSend]] = ThreadQueue(
            session.io.loop, self.sender.take
        )
        self.ends = TransactionEnds(session)
        self.checks = TransactionChecks(settings, session, self.find)
        self._session = session
        self._tracing = session.tracing
        self._joined = False
        chance = session.chance
        self._chance = chance
        self._born_host = encode_host((client_ip, 0))
        self._drafting = Drafting(settings, self._born_host)
        self.usual = Terms(settings.send_timeout_ms, settings.retry_times_when_send_failed + 1)
        """The terms of a send without options."""

        self._terms: dict[tuple[int, bool, bool, bool, bool], Terms] = {}
        self._topics: dict[str, TopicTargets] = {}
        self._keys = _ThreadKeys(self._born_host[:-4], count(chance.getrandbits(32)))
        self.requests = session.requests
        self.replier = Replier(
            session, settings.producer_group, settings.send_timeout_ms, lambda: self._keys.generator
        )

    def port(self, loop: asyncio.AbstractEventLoop) -> LoopPort:
        """Return a port for the messages of this loop and their outcomes."""
        here = loop is self.io.loop
        return LoopPort(
            loop,
            self._send_now if here else self.outgoing.put,
            here=here,
            round_trip_ms=lambda: self.sender.round_trip_ms,
            count_max=self.settings.pending_count_max,
            size_bytes_max=self.settings.pending_size_bytes_max,
        )

    def _send_now(self, messages: list[PendingSend]) -> None:
        self.sender.take([messages])

    async def close(self) -> None:
        """Wait for outcomes and leave the group; runs on the I/O thread."""
        await self.checks.close(self.settings.send_timeout_ms)
        await self.ends.close(self.settings.send_timeout_ms)
        await self.sender.close(self.settings.send_timeout_ms)
        if self._joined:
            self._joined = False
            await self._session.heartbeats.leave(producer_group=self.settings.producer_group)

    # -- topics -----------------------------------------------------------------------------------

    def known(self, topic: str) -> TopicTargets | None:
        """Return the topic's targets if its route is known; rebuilt if the route was refreshed."""
        targets = self._topics.get(topic)
        known = self.routes.known(topic)
        if targets is not None and targets.map is known:
            return targets
        if known is None or not self._joined:  # brokers must receive the group in a heartbeat first
            return None
        return self._learn(known)

    async def find(self, topic: str) -> TopicTargets:
        """Return the topic's targets, with the route from a name server; runs on the I/O thread.

        Raises TopicNotFound; if a broker has no leader at the moment, only after the send timeout.
        """
        if not self._joined:
            self._joined = True
            self._session.heartbeats.add_producer_group(self.settings.producer_group)
        check_topic(topic)
        if topic in NOT_FOR_CLIENTS:
            raise NoPermission(f"topic {topic} is a system topic of the broker and not writable")
        pauses = Pauses(self._chance)
        until_ms = self.clock.monotonic_ms() + self.settings.send_timeout_ms
        while True:
            try:
                return self._learn(await self._route(topic))
            except TopicNotFound:
                pause_ms = pauses.next_ms()
                late = self.clock.monotonic_ms() + pause_ms >= until_ms
                # Leaders register topics: while one is missing, an unknown topic may belong to its
                # broker.
                if late or not await self._session.leader_missing():
                    raise
            await asyncio.sleep(pause_ms / 1000)

    async def _route(self, topic: str) -> QueueMap:
        settings = self.settings
        return await self.routes.find(
            topic,
            default_topic=settings.create_topic_key,
            default_queue_nums=settings.default_topic_queue_nums,
        )

    def _learn(self, known: QueueMap) -> TopicTargets:
        former = self._topics.get(known.topic)
        robin = RoundRobin(self._chance.getrandbits(31)) if former is None else former.robin
        targets = self._topics[known.topic] = TopicTargets(known, self.usual, robin)
        return targets

    # -- messages ---------------------------------------------------------------------------------

    def terms(
        self,
        *,
        timeout_ms: int | None,
        wait: bool,
        oneway: bool = False,
        pinned: bool = False,
        repeated: bool = False,
    ) -> Terms:
        """Return the terms of a send; the same object for the same values."""
        if timeout_ms is None:
            if wait and not oneway and not pinned:
                return self.usual
            timeout_ms = self.usual.timeout_ms
        key = (timeout_ms, wait, oneway, pinned, repeated)
        terms = self._terms.get(key)
        if terms is None:
            _check_timeout(timeout_ms)
            attempts = 1 if oneway else self.usual.attempts
            if len(self._terms) >= _TERMS_MAX:
                self._terms.clear()
            terms = self._terms[key] = Terms(
                timeout_ms, attempts, wait, oneway, pinned, repeated=repeated
            )
        return terms

    def batch_terms(
        self, *, timeout_ms: int | None, pinned: bool, wait: bool, repeated: bool = False
    ) -> Terms:
        """Return new terms, so that a batch is alone in its frame."""
        usual = self.usual
        if timeout_ms is not None:
            _check_timeout(timeout_ms)
        return Terms(
            usual.timeout_ms if timeout_ms is None else timeout_ms,
            usual.attempts,
            wait,
            pinned=pinned,
            batch=True,
            repeated=repeated,
        )

    def usual_target(self, topic: TopicTargets, terms: Terms, message: Message) -> SendTarget:
        """Return the next target in turn."""
        if terms is self.usual:
            return self._next(topic)
        return self.target(topic, terms, ROUND_ROBIN, message)

    def target(
        self, topic: TopicTargets, terms: Terms, choice: Choice, message: Message
    ) -> SendTarget:
        """Return the target that `choice` selects; `message` is the argument of a selector."""
        queues = topic.map.sendable
        require_queues(queues, topic.topic)
        if choice.order_key is not None:
            queue = queue_of_key(queues, choice.order_key)
        elif choice.selector is not None:
            queue = chosen_queue(queues, choice.selector, message, choice.argument)
        elif choice.queue is not None:
            queue = choice.queue
            if queue not in queues:
                raise BadRequest(f"{queue!s} is not a writable queue of topic {topic.topic}")
        else:
            queue = self._next(topic).queue
        return topic.target(queue, terms)

    def _next(self, topic: TopicTargets) -> SendTarget:
        targets = topic.targets
        if not targets:
            require_queues((), topic.topic)
        faults = self.sender.faults
        if faults is None:
            return topic.robin.next(targets)
        return topic.robin.next_available(targets, faults, self.clock.monotonic_ms())

    def pending_send(
        self,
        topic: TopicTargets,
        port: Port,
        waiter: Any,
        body: Any,
        tag: str | None,
        keys: str | Iterable[str],
        properties: Mapping[str, str] | None,
        flag: int,
        terms: Terms,
        choice: Choice,
        own: Mapping[str, str] | None = None,
        unique_key: str | None = None,
    ) -> PendingSend:
        """Return one message, checked, encoded and assigned to a target.

        `own` are properties that the client sets; `unique_key` is an ID that the sender chose.
        Raises Rejected or Unavailable.
        """
        if type(body) is not bytes:
            body = encode_body(body)
        keys = joined_keys(keys) if keys else ""
        if terms is self.usual:
            target = self._next(topic)
        else:
            message = Message(
                topic.topic, body, tag, tuple(keys.split()), dict(properties or {}), flag
            )
            target = self.target(topic, terms, choice, message)
        clock = self.clock
        now_ms = clock.now_ms()
        if unique_key is None:
            unique_key = self._keys.generator.next(now_ms)
        span = None
        if self._tracing is not None:
            span, properties = self._tracing.sending(
                target.queue, unique_key, tag, keys, properties, own
            )
        draft = self._drafting.draft(
            target.place, body, unique_key, now_ms, tag, keys, properties, flag, own
        )
        deadline_ms = clock.monotonic_ms() + terms.timeout_ms
        return PendingSend(draft, unique_key, target, port, waiter, deadline_ms, keys, None, span)

    def pending_sends(
        self,
        port: Port,
        gathering: Gathering,
        messages: Sequence[Message],
        targets: Sequence[SendTarget],
    ) -> list[PendingSend]:
        """Do the same as `pending_send` for several messages, each with its target."""
        tracing, drafting = self._tracing, self._drafting
        now_ms, monotonic_ms = self.clock.now_ms(), self.clock.monotonic_ms()
        unique_keys = self._keys.generator.next_many(len(messages), now_ms)
        pending: list[PendingSend] = []
        for index, (message, target, unique_key) in enumerate(
            zip(messages, targets, unique_keys, strict=True)
        ):
            body, tag = message.body, message.tag
            if type(body) is not bytes:
                body = encode_body(body)
            keys = joined_keys(message.keys) if message.keys else ""
            properties: Mapping[str, str] | None = message.properties
            own = None
            if message.delay_level:
                own = delay_property(self.settings.delay_levels_ms, message.delay_level)
            span = None
            if tracing is not None:
                span, properties = tracing.sending(
                    target.queue, unique_key, tag, keys, properties, own
                )
            draft = drafting.draft(
                target.place, body, unique_key, now_ms, tag, keys, properties, message.flag, own
            )
            deadline_ms = monotonic_ms + target.terms.timeout_ms
            waiter = Slot(gathering, index)
            pending.append(
                PendingSend(draft, unique_key, target, port, waiter, deadline_ms, keys, None, span)
            )
        return pending

    def pending_batch(
        self,
        port: Port,
        waiter: Any,
        messages: Sequence[Message],
        target: SendTarget,
        unique_keys: Sequence[str] = (),
    ) -> PendingBatch:
        """Do the same for a batch: its messages have one target and one outcome."""
        tracing = self._tracing
        now_ms = self.clock.now_ms()
        unique_keys = unique_keys or self._keys.generator.next_many(len(messages), now_ms)
        all_keys = [joined_keys(message.keys) if message.keys else "" for message in messages]
        spans: list[TracedSpan | None] = [None] * len(messages)
        properties: list[Mapping[str, str] | None] = [message.properties for message in messages]
        if tracing is not None:
            for index, message in enumerate(messages):
                spans[index], properties[index] = tracing.sending(
                    target.queue,
                    unique_keys[index],
                    message.tag,
                    all_keys[index],
                    message.properties,
                    None,
                )
        draft, sizes = self._drafting.drafts(
            target.place, messages, unique_keys, now_ms, all_keys, properties
        )
        return PendingBatch(
            draft,
            unique_keys[0],
            target,
            port,
            waiter,
            self.clock.monotonic_ms() + target.terms.timeout_ms,
            all_keys[0],
            sizes=sizes,
            unique_keys=unique_keys,
            all_keys=all_keys,
            spans=spans,
        )


class _ThreadKeys(threading.local):
    """The generator of unique keys of the thread that reads it."""

    def __init__(self, ip: bytes, numbers: Iterator[int]) -> None:
        self.generator = UniqKeyGenerator(ip, os.getpid(), next(numbers))


def _check_timeout(timeout_ms: Any) -> None:
    """Raise BadRequest if this is not a valid time in whole milliseconds."""
    if isinstance(timeout_ms, bool) or not isinstance(timeout_ms, int):
        raise BadRequest(f"timeout_ms is {timeout_ms!r}; it must be a whole number of milliseconds")
    if not 0 < timeout_ms <= DEADLINE_MS_MAX:
        raise BadRequest(f"timeout_ms is {timeout_ms}; it must be between 1 and {DEADLINE_MS_MAX}")
