"""Trace spans of a broker for traced requests, below those of its clients.

    store {topic}    a send, from its arrival to its reply; linked to the other traced messages
      append         the system call that wrote the batch
      wait           from then to the reply, if that waits for the disk or for a replica
      dispatch       the projection into queues and index; may end after the reply
      flush          the fdatasync that covers it; may end long after the reply
      ship, copy, confirm, replicate    its replication (kourou.serving.copy_spans)
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
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kourou.engine.effects import Append
from kourou.errors import Code
from kourou.model.limits import SEND_CONTEXTS_MAX
from kourou.protocol.messages.pulling import PullMessage, PullResponse
from kourou.protocol.messages.replication import ChunkAck
from kourou.protocol.messages.sending import SendMessage, SendRecords, SendRecordsResponse
from kourou.protocol.request import Request
from kourou.runtime.core import Peer, Received, Reply, ReplyTo
from kourou.serving.copy_spans import CopySpans, Watched
from kourou.telemetry import span_names as names
from kourou.telemetry.metrics import Family, Labels
from kourou.telemetry.tracing import SpanKind, TracedSpan
from kourou.telemetry.tracing_context import CONTEXT_BYTES, is_sampled
from kourou.telemetry.tracing_setup import SpanExport

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
