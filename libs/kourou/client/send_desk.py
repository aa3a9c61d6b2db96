"""Sends on the I/O thread: out in frames, tried again where that can help, outcomes back.

Lives here: one producer's frames in flight, the rules of retrying (F168), the memory of slow
brokers, the log of every outcome (F368). May not live here: how frames look
(kourou.client.send_frames).

Retrying:
  - a message is tried at most `Terms.attempts` times within its deadline, on another broker if
    there is one; a timeout ends it, for its deadline is then over
  - errors worth another attempt are those a broker gives before it stores anything, and a lost
    connection, after which it may be stored: each attempt carries the same unique key and its
    number, so a broker that has the message already answers with its first place
  - a pinned message (order key, selector, given queue) has one attempt

State: soft. In flight when the process dies means: outcome unknown to everybody.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kourou.client.background import background
from kourou.client.discovery import store_host_of
from kourou.client.drafts import Place, moved_to_queue
from kourou.client.fault_latency import FaultLatency
from kourou.client.outbox import Lane, Outcome, Outcomes, Port, Terms, Unsent
from kourou.client.routes import QueueMap
from kourou.client.selectors import RoundRobin
from kourou.client.send_frames import SendFrame, frames, gather, outcomes_of, request_of
from kourou.client.session import Session
from kourou.client.settings import ProducerSettings
from kourou.errors import (
    Code,
    DecodeError,
    KourouError,
    TimedOut,
    Unavailable,
    UnknownOutcome,
)
from kourou.model.message import SendResult, SendStatus
from kourou.model.queue import MessageQueue
from kourou.protocol.frames import NO_TRACE, Frame, Kind, decode_reply, encode_request
from kourou.protocol.messages.sending import SendRecordsResponse
from kourou.protocol.record import encode_host

if TYPE_CHECKING:
    from kourou.client.message_trace import SendTrace

RETRY_CODES = frozenset(
    {
        Code.TOPIC_NOT_EXIST,
        Code.SERVICE_NOT_AVAILABLE,
        Code.SYSTEM_ERROR,
        Code.NO_PERMISSION,
        Code.SYSTEM_BUSY,
        Code.FLOW_CONTROL,
        Code.DISK_FULL,
        Code.STORE_FAULTED,
    }
)
"""RocketMQ's set, and ours for brokers that are busy, full or faulted. All mean: not stored.

