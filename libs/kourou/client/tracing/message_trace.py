"""RocketMQ's message trace: the history of each message, written as messages of a trace topic.

    kourou.client.tracing.message_trace    -> records of kourou.protocol.record.message_trace
    RMQ_SYS_TRACE_TOPIC, or the topic of the setting, read back by `admin.messages.trace`

It serves users of RocketMQ's tools and is independent of OpenTelemetry traces
(kourou.client.tracing.spans).

Tracing never delays or fails the traced operation. Records wait in memory, at most
TRACE_RECORDS_MAX; more records, and those that cannot be sent, are dropped and counted. The trace
topic itself is not traced.

State: soft. Records that are waiting when the process dies are lost.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Callable, Sequence
from functools import wraps
from itertools import count
from typing import TYPE_CHECKING, Any

from kourou.client.consumer.handlers import is_coroutine_handler
from kourou.client.consumer.outcomes import failure_in
from kourou.client.producer.pending_sends import LoopPort
from kourou.client.producer.producer_core import ROUND_ROBIN, ProducerCore
from kourou.client.session.discovery import store_host_of
from kourou.client.session.io_thread import ThreadQueue, background
from kourou.errors import KourouError
from kourou.model.limits import TRACE_KEYS_BYTES_MAX, TRACE_MESSAGE_BYTES_MAX, TRACE_RECORDS_MAX
from kourou.model.message import Message, Property, SendResult, SendStatus, SysFlag
from kourou.protocol.record.message_record import decode_record
from kourou.protocol.record.message_trace import (
    Consumed,
    ConsumeStarted,
    ContextCode,
    Published,
    TraceKind,
    TraceRecord,
    TransactionEnded,
    encode_record,
    keys_of,
)
from kourou.transport.rate_limited_log import RateLimitedLog

if TYPE_CHECKING:
    from kourou.client.consumer.handlers import HandlerReport, Item
    from kourou.client.consumer.received import ReceivedMessage
    from kourou.client.producer.pending_sends import Outcome, PendingSend
    from kourou.client.transactions.ends import PendingEnd
    from kourou.clock import Clock

TRACE_GROUP = "_INNER_TRACE_PRODUCER"
"""The producer group of trace messages; RocketMQ's group names have the same prefix."""

REGION = "DefaultRegion"
"""The regionId of brokers without a configured one."""

SOON_MS = 500
RECORDS_AT_ONCE = 100
"""Records are written when this many wait, or when the first has waited for SOON_MS."""

_log = logging.getLogger("kourou.client")
_numbers = count(1)


