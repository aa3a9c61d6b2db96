"""Trace spans of a broker for traced requests, below those of its clients.

    store {topic}    a send, from its arrival to its reply; linked to the other traced messages
      append         the system call that wrote the batch
      wait           from then to the reply, if that waits for the disk or for a replica
      dispatch       the projection into queues and index; may end after the reply
      flush          the fdatasync that covers it; may end long after the reply
      ship           from the append until its bytes were sent to a replica
      copy           from then until that replica reports that it has written them
      confirm        from the append until a majority of a Raft group has them on disk
    replicate        at the replica: from the arrival of a chunk with a traced message until it is
                     in the replica's log; below the message's own span
    pull {topic}     a pull, from its arrival to its reply
      hold           from its first evaluation to its reply, if it was parked
    {request}        any other request that came with a sampled context

Only requests with a sampled context are traced; a broker starts no traces. A broker without tracing
has no object of this module.

State: soft, bounded: open spans, and appends that are not dispatched or flushed yet. Requests above
the limits are not traced, but counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kourou.broker.storage.effect_executor import EffectExecutor
from kourou.engine.effects import Append, CopyChunk, Effect
from kourou.errors import Code
from kourou.model.limits import COPIED_SPANS_MAX, REPLICATED_SPANS_MAX, SEND_CONTEXTS_MAX
from kourou.protocol.messages.pulls import PullMessage, PullResponse
from kourou.protocol.messages.replication import ChunkAck, LogChunk
from kourou.protocol.messages.sends import SendMessage, SendRecords, SendRecordsResponse
from kourou.protocol.request import Request
from kourou.runtime import Notify, Peer, Received, Reply, ReplyTo
from kourou.telemetry import span_names as names
from kourou.telemetry.metrics import Family, Labels
from kourou.telemetry.tracing import SpanKind, TracedSpan, Tracing, current_context
from kourou.telemetry.tracing_context import CONTEXT_BYTES, contexts_among, is_sampled
from kourou.telemetry.tracing_setup import SpanExport

Buffer = bytes | bytearray | memoryview


OPEN_SPANS_MAX = 4_096
PARTS_MAX = 4_096

_WELL = frozenset(
    {
        Code.SUCCESS,
        Code.FLUSH_DISK_TIMEOUT,
        Code.FLUSH_SLAVE_TIMEOUT,
        Code.SLAVE_NOT_AVAILABLE,
        Code.PULL_NOT_FOUND,
        Code.PULL_RETRY_IMMEDIATELY,
        Code.PULL_OFFSET_MOVED,
    }
)
"""Replies that are not errors."""

Value = str | int | bool
_Key = tuple[int, int]


@dataclass(slots=True)
class _Open:
    """An open request; `waits_ns`: since when it waits, 0 if it does not."""

    span: TracedSpan
    waiting: str
    waits_ns: int = 0
    watched: Watched | None = None


class BrokerSpans:
    """The spans of one broker; used on its loop, except `flushed`."""

    def __init__(self, export: SpanExport) -> None:
        self._export = export
        self._tracing = export.tracing
        self._now_ns = export.tracing.now_ns
        self._open: dict[_Key, _Open] = {}
        self._undispatched: deque[tuple[int, bytes]] = deque()
        self._unflushed: deque[tuple[int, bytes]] = deque()
        self._refused = 0
        self.copies = CopySpans(export.tracing)

    def now_ns(self) -> int:
        """Return wall time in ns, as spans use it."""
        return self._now_ns()

    # -- requests ---------------------------------------------------------------------------------

    def handle(self, received: list[Received], handle: Callable[[list[Received]], None]) -> None:
        """Start spans for arrived requests, then call `handle`, which handles what it can."""
        opened = [key for one in received if one.to.traced and (key := self._arrived(one))]
        if self.copies:
            for one in received:
                if type(one.request) is ChunkAck:
                    self.copies.acknowledged(one.to.peer, one.request)
        handle(received)
        for key in opened:
            still = self._open.get(key)
            if still is not None:
                still.waits_ns = self._now_ns()

    def _arrived(self, received: Received) -> _Key | None:
        if len(self._open) >= OPEN_SPANS_MAX:
            self._refused += 1
            return None
        request = received.request
        name, about = _about(request)
        about[names.SYSTEM] = names.SYSTEM_VALUE
        span = self._tracing.start(
            name, SpanKind.SERVER, received.trace, about, links=list(_contexts(request))
        )
        if span is None:
            return None
        key = _key(received.to)
        waiting = names.HOLD if isinstance(request, PullMessage) else names.WAIT
        self._open[key] = _Open(span, waiting)
        return key

    def answered(self, reply: Reply) -> None:
        """End the span of a request that got its reply."""
        opened = self._open.pop(_key(reply.to), None)
        if opened is None:
            return
        span, header = opened.span, reply.header
        if opened.waits_ns:
            now_ns = self._now_ns()
            self._tracing.finished(opened.waiting, span.context, opened.waits_ns, now_ns)
        if opened.watched is not None:
            opened.watched.answered = True
            span.set({names.COPIES: opened.watched.copies})
        code = int(reply.code)
        if isinstance(header, SendRecordsResponse):
            code = code or next((target for target in header.target_codes if target), 0)
        elif isinstance(header, PullResponse):
            span.set({names.SIZE_BYTES: sum(map(len, reply.body))})
        span.set({names.RESPONSE_CODE: code})
        if code in _WELL:
            span.end()
        else:
            span.end(error_type=_code_name(code), error=reply.remark)

    def refused(self, to: ReplyTo, code: int, remark: str) -> None:
        """Record a request that was not admitted, and its reply."""
        if to.traced:
            self.answered(Reply(to, code, remark))

    def disconnected(self, peer: Peer) -> None:
        """End the spans of a lost connection's requests."""
        for key in [key for key in self._open if key[0] == peer.id]:
            self._open.pop(key).span.end(error_type="disconnected")

    # -- the log ----------------------------------------------------------------------------------

    def context(self, to: ReplyTo) -> bytes:
        """Return the context of an open request; empty if it is not traced."""
        opened = self._open.get(_key(to))
        return b"" if opened is None else opened.span.context

    def appended(self, effect: Append, context: bytes, began_ns: int) -> None:
        """Record that a traced request's records were written."""
        about: dict[str, Value] = {
            names.POSITION: effect.pieces[0][0],
            names.SIZE_BYTES: sum(len(data) for _, data in effect.pieces),
        }
        self._tracing.finished(names.APPEND, context, began_ns, self._now_ns(), about)
        opened = None if effect.to is None else self._open.get(_key(effect.to))
        if opened is not None:
            opened.watched = self.copies.appended(effect.end, context)
        for waiting in (self._undispatched, self._unflushed):
            if len(waiting) < PARTS_MAX:
                waiting.append((effect.end, context))
            else:
                self._refused += 1

    def dispatched(self, began_ns: int, behind_bytes: int) -> None:
        """Record that all appends but the last `behind_bytes` are in the queues."""
        if behind_bytes or not self._undispatched:
            return
        now_ns = self._now_ns()
        while self._undispatched:
            _, context = self._undispatched.popleft()
            self._tracing.finished(names.DISPATCH, context, began_ns, now_ns)

    def flushed(self, began_ns: int, position: int) -> None:
        """Record that everything below `position` is on disk. Called on the flush thread.

        Only that thread takes from the queue, only the loop adds to it.
        """
        waiting, now_ns = self._unflushed, self._now_ns()
        while waiting and waiting[0][0] <= position:
            _, context = waiting.popleft()
            self._tracing.finished(
                names.FLUSH, context, began_ns, now_ns, {names.POSITION: position}
            )

    # -- lifecycle --------------------------------------------------------------------------------

    def close(self) -> None:
        """Export the queued spans, with a short time limit; call it in a thread."""
        self._export.close()

    def families(self, base: Labels) -> Iterator[Family]:
        """Return the span counts as metrics."""
        return self._export.counts.families(base, too_many_open=self._refused)