RocketMQ's 204 (NO_BUYER_ID) and 205 (NOT_IN_CURRENT_UNIT) have no name here. Like every number
without one they come as SYSTEM_ERROR (kourou.errors.error_from_code), and so they are in it.
"""

STALE_ROUTE_CODES = frozenset(
    {Code.TOPIC_NOT_EXIST, Code.SERVICE_NOT_AVAILABLE, Code.NO_PERMISSION, Code.STORE_FAULTED}
)
SAME_BROKER_PAUSE_MS = 50
"""Pause before a second attempt at the same broker; it doubles with each further one."""

ROUTE_WAIT_MS = 1_000
"""How long such an attempt waits for a name server to say where the broker is now."""

_V4_HOST_BYTES = 8

_log = logging.getLogger("kourou.client.send")


class SendDesk:
    """The I/O side of one producer; `take` is the far end of its handover."""

    def __init__(self, settings: ProducerSettings, session: Session) -> None:
        self._settings = settings
        self._connections = session.connections
        self._routes = session.routes
        self._clock = session.clock
        self._tracing = session.tracing
        self.message_trace: SendTrace | None = None
        self._robin = RoundRobin(session.chance.getrandbits(31))
        self._message_level = session.settings.message_log_level
        self._again: set[asyncio.Task[None]] = set()
        self._in_flight = 0
        self._idle: asyncio.Event = asyncio.Event()
        self._idle.set()
        self._closed = False
        self.faults: FaultLatency | None = (
            FaultLatency() if settings.send_latency_fault_enable else None
        )

    # -- out --------------------------------------------------------------------------------------

    def take(self, bursts: list[list[Unsent]]) -> None:
        """Send what has crossed since the last time."""
        for burst in bursts:
            self._in_flight += len(burst)
        messages = bursts[0] if len(bursts) == 1 else [one for burst in bursts for one in burst]
        self._idle.clear()
        if self._closed:
            closed = Unavailable("the client is closed; nothing was sent")
            self._settle([(message, closed) for message in messages])
            return
        for frame in frames(gather(messages)):
            self._send(frame)

    def _send(self, frame: SendFrame) -> None:
        now_ms = self._clock.monotonic_ms()
        deadline_ms = frame.deadline_ms
        if deadline_ms <= now_ms:
            late = Unavailable("the send's time was over before it left; nothing was sent")
            self._settle([(message, late) for message in frame.messages])
            return
        settings = self._settings
        trace, contexts = NO_TRACE, b""
        if self._tracing is not None:
            trace, contexts = self._tracing.frame_contexts(frame.messages)
        request, body = request_of(
            frame,
            producer_group=settings.producer_group,
            default_topic=settings.create_topic_key,
            default_topic_queue_nums=settings.default_topic_queue_nums,
            contexts=contexts,
        )
        oneway = frame.terms.oneway

        def answered(outcome: Frame | KourouError) -> None:
            self._answered(frame, now_ms, outcome)

        try:
            wire = self._connections.to(frame.address)
            correlation = wire.next_correlation()
            head = encode_request(
                request,
                correlation=correlation,
                deadline_ms=deadline_ms - now_ms,
                trace=trace,
                kind=Kind.ONEWAY if oneway else Kind.REQUEST,
            )
            wire.submit([head, body], correlation, None if oneway else answered, deadline_ms)
        except KourouError as error:
            self._answered(frame, now_ms, error)
            return
        if oneway:
            self._settle([(message, None) for message in frame.messages])

    # -- back -------------------------------------------------------------------------------------

    def _answered(self, frame: SendFrame, sent_ms: int, outcome: Frame | KourouError) -> None:
        now_ms = self._clock.monotonic_ms()
        outcomes: list[Outcome]
        if isinstance(outcome, KourouError):
            outcomes = [outcome] * len(frame.messages)
        else:
            try:
                code, remark, header = decode_reply(outcome, SendRecordsResponse)
            except DecodeError as error:
                unknown = UnknownOutcome(f"{frame.address}: {error}")
                outcomes = [unknown] * len(frame.messages)
            else:
                answer = header if isinstance(header, SendRecordsResponse) else None
                outcomes = outcomes_of(frame, code, remark, answer)
        if self.faults is not None:
            failed = isinstance(outcomes[0], KourouError)
            self.faults.record(frame.lanes[0].broker_name, now_ms - sent_ms, now_ms, failed=failed)
        self._judge(frame, outcomes, now_ms)

    def _judge(self, frame: SendFrame, outcomes: list[Outcome], now_ms: int) -> None:
        """Settle what is final, send the rest again."""
        resend_unsafe = self._settings.retry_another_broker_when_not_store_ok
        if not resend_unsafe and not _any_error(outcomes):
            self._settle(list(zip(frame.messages, outcomes, strict=True)))
            if frame.lanes[0].borrowed:
                self._notice_routes(frame, outcomes)
            return
        final: list[tuple[Unsent, Outcome | None]] = []
        elsewhere: list[Unsent] = []
        there: list[Unsent] = []
        others: dict[Lane, Lane | None] = {}
        pause_ms = SAME_BROKER_PAUSE_MS << (frame.attempt - 1)
        for message, outcome in zip(frame.messages, outcomes, strict=True):
            lane = message.lane
            if isinstance(outcome, SendResult):
                if not resend_unsafe or outcome.status is SendStatus.SEND_OK:
                    final.append((message, outcome))
                    continue
                message.stored = outcome
            elif not worth_another_attempt(outcome):
                final.append((message, message.stored or outcome))
                continue
            if lane not in others:
                others[lane] = self._other_lane(frame, lane)
            other = others[lane]
            if other is None:
                final.append((message, message.stored or outcome))
            elif other.broker_name != lane.broker_name:
                _move(message, other)
                elsewhere.append(message)
            elif message.stored is None and now_ms + pause_ms < message.deadline_ms:
                there.append(message)
            else:
                final.append((message, message.stored or outcome))
        if elsewhere:
            _log.info("sending %d messages elsewhere after: %s", len(elsewhere), outcomes[0])
            asyncio.get_running_loop().call_soon(self._resend, elsewhere, frame.attempt + 1)
        if there:
            _log.info("sending %d messages again after: %s", len(there), outcomes[0])
            again = background(
                self._resend_there(there, frame.attempt + 1, pause_ms), "sending again"
            )
            self._again.add(again)
            again.add_done_callback(self._again.discard)
        self._notice_routes(frame, outcomes)
        self._settle(final)

    def _other_lane(self, frame: SendFrame, lane: Lane) -> Lane | None:
        """Where the next attempt goes, perhaps there again; None if there is no next attempt."""
        terms = lane.terms
        if terms.pinned or terms.oneway or frame.attempt >= terms.attempts:
            return None
        known = self._routes.known(lane.queue.topic)
        return lane if known is None else self._choose(known, lane)

    def _choose(self, known: QueueMap, lane: Lane) -> Lane:
        if not known.writable:
            return lane
        if self.faults is None:
            queue = self._robin.next_elsewhere(known.writable, lane.broker_name)
        else:
            now_ms = self._clock.monotonic_ms()
            queue = self._robin.next_available(
                known.writable, self.faults, now_ms, lane.broker_name
            )
        return lane_to(known, queue, lane.place.topic, lane.terms) or lane

    def _resend(self, messages: list[Unsent], attempt: int) -> None:
        for frame in frames(gather(messages), attempt):
            self._send(frame)

    async def _resend_there(self, messages: list[Unsent], attempt: int, pause_ms: int) -> None:
        """Try the same broker once more: after a pause, and at the address it has by then."""
        await asyncio.sleep(pause_ms / 1000)
        lanes = list(dict.fromkeys(message.lane for message in messages))
        for topic in dict.fromkeys(lane.queue.topic for lane in lanes):
            try:
                await asyncio.wait_for(self._routes.refresh(topic), ROUTE_WAIT_MS / 1000)
            except (KourouError, TimeoutError) as error:
                _log.info("the route of %s stays as it was: %r", topic, error)
        renewed = {lane: self._renewed(lane) for lane in lanes}
        for message in messages:
            _move(message, renewed[message.lane])
        self._resend(messages, attempt)

    def _renewed(self, lane: Lane) -> Lane:
        known = self._routes.known(lane.queue.topic)
        if known is None:
            return lane
        if lane.queue not in known.writable:
            return self._choose(known, lane)
        return lane_to(known, lane.queue, lane.place.topic, lane.terms) or lane

    def _notice_routes(self, frame: SendFrame, outcomes: list[Outcome]) -> None:
        """Refresh routes that an answer shows to be stale, or that were borrowed until now."""
        at = 0
        for lane, count in zip(frame.lanes, frame.counts, strict=True):
            outcome = outcomes[at]
            at += count
            if isinstance(outcome, SendResult):
                if lane.borrowed:
                    self._routes.stale(lane.queue.topic)
            elif (
                isinstance(outcome, (Unavailable, UnknownOutcome))
                or outcome.wire_code in STALE_ROUTE_CODES
            ):
                self._routes.stale(lane.queue.topic)

    def _settle(self, final: list[tuple[Unsent, Outcome | None]]) -> None:
        if not final:
            return
        if self._tracing is not None:
            self._tracing.settled(final)
        if self.message_trace is not None:
            self.message_trace.settled(final)
        port = final[0][0].port
        outcomes: Outcomes = []
        by_port: dict[Port, Outcomes] = {port: outcomes}
        failed = False
        for message, outcome in final:
            if message.port is not port:
                port = message.port
                outcomes = by_port.setdefault(port, [])
            if isinstance(outcome, KourouError):
                failed = True
            outcomes.append((message.waiter, outcome, len(message.draft)))
        for port, outcomes in by_port.items():
            port.deliver(outcomes)
        self._in_flight -= len(final)
        if not self._in_flight:
            self._idle.set()
        if failed:
            _log_failures(final)
        if _log.isEnabledFor(self._message_level):
            _log_outcomes(final, self._message_level)

    # -- life -------------------------------------------------------------------------------------

    async def close(self, timeout_ms: int) -> None:
        """Wait for outcomes, at most `timeout_ms`; then refuse what still comes."""
        try:
            await asyncio.wait_for(self._idle.wait(), timeout_ms / 1000)
        except TimeoutError:
            _log.warning("closing while %d sends wait for their outcome", self._in_flight)
        self._closed = True


def lane_to(known: QueueMap, queue: MessageQueue, topic: bytes, terms: Terms) -> Lane | None:
    """The lane to a queue as the route has it; None when its broker has no leader now."""
    address = known.leader_address(queue.broker_name)
    if address is None:
        return None
    host = encode_host(store_host_of(address))
    place = Place(
        topic=topic,
        queue_id=queue.queue_id,
        cluster=known.brokers[queue.broker_name].cluster,
        store_host_v6=len(host) > _V4_HOST_BYTES,
    )
    return Lane(queue, address, place, terms, host_text=host.hex().upper(), borrowed=known.borrowed)


def _any_error(outcomes: list[Outcome]) -> bool:
    return any(isinstance(outcome, KourouError) for outcome in outcomes)


def _move(message: Unsent, lane: Lane) -> None:
    if message.lane is lane:
        return
    if message.lane.queue.queue_id != lane.queue.queue_id:
        message.draft = moved_to_queue(message.draft, lane.queue.queue_id)
    message.lane = lane


def worth_another_attempt(error: KourouError) -> bool:
    """May a message that failed so be tried again? A reference page is made by asking this."""
    if isinstance(error, TimedOut):
        return False
    if isinstance(error, (Unavailable, UnknownOutcome)):
        return True
    return error.wire_code in RETRY_CODES


def _log_failures(final: list[tuple[Unsent, Outcome | None]]) -> None:
    failures = [(message, out) for message, out in final if isinstance(out, KourouError)]
    message, error = failures[0]
    _log.warning(
        "%d messages were not sent, the first to %s with id %s and keys %r: %s",
        len(failures),
        message.lane.queue,
        message.unique_key,
        message.keys,
        error,
    )


def _log_outcomes(final: list[tuple[Unsent, Outcome | None]], level: int) -> None:
    """Every outcome with its keys (F368)."""
    for message, outcome in final:
        if isinstance(outcome, SendResult):
            text = f"{outcome.status} offset {outcome.offset}"
        else:
            text = "oneway" if outcome is None else repr(outcome)
        queue, key = message.lane.queue, message.unique_key
        _log.log(level, "send to %s id %s keys %r: %s", queue, key, message.keys, text)
