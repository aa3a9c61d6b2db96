"""`kourou_sent`: checks what the application under test has sent and what consumers have consumed.

    order = kourou_sent.one("orders", tag="paid", body_type=Order)
    kourou_sent.none("refunds")
    kourou_sent.consumed("orders", group="billing")

The results come from the brokers' stores, up to the position that is visible to consumers. Messages
from before the creation of the fixture, such as those of earlier tests, are ignored. A check that
waits is repeated after each action of a broker, not by a timer; only its timeout (`within_s`) is
measured, in real time.

State: none; brokers have it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypedDict, TypeVar, Unpack

import msgspec

from kourou.client.codecs import Decode, body_decoder, encode_body
from kourou.client.consumer.received import ReceivedMessage, decode_pull
from kourou.engine.view import CoreView
from kourou.errors import KourouError
from kourou.model.limits import PULL_MESSAGES_MAX, PULL_SIZE_BYTES_MAX
from kourou.model.topic import MessageQueue
from kourou.testing.cluster_thread import ClusterThread

WAIT_S = 20.0
SHOWN_MAX = 10
SHOWN_BODY_BYTES = 60
_ANY: Any = msgspec.UNSET

T = TypeVar("T")


class MessageConditions(TypedDict, total=False):
    """Conditions for messages; all that are given must match.

    `body` is compared with the body decoded as `body_type`, or, without a type, with the body that
    a send would encode; `where` is called with the message.
    """

    tag: str
    key: str
    body: Any
    body_type: Any
    properties: Mapping[str, str]
    where: Callable[[ReceivedMessage], bool]


class ObservedCluster(Protocol):
    """The part of a cluster that checks need; used on its thread."""

    def each(self) -> Mapping[str, CoreView]:
        """The state of every broker, by name; raises Unavailable if one is down."""
        ...

    def found(self) -> Mapping[str, Sequence[int]]:
        """The ends of the log that each start of a broker found, by broker name."""
        ...

    async def until(self, satisfied: Callable[[], bool], within_s: float) -> bool:
        """Wait until `satisfied`, which is evaluated after each action of a broker; False after a
        timeout.
        """
        ...


@dataclass(frozen=True, slots=True)
class TopicConditions:
    """Conditions for messages of one topic."""

    topic: str
    which: MessageConditions

    def __post_init__(self) -> None:
        """Reject unknown names, because a misspelt condition would match every message."""
        unknown = sorted(set(self.which) - MessageConditions.__optional_keys__)
        if unknown:
            known = ", ".join(sorted(MessageConditions.__optional_keys__))
            raise TypeError(f"no message is known by {', '.join(unknown)}; known: {known}")

    @property
    def decode(self) -> Decode | None:
        """The decoder of bodies; None leaves them as bytes."""
        kind = self.which.get("body_type")
        return None if kind is None else body_decoder(kind)

    def fits(self, message: ReceivedMessage) -> bool:
        """True if the message matches; a body that is not a valid `body_type` does not match."""
        which = self.which
        if "tag" in which and message.tag != which["tag"]:
            return False
        if "key" in which and which["key"] not in message.keys:
            return False
        theirs = message.properties
        if any(theirs.get(name) != value for name, value in which.get("properties", {}).items()):
            return False
        if not self._body_fits(message):
            return False
        return "where" not in which or bool(which["where"](message))

    def _body_fits(self, message: ReceivedMessage) -> bool:
        wanted = self.which.get("body", _ANY)
        if wanted is _ANY:
            return True
        if self.which.get("body_type") is None:
            return message.raw_body == encode_body(wanted)
        try:
            return bool(message.body == wanted)
        except KourouError:
            return False

    def __str__(self) -> str:
        parts = [f"{name}={value!r}" for name, value in self.which.items()]
        return f"{self.topic!r}" + (f" with {', '.join(parts)}" if parts else "")


class Ledger:
    """Runs checks on the cluster's thread, for messages stored since `begin`."""

    def __init__(self, brokers: ObservedCluster) -> None:
        self._brokers = brokers
        self._since: dict[str, tuple[int, int]] = {}

    async def begin(self) -> None:
        """Ignore all messages that are stored by now."""
        found = self._brokers.found()
        for name, core in self._brokers.each().items():
            self._since[name] = core.store_view.log_range()[1], len(found[name])

    def _start_of(self, name: str) -> int:
        """The position from which on a broker's messages are new.

        If a power loss has shortened the log since `begin`, the messages after its new end are new
        as well.
        """
        position, starts = self._since[name]
        return min([position, *self._brokers.found()[name][starts:]])

    def messages(self, topic: str, decode: Decode | None = None) -> list[ReceivedMessage]:
        """The messages stored in a topic since `begin`, in the order of storage.

        Across brokers that order has a resolution of one millisecond.
        """
        found: list[ReceivedMessage] = []
        for name, core in self._brokers.each().items():
            since = self._start_of(name)
            for queue_id in core.store_view.queue_ids(topic):
                found += _read(core, MessageQueue(topic, name, queue_id), since, decode)
        return sorted(
            found, key=lambda one: (one.store_timestamp, one.queue.broker_name, one.position)
        )

    def _fitting(self, wanted: TopicConditions) -> list[ReceivedMessage]:
        return [one for one in self.messages(wanted.topic, wanted.decode) if wanted.fits(one)]

    async def at_least(
        self, wanted: TopicConditions, count: int, within_s: float
    ) -> list[ReceivedMessage]:
        """Wait for at least `count` messages; raises AssertionError after a timeout."""
        found: list[ReceivedMessage] = []

        def enough() -> bool:
            found[:] = self._fitting(wanted)
            return len(found) >= count

        if not await self._brokers.until(enough, within_s):
            raise AssertionError(
                f"{len(found)} messages in {wanted}, not {count}, after {within_s:g} s"
                + self._shown(wanted.topic)
            )
        return found

    async def exactly(
        self, wanted: TopicConditions, count: int, within_s: float
    ) -> list[ReceivedMessage]:
        """Wait for exactly `count` messages; raises AssertionError after a timeout, or if there are
        more.
        """
        found = await self.at_least(wanted, count, within_s)
        if len(found) > count:
            raise AssertionError(
                f"{len(found)} messages in {wanted}, not {count}" + self._shown(wanted.topic)
            )
        return found

    async def now(self, wanted: TopicConditions) -> list[ReceivedMessage]:
        """The matching messages that are stored now."""
        return self._fitting(wanted)

    async def consumed(self, topic: str, group: str, within_s: float) -> None:
        """Wait until the group has committed all messages; raises AssertionError on timeout."""
        if not await self._brokers.until(lambda: not self._unread(topic, group), within_s):
            lines = "".join(f"\n  {line}" for line in self._unread(topic, group))
            raise AssertionError(
                f"group {group!r} has not consumed {topic!r} within {within_s:g} s:{lines}"
            )

    def _unread(self, topic: str, group: str) -> list[str]:
        lines: list[str] = []
        for name, core in self._brokers.each().items():
            for queue_id in core.store_view.queue_ids(topic):
                low, high = core.store_view.queue_range(topic, queue_id) or (0, 0)
                committed = core.commits.offset(group, topic, queue_id)
                if high > low and (committed is None or committed < high):
                    stands = "nothing" if committed is None else f"up to {committed}"
                    queue = MessageQueue(topic, name, queue_id)
                    lines.append(f"{queue!s}: committed {stands} of {low} to {high}")
        return lines

    def _shown(self, topic: str) -> str:
        there = self.messages(topic)
        lines = [f"\nthe topic has {len(there)} messages of this test:"]
        for one in there[:SHOWN_MAX]:
            body = one.raw_body[:SHOWN_BODY_BYTES]
            lines.append(f"  {one.queue!s}@{one.offset} tag={one.tag!r} keys={one.keys!r}")
            lines[-1] += f" body={body!r}" + ("..." if len(one.raw_body) > len(body) else "")
        if len(there) > SHOWN_MAX:
            lines.append(f"  and {len(there) - SHOWN_MAX} more")
        return "\n".join(lines)