class TraceWriter:
    """Writes records to one trace topic. `add` is callable from any thread."""

    def __init__(self, core: ProducerCore, topic: str) -> None:
        self.topic = topic
        self.dropped = 0
        self._core = core
        self._loop = core.io.loop
        self._inbox: ThreadQueue[TraceRecord] = ThreadQueue(self._loop, self._take)
        self._waiting: list[TraceRecord] = []
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None
        self._port: LoopPort | None = None
        self._quiet_log = RateLimitedLog(_log, core.clock)

    @property
    def clock(self) -> Clock:
        """The client's clock."""
        return self._core.clock

    def add(self, record: TraceRecord) -> None:
        """Add a record; it is written soon."""
        self._inbox.put(record)

    # -- on the I/O thread ------------------------------------------------------------------------

    def _take(self, records: list[TraceRecord]) -> None:
        room = TRACE_RECORDS_MAX - len(self._waiting)
        self._waiting += records[:room]
        if len(records) > room:
            self._drop(len(records) - room, "too many are pending")
        if self._writing is not None:
            return
        if len(self._waiting) >= RECORDS_AT_ONCE:
            self._begin()
        elif self._timer is None and self._waiting:
            self._timer = self._loop.call_later(SOON_MS / 1000, self._begin)

    def _begin(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._writing is None and self._waiting:
            self._writing = background(self._write(), "writing message traces")

    async def _write(self) -> None:
        try:
            while self._waiting:
                part = self._waiting[:RECORDS_AT_ONCE]
                del self._waiting[:RECORDS_AT_ONCE]
                await self._send(part)
        finally:
            self._writing = None

    async def _send(self, records: list[TraceRecord]) -> None:
        core, loop = self._core, self._loop
        try:
            targets = core.known(self.topic) or await core.find(self.topic)
            if self._port is None:
                self._port = core.port(loop)
            port = self._port
            terms = core.terms(timeout_ms=None, wait=True)
            sent: list[asyncio.Future[SendResult]] = []
            for message in messages_of(records, self.topic):
                waiter: asyncio.Future[SendResult] = loop.create_future()
                port.add(
                    core.pending_send(
                        targets,
                        port,
                        waiter,
                        message.body,
                        None,
                        message.keys,
                        None,
                        0,
                        terms,
                        ROUND_ROBIN,
                    )
                )
                sent.append(waiter)
        except KourouError as error:
            self._drop(len(records), str(error))
            return
        for outcome in await asyncio.gather(*sent, return_exceptions=True):
            if isinstance(outcome, KourouError):
                self._drop(len(records) // len(sent) or 1, str(outcome))

    def _drop(self, number: int, why: str) -> None:
        self.dropped += number
        self._quiet_log.warning(
            "trace-records-lost: lost %(records)d message trace records (%(total)d in total): "
            "%(error)s",
            {"records": number, "total": self.dropped, "error": why},
        )

    async def close(self) -> None:
        """Write the waiting records and end; on the I/O thread. Sends end by their own timeout."""
        await asyncio.sleep(0)  # records added before are taken in this iteration
        self._begin()
        if self._writing is not None:
            await self._writing
        await self._core.close()


def messages_of(records: Sequence[TraceRecord], topic: str) -> list[Message]:
    """Return messages that contain these records, each within size limits, with all keys."""
    messages: list[Message] = []
    texts: list[str] = []
    keys: dict[str, None] = {}
    size = keys_size = 0

    def end() -> None:
        nonlocal texts, keys, size, keys_size
        if texts:
            messages.append(Message(topic, "".join(texts).encode(), keys=tuple(keys)))
        texts, keys, size, keys_size = [], {}, 0, 0

    for record in records:
        text = encode_record(record)
        new = [key for key in keys_of(record) if key and key not in keys]
        more, more_keys = len(text.encode()), sum(len(key.encode()) + 1 for key in new)
        too_long = size + more > TRACE_MESSAGE_BYTES_MAX
        if too_long or keys_size + more_keys > TRACE_KEYS_BYTES_MAX:
            end()
            new = list(dict.fromkeys(key for key in keys_of(record) if key))
            more_keys = sum(len(key.encode()) + 1 for key in new)
        texts.append(text)
        keys.update(dict.fromkeys(new))
        size += more
        keys_size += more_keys
    end()
    return messages


# -- sends ----------------------------------------------------------------------------------------


class SendTrace:
    """Records the outcomes of one producer's sends; used on the I/O thread."""

    def __init__(self, writer: TraceWriter, group: str) -> None:
        self._writer = writer
        self._group = group

    def settled(self, final: Sequence[tuple[PendingSend, Outcome | None]]) -> None:
        """Record the outcomes of these messages; one-way messages have no outcome and no record."""
        for message, outcome in final:
            if outcome is not None and message.target.queue.topic != self._writer.topic:
                self._writer.add(self._published(message, outcome))

    def _published(self, message: PendingSend, outcome: Outcome) -> Published:
        draft = decode_record(message.draft, verify=False, decompress=False)
        properties = draft.properties
        kind = TraceKind.NORMAL
        if properties.get(Property.TRAN_MSG) == "true":
            kind = TraceKind.HALF
        elif Property.DELAY in properties:
            kind = TraceKind.DELAYED
        stored = outcome if isinstance(outcome, SendResult) else None
        return Published(
            timestamp_ms=draft.born_timestamp,
            region=REGION,
            group=self._group,
            topic=message.target.queue.topic,
            message_id=message.unique_key,
            tag=draft.tag or "",
            keys=message.keys,
            store_host=_remoting(message.target.address),
            body_length=len(draft.body),
            cost_ms=max(self._writer.clock.now_ms() - draft.born_timestamp, 0),
            kind=kind,
            offset_message_id=stored.offset_message_id if stored is not None else "",
            success=stored is not None and stored.status is SendStatus.SEND_OK,
        )

    def ended(self, end: PendingEnd, address: str) -> None:
        """Record that a broker received the end of a transaction."""
        request = end.request
        self._writer.add(
            TransactionEnded(
                timestamp_ms=self._writer.clock.now_ms(),
                region=REGION,
                group=self._group,
                topic=end.topic,
                message_id=request.msg_id,
                tag="",
                keys="",
                store_host=_remoting(address) if address else "",
                kind=TraceKind.COMMIT,
                transaction_id=request.transaction_id or request.msg_id,
                state=_STATES.get(request.commit_or_rollback, "UNKNOW"),
                from_check=request.from_transaction_check,
            )
        )


def _remoting(address: str) -> str:
    """Return the address under which RocketMQ's tools know a broker."""
    host, port = store_host_of(address)
    return f"{host}:{port}"


_STATES = {
    int(SysFlag.TRANSACTION_COMMIT): "COMMIT_MESSAGE",
    int(SysFlag.TRANSACTION_ROLLBACK): "ROLLBACK_MESSAGE",
}
"""RocketMQ's `LocalTransactionState`."""


# -- handlers -------------------------------------------------------------------------------------


class ConsumeTrace:
    """Records the calls of one group's handlers; callable from any thread."""

    def __init__(self, writer: TraceWriter, group: str) -> None:
        self._writer = writer
        self._group = group

    def handler(self, handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a traced handler, for a plain or a coroutine handler."""
        if is_coroutine_handler(handler):

            @wraps(handler)
            async def awaited(item: Item) -> Any:
                call = self.begin(item)
                try:
                    result = await handler(item)
                except BaseException:
                    call.end(ContextCode.EXCEPTION)
                    raise
                call.end(code_of(result))
                return result

            return awaited

        @wraps(handler)
        def called(item: Item) -> Any:
            call = self.begin(item)
            try:
                result = handler(item)
            except BaseException:
                call.end(ContextCode.EXCEPTION)
                raise
            call.end(code_of(result))
            return result

        return called

    def report(self, report: HandlerReport) -> HandlerReport:
        """Return a traced report for an iterator: from delivery of a message to its outcome."""
        return _TracedReport(self, report)

    def begin(self, item: Item) -> TracedCall:
        """Record that these messages are delivered now."""
        writer = self._writer
        messages: list[ReceivedMessage] = item if isinstance(item, list) else [item]
        wanted = [one for one in messages if one.queue.topic != writer.topic]
        call = TracedCall(writer, self._group, wanted)
        call.start()
        return call


class TracedCall:
    """One call of a handler."""

    def __init__(
        self, writer: TraceWriter, group: str, messages: Sequence[ReceivedMessage]
    ) -> None:
        self._writer = writer
        self._group = group
        # Not the messages: a message that the application drops must not be kept alive here.
        self._traced = [
            (
                message.message_id,
                " ".join(message.keys),
                message.properties.get(Property.MSG_REGION, ""),
                message.reconsume_times,
            )
            for message in messages
        ]
        self._began_ms = writer.clock.now_ms()
        # Only joins the two records, so it only has to be unique.
        self._request_id = f"{id(writer):X}{self._began_ms:X}{next(_numbers):X}"

    def start(self) -> None:
        """Record the start of the call."""
        for message_id, keys, region, retry_times in self._traced:
            self._writer.add(
                ConsumeStarted(
                    timestamp_ms=self._began_ms,
                    region=region,
                    group=self._group,
                    request_id=self._request_id,
                    message_id=message_id,
                    retry_times=retry_times,
                    keys=keys,
                )
            )

    def end(self, code: ContextCode) -> None:
        """Record the end of the call; its messages share the duration equally, as in RocketMQ."""
        now_ms = self._writer.clock.now_ms()
        for message_id, keys, _, _ in self._traced:
            self._writer.add(
                Consumed(
                    request_id=self._request_id,
                    message_id=message_id,
                    cost_ms=max(now_ms - self._began_ms, 0) // len(self._traced),
                    success=code is ContextCode.SUCCESS,
                    keys=keys,
                    context_code=code,
                    timestamp_ms=now_ms,
                    group=self._group,
                )
            )


def code_of(result: object) -> ContextCode:
    """Return the trace code of a handler's result."""
    if failure_in(result) is not None or getattr(result, "name", "") in _NOT_NOW:
        return ContextCode.FAILED
    return ContextCode.SUCCESS


_NOT_NOW = frozenset({"SUSPEND_CURRENT_QUEUE_A_MOMENT", "ROLLBACK"})
"""What orderly handlers return for messages that are to be redelivered."""


class _TracedReport:
    """Starts a call when an iterator asks whether a message is wanted, its last step."""

    def __init__(self, trace: ConsumeTrace, report: HandlerReport) -> None:
        self._trace = trace
        self._report = report
        self._calls: weakref.WeakKeyDictionary[ReceivedMessage, TracedCall] = (
            weakref.WeakKeyDictionary()
        )

    def wanted(self, item: Item) -> bool:
        """Return whether the item's queue is still assigned; if so, it is delivered now."""
        if not self._report.wanted(item):
            return False
        self._calls[item] = self._trace.begin(item)
        return True

    def finished(self, item: Item) -> None:
        """Record that the message was consumed."""
        self._end(item, ContextCode.SUCCESS)
        self._report.finished(item)

    def failed(self, item: Item, error: BaseException) -> None:
        """Record that the message failed."""
        self._end(item, ContextCode.EXCEPTION)
        self._report.failed(item, error)

    def _end(self, item: Item, code: ContextCode) -> None:
        call = self._calls.pop(item, None)
        if call is not None:
            call.end(code)