def _key(to: ReplyTo) -> _Key:
    return to.peer.id, to.correlation


def _about(request: Request) -> tuple[str, dict[str, Value]]:
    """Return a span's name, and its attributes of the request."""
    if isinstance(request, SendRecords):
        topic = request.targets[0].topic if request.targets else ""
        about: dict[str, Value] = {
            names.OPERATION_NAME: names.STORE,
            names.DESTINATION: topic,
            names.BATCH_COUNT: len(request.sizes) // 4,
        }
        if request.attempt > 1:
            about[names.ATTEMPT] = request.attempt
        return names.span_name(names.STORE, topic), about
    if isinstance(request, SendMessage):
        return names.span_name(names.STORE, request.topic), {
            names.OPERATION_NAME: names.STORE,
            names.DESTINATION: request.topic,
        }
    if isinstance(request, PullMessage):
        return names.span_name(names.PULL, request.topic), {
            names.OPERATION_NAME: names.PULL,
            names.DESTINATION: request.topic,
            names.PARTITION: str(request.queue_id),
            names.GROUP: request.consumer_group,
            names.OFFSET: request.queue_offset,
        }
    kind = type(request).__name__
    return kind, {names.OPERATION_NAME: kind}


def _contexts(request: Request) -> Iterator[bytes]:
    """Return the contexts of traced messages in addition to the one in the frame's prefix.

    A malformed list counts as empty.
    """
    if not isinstance(request, SendRecords) or len(request.contexts) % CONTEXT_BYTES:
        return
    end = min(len(request.contexts), SEND_CONTEXTS_MAX * CONTEXT_BYTES)
    for at in range(0, end, CONTEXT_BYTES):
        context = request.contexts[at : at + CONTEXT_BYTES]
        if is_sampled(context):
            yield context