def _read(
    core: CoreView, queue: MessageQueue, since: int, decode: Decode | None
) -> list[ReceivedMessage]:
    """Read one queue from position `since` up to the committed position."""
    view, topic, queue_id = core.store_view, queue.topic, queue.queue_id
    offset = view.offset_at(topic, queue_id, since)
    found: list[ReceivedMessage] = []
    while True:
        low, high = view.queue_range(topic, queue_id) or (0, 0)
        offset = max(offset, low)
        if offset >= high:
            return found
        read = view.read_queue(
            topic,
            queue_id,
            offset,
            max_messages=PULL_MESSAGES_MAX,
            max_bytes=PULL_SIZE_BYTES_MAX,
            codes=None,
            below=core.committed,
        )
        if read.next_offset <= offset:  # later messages are not committed yet
            return found
        # Copied, because the views may become invalid before the test reads its messages.
        body = bytes(read.run)
        found += decode_pull(
            body, queue, from_offset=offset, next_offset=read.next_offset, decode=decode
        )
        offset = read.next_offset


class Sent:
    """The checks, for tests that are plain functions."""

    def __init__(self, thread: ClusterThread, ledger: Ledger) -> None:
        self._thread = thread
        self._ledger = ledger
        thread.run(ledger.begin())

    def _answer(self, question: Coroutine[Any, Any, T]) -> T:
        """Run a check; a failure is reported at the test's line, without internal frames."""
        __tracebackhide__ = True
        try:
            return self._thread.run(question)
        except AssertionError as error:
            raise error.with_traceback(None) from None

    def one(
        self, topic: str, *, within_s: float = WAIT_S, **which: Unpack[MessageConditions]
    ) -> ReceivedMessage:
        """Wait for exactly one matching message; raises AssertionError for none or several."""
        __tracebackhide__ = True
        return self._answer(self._ledger.exactly(TopicConditions(topic, which), 1, within_s))[0]

    def all(
        self,
        topic: str,
        count: int | None = None,
        *,
        within_s: float = WAIT_S,
        **which: Unpack[MessageConditions],
    ) -> list[ReceivedMessage]:
        """All matching messages that are stored now; with `count`, wait for exactly so many."""
        __tracebackhide__ = True
        wanted = TopicConditions(topic, which)
        if count is None:
            return self._answer(self._ledger.now(wanted))
        return self._answer(self._ledger.exactly(wanted, count, within_s))

    def none(self, topic: str, **which: Unpack[MessageConditions]) -> None:
        """Check that no message matches now; call it when everything that might send has ended."""
        __tracebackhide__ = True
        self._answer(self._ledger.exactly(TopicConditions(topic, which), 0, 0))

    def eventually(
        self,
        topic: str,
        count: int = 1,
        *,
        within_s: float = WAIT_S,
        **which: Unpack[MessageConditions],
    ) -> list[ReceivedMessage]:
        """Wait until at least `count` messages match; returns all of them."""
        __tracebackhide__ = True
        return self._answer(self._ledger.at_least(TopicConditions(topic, which), count, within_s))

    def consumed(self, topic: str, group: str, *, within_s: float = WAIT_S) -> None:
        """Wait until `group` has committed all messages of the topic."""
        __tracebackhide__ = True
        self._answer(self._ledger.consumed(topic, group, within_s))


