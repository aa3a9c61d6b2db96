"""Trace spans for the replication of a traced send, below its `store` span.

    ship       from the append until its bytes were sent to a replica
    copy       from then until that replica reports that it has written them
    confirm    from the append until a majority of a Raft group has them on disk
    replicate  at the replica: from the arrival of a chunk with a traced message until it is in the
               replica's log; below the message's own span, whose context the message carries

A reply states how many replicas had the message by then (`kourou.replication.copies`, including
this broker), so a trace shows what the acknowledgement was based on. Nothing is tracked before the
first chunk was sent to a replica, and nothing while no traced send is in progress.

State: soft, bounded: the newest traced sends that not all replicas have.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from kourou.model.limits import COPIED_SPANS_MAX, REPLICATED_SPANS_MAX
from kourou.protocol.messages.replication import ChunkAck, LogChunk
from kourou.telemetry import span_names as names
from kourou.telemetry.tracing import Tracing
from kourou.telemetry.tracing_context import contexts_among

Value = str | int | bool
Buffer = bytes | bytearray | memoryview


@dataclass(slots=True)
class Watched:
    """One traced append that ends at `end`.

    `shipped`: replica -> time of shipping; `had`: the replicas that have it.
    """

    end: int
    context: bytes
    since_ns: int
    shipped: dict[Hashable, int] = field(default_factory=dict)
    had: set[Hashable] = field(default_factory=set)
    confirmed: bool = False
    answered: bool = False

    @property
    def copies(self) -> int:
        """Number of replicas that have it, including the one that appended it."""
        return 1 + len(self.had)


class CopySpans:
    """The replication spans of one broker; used on its loop.

    The target of a chunk identifies a replica.
    """

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing
        self._watched: deque[Watched] = deque()
        self._copied = False

    def now_ns(self) -> int:
        """Return wall time in ns, as spans use it."""
        return self._tracing.now_ns()

    def __len__(self) -> int:
        return len(self._watched)

    def appended(self, end: int, context: bytes) -> Watched | None:
        """Track a traced append up to `end`.

        Returns None if no replica copies the log.
        """
        if not self._copied:
            return None
        self._forget()
        if len(self._watched) >= COPIED_SPANS_MAX:
            self._watched.popleft()
        one = Watched(end, context, self._tracing.now_ns())
        self._watched.append(one)
        return one

    def shipped(self, to: Hashable, chunk: LogChunk) -> None:
        """Record that a chunk, possibly an empty one, is sent to a replica."""
        self._copied = True
        if not self._watched or chunk.end == chunk.position:
            return
        now_ns = self._tracing.now_ns()
        for one in self._watched:
            if one.end > chunk.end:
                break
            if one.end > chunk.position and to not in one.shipped:
                one.shipped[to] = now_ns
                self._tell(names.SHIP, one, one.since_ns, now_ns, {names.MEMBER: str(to)})

    def acknowledged(self, by: Hashable, ack: ChunkAck) -> None:
        """Record a replica's acknowledgement."""
        if not self._watched or not ack.accepted:
            return
        now_ns = self._tracing.now_ns()
        for one in self._watched:
            if one.end > ack.written:
                break
            if by in one.shipped and by not in one.had:
                one.had.add(by)
                on_disk = ack.flushed >= one.end
                about: dict[str, Value] = {names.MEMBER: ack.member, names.ON_DISK: on_disk}
                self._tell(names.COPY, one, one.shipped[by], now_ns, about)
        self._forget()

    def confirmed(self, position: int) -> None:
        """Record that a majority has everything below `position` on disk."""
        if not self._watched:
            return
        now_ns = self._tracing.now_ns()
        for one in self._watched:
            if one.end > position:
                break
            if not one.confirmed:
                one.confirmed = True
                self._tell(names.CONFIRM, one, one.since_ns, now_ns, {names.COPIES: one.copies})

    def abandon(self) -> None:
        """Stop tracking: this broker no longer leads, and the next leader may truncate the log."""
        self._watched.clear()

    def replicated(self, data: Buffer, end: int, began_ns: int) -> None:
        """Record a span for each traced message in a leader's bytes, written up to `end`."""
        contexts = contexts_among(data, REPLICATED_SPANS_MAX)
        if not contexts:
            return
        about: dict[str, Value] = {names.POSITION: end, names.SIZE_BYTES: len(data)}
        now_ns = self._tracing.now_ns()
        for context in contexts:
            self._tracing.finished(names.REPLICATE, context, began_ns, now_ns, about)

    def _tell(
        self,
        name: str,
        one: Watched,
        start_ns: int,
        end_ns: int,
        about: Mapping[str, Value],
    ) -> None:
        where = {names.POSITION: one.end, **about}
        self._tracing.finished(name, one.context, start_ns, end_ns, where)

    def _forget(self) -> None:
        """Drop the oldest appends that all their replicas have."""
        watched = self._watched
        while watched and watched[0].answered and watched[0].shipped:
            if not watched[0].shipped.keys() <= watched[0].had:
                return
            watched.popleft()