def _code_name(code: int) -> str:
    try:
        return Code(code).name
    except ValueError:
        return str(code)


# -- replication -----------------------------------------------------------------------------------


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

    The target of a chunk identifies a replica. A reply states how many replicas had the message by
    then (`kourou.replication.copies`, including this broker), so a trace shows what the
    acknowledgement was based on. Nothing is tracked before the first chunk was sent to a replica,
    and nothing while no traced send is in progress. Only the newest traced sends are kept.
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
                self._finish(names.SHIP, one, one.since_ns, now_ns, {names.MEMBER: str(to)})

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
                self._finish(names.COPY, one, one.shipped[by], now_ns, about)
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
                self._finish(names.CONFIRM, one, one.since_ns, now_ns, {names.COPIES: one.copies})

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

    def _finish(
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


# -- the executor ----------------------------------------------------------------------------------


class TracedExecutor(EffectExecutor):
    """An effect executor that reports to `spans`; otherwise as EffectExecutor."""

    def __init__(self, spans: BrokerSpans, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._spans = spans

    def performers(self) -> dict[type[Effect], Callable[[Any], None]]:
        """Return the executor for each type of effect."""
        plain = super().performers()
        self._notify = plain[Notify]
        self._copy_chunk = plain[CopyChunk]
        return {
            **plain,
            Append: self._traced_append,
            Reply: self._traced_reply,
            Notify: self._traced_notify,
            CopyChunk: self._traced_copy,
        }

    def _traced_append(self, effect: Append) -> None:
        context = b"" if effect.to is None else self._spans.context(effect.to)
        if not context:
            self._append(effect)
            return
        began_ns = self._spans.now_ns()
        with current_context(context):
            self._append(effect)
        self._spans.appended(effect, context, began_ns)

    def _traced_reply(self, effect: Reply) -> None:
        self._reply(effect)
        if effect.to.traced:
            self._spans.answered(effect)

    def _traced_notify(self, effect: Notify) -> None:
        self._notify(effect)
        if type(effect.request) is LogChunk:
            self._spans.copies.shipped(effect.peer, effect.request)

    def _traced_copy(self, effect: CopyChunk) -> None:
        began_ns = self._spans.now_ns()
        self._copy_chunk(effect)
        if self._store.end >= effect.end:
            self._spans.copies.replicated(effect.data, effect.end, began_ns)

    def dispatch(self) -> None:
        """Project what was appended since the last call, and report it to the core."""
        began_ns = self._spans.now_ns()
        super().dispatch()
        self._spans.dispatched(began_ns, self._store.dispatch_behind_bytes)

    def _flush_store(self) -> int:
        began_ns = self._spans.now_ns()
        position = super()._flush_store()
        self._spans.flushed(began_ns, position)
        return position