class AsyncSent:
    """The checks, for async tests; the test's event loop keeps running during a check."""

    def __init__(self, thread: ClusterThread, ledger: Ledger) -> None:
        self._thread = thread
        self._ledger = ledger
        thread.run(ledger.begin())

    async def _answer(self, question: Coroutine[Any, Any, T]) -> T:
        """See Sent._answer."""
        __tracebackhide__ = True
        try:
            return await self._thread.run_async(question)
        except AssertionError as error:
            raise error.with_traceback(None) from None

    async def one(
        self, topic: str, *, within_s: float = WAIT_S, **which: Unpack[MessageConditions]
    ) -> ReceivedMessage:
        """See Sent.one."""
        __tracebackhide__ = True
        work = self._ledger.exactly(TopicConditions(topic, which), 1, within_s)
        return (await self._answer(work))[0]

    async def all(
        self,
        topic: str,
        count: int | None = None,
        *,
        within_s: float = WAIT_S,
        **which: Unpack[MessageConditions],
    ) -> list[ReceivedMessage]:
        """See Sent.all."""
        __tracebackhide__ = True
        wanted = TopicConditions(topic, which)
        if count is None:
            return await self._answer(self._ledger.now(wanted))
        return await self._answer(self._ledger.exactly(wanted, count, within_s))

    async def none(self, topic: str, **which: Unpack[MessageConditions]) -> None:
        """See Sent.none."""
        __tracebackhide__ = True
        await self._answer(self._ledger.exactly(TopicConditions(topic, which), 0, 0))

    async def eventually(
        self,
        topic: str,
        count: int = 1,
        *,
        within_s: float = WAIT_S,
        **which: Unpack[MessageConditions],
    ) -> list[ReceivedMessage]:
        """See Sent.eventually."""
        __tracebackhide__ = True
        work = self._ledger.at_least(TopicConditions(topic, which), count, within_s)
        return await self._answer(work)

    async def consumed(self, topic: str, group: str, *, within_s: float = WAIT_S) -> None:
        """See Sent.consumed."""
        __tracebackhide__ = True
        await self._answer(self._ledger.consumed(topic, group, within_s))
