"""Sends on the I/O thread: they leave in frames, are retried where useful, and get their outcomes.

Retries:

- a message is sent at most `Terms.attempts` times within its deadline, to another broker if there
  is one; after a timeout it is not retried, because its deadline is over
- retried are errors that a broker returns before it stores anything, and a lost connection, after
  which the message may be stored. Each attempt has the same unique key and its attempt number, so a
  broker that already has the message replies with its first offset
- if the broker has no leader, or the connection was lost and there is no other broker, the message
  waits for a leader (kourou.client.producer.leader_wait); an attempt without an available leader
  does not count. Later messages for that broker wait too, so that they do not overtake it
- a message that is over a quota is sent again there when the broker says, and the attempt does not
  count
- a pinned message (order key, selector, given queue) never leaves its queue: it waits for a leader
  likewise, and any other error is final, because later ones could overtake it
- after an attempt that may have succeeded, a later refusal is not conclusive: the outcome is
  unknown

State: soft. The outcome of messages in flight when the process dies is unknown.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

from kourou.client.producer.drafts import DraftDestination
from kourou.client.producer.leader_wait import LeaderWait, SilentLeaders, given_up
from kourou.client.producer.pending_sends import (
    Outcome,
    Outcomes,
    PendingSend,
    SendTarget,
    Terms,
    first_error,
    message_outcomes,
)
from kourou.client.producer.selectors import FaultLatency, RoundRobin
from kourou.client.producer.send_frames import SendFrame, frames, gather, outcomes_of, request_of
from kourou.client.session.client_session import Session
from kourou.client.session.connections import nobody_leads, retry_after_ms, was_lost
from kourou.client.session.discovery import store_host_of
from kourou.client.session.io_thread import background
from kourou.client.session.route_table import QueueMap
from kourou.client.settings.client_settings import ProducerSettings
from kourou.errors import (
    Code,
    DecodeError,
    KourouError,
    Throttled,
    TimedOut,
    Unavailable,
    UnknownOutcome,
)
from kourou.model.message import SendResult, SendStatus
from kourou.model.topic import MessageQueue
from kourou.protocol.messages.sends import SendRecords, SendRecordsResponse
from kourou.protocol.record.layout import encode_host
from kourou.protocol.wire.frames import NO_TRACE, Frame, FrameKind, decode_reply, encode_request
from kourou.time_limit import within

if TYPE_CHECKING:
    from kourou.client.tracing.message_trace import SendTrace

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
"""RocketMQ's set, and Kourou's codes for brokers that are busy, full or faulted.

All of them mean: not stored. RocketMQ's 204 (NO_BUYER_ID) and 205 (NOT_IN_CURRENT_UNIT) arrive as
SYSTEM_ERROR, like every number without a name here (kourou.errors.error_from_code).
"""

STALE_ROUTE_CODES = frozenset(
    {Code.TOPIC_NOT_EXIST, Code.SERVICE_NOT_AVAILABLE, Code.NO_PERMISSION, Code.STORE_FAULTED}
)
SAME_BROKER_PAUSE_MS = 50
"""The pause before a second attempt at the same broker; it doubles with each further attempt."""

ROUTE_WAIT_MS = 1_000
"""How long such an attempt waits for a name server to return the broker's current address."""

_V4_HOST_BYTES = 8


class _NextStep(Enum):
    """What happens next to a message that was not stored."""

    END = "no more"
    ELSEWHERE = "elsewhere"
    THERE = "again"
    WAIT = "when there is a leader"


_log = logging.getLogger("kourou.client.send")


class ProducerSender:
    """The I/O side of one producer; `take` receives the messages from other threads."""

    def __init__(self, settings: ProducerSettings, session: Session) -> None:
        self._settings = settings
        self._connections, self._routes = session.connections, session.routes
        self._clock = session.clock
        self._tracing = session.tracing
        self.message_trace: SendTrace | None = None
        self._robin = RoundRobin(session.chance.getrandbits(31))
        self._waiting = LeaderWait(
            session.routes,
            session.connections,
            session.clock,
            session.chance,
            choose=self._target_by_now,
            resend=self._resend,
            settle=self._settle,
        )
        self._silent = SilentLeaders(session.routes, session.clock, self._decide)
        self._message_level = session.settings.message_log_level
        self._again: set[asyncio.Task[None]] = set()
        self.round_trip_ms = 0
        """How long the last reply took."""

        self._in_flight = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False
        self.faults: FaultLatency | None = (
            FaultLatency() if settings.send_latency_fault_enable else None
        )

    # -- sending ----------------------------------------------------------------------------------

    def take(self, bursts: list[list[PendingSend]]) -> None:
        """Send the messages that arrived since the last call."""
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
            late = "the deadline passed before it was sent"
            self._settle([(one, one.stored or given_up(one, late)) for one in frame.messages])
            return
        if not frame.address or (
            self._waiting.awaited
            and frame.attempt == 1
            and frame.targets[0].broker_name in self._waiting.awaited
        ):
            self._wait_with_others(frame)
            return
        trace, contexts = NO_TRACE, b""
        if self._tracing is not None:
            trace, contexts = self._tracing.frame_contexts(
                [message for send in frame.messages for message in send.messages()]
            )
        request, body = self.request(frame, contexts)
        oneway = frame.terms.oneway
        answered = partial(self.answered, frame, now_ms)
        try:
            wire = self._connections.to(frame.address)
            if not wire.connected and not oneway and self._connections.lost(frame.address):
                self._wait_with_others(frame)  # opening the connection could take 3 s
                return
            correlation = wire.next_correlation()
            head = encode_request(
                request,
                correlation=correlation,
                deadline_ms=deadline_ms - now_ms,
                trace=trace,
                kind=FrameKind.ONEWAY if oneway else FrameKind.REQUEST,
            )
            if not oneway:
                self._silent.watch(frame, now_ms)
            wire.submit([head, body], correlation, None if oneway else answered, deadline_ms)
        except KourouError as error:
            self._silent.ended(frame)
            self._answered(frame, now_ms, error)
            return
        if oneway:
            self._settle([(message, None) for message in frame.messages])

    def request(self, frame: SendFrame, contexts: bytes = b"") -> tuple[SendRecords, bytes]:
        """Return the frame as this producer's request, and its body; callable in any thread."""
        settings = self._settings
        return request_of(
            frame,
            producer_group=settings.producer_group,
            default_topic=settings.create_topic_key,
            default_topic_queue_nums=settings.default_topic_queue_nums,
            contexts=contexts,
        )

    # -- frames that a thread of the application sends (DirectSends) ------------------------------

    @property
    def may_be_bypassed(self) -> bool:
        """Whether nothing is in flight or waiting here, and successful sends need no processing.

        Callable in any thread.
        """
        return (
            not self._in_flight
            and not self._waiting.awaited
            and self.faults is None
            and self._tracing is None
            and self.message_trace is None
            and not _log.isEnabledFor(self._message_level)
        )

    def adopt(self, frame: SendFrame, sent_ms: int) -> None:
        """Monitor a frame that another thread sent; a call of `answered` may follow."""
        self._in_flight += len(frame.messages)
        self._idle.clear()
        self._silent.watch(frame, sent_ms)

    # -- outcomes ---------------------------------------------------------------------------------

    def answered(self, frame: SendFrame, sent_ms: int, outcome: Frame | KourouError) -> None:
        """Handle the outcome of a frame sent at `sent_ms`; ignored if the frame was abandoned."""
        if self._silent.ended(frame):
            self._answered(frame, sent_ms, outcome)

    def _answered(self, frame: SendFrame, sent_ms: int, outcome: Frame | KourouError) -> None:
        now_ms = self._clock.monotonic_ms()
        self.round_trip_ms = now_ms - sent_ms
        outcomes = read_outcomes(frame, outcome)
        if self.faults is not None:
            failed = isinstance(outcomes[0], KourouError)
            self.faults.record(
                frame.targets[0].broker_name, now_ms - sent_ms, now_ms, failed=failed
            )
        self._decide(frame, outcomes, now_ms)

    def _decide(self, frame: SendFrame, outcomes: list[Outcome], now_ms: int) -> None:
        """Complete the messages whose outcome is final, and retry the others."""
        resend_unsafe = self._settings.retry_another_broker_when_not_store_ok
        if not resend_unsafe and first_error(outcomes) is None:
            self._settle(list(zip(frame.messages, outcomes, strict=True)))
            if frame.targets[0].borrowed:
                self._notice_routes(frame, outcomes)
            return
        final: Outcomes = []
        again: dict[tuple[_NextStep, bool], list[PendingSend]] = {}
        ways: dict[tuple[SendTarget, bool, bool], tuple[_NextStep, SendTarget]] = {}
        quota_ms = _quota_pause_ms(outcomes[0])
        pause_ms = max(quota_ms, SAME_BROKER_PAUSE_MS)
        if not quota_ms:
            pause_ms <<= max(frame.attempt - frame.spared - 1, 0)
        for message, outcome in zip(frame.messages, outcomes, strict=True):
            spare = lost = False
            if not isinstance(outcome, KourouError):
                if not resend_unsafe or outcome.status is SendStatus.SEND_OK:
                    final.append((message, outcome))
                    continue
                message.stored = outcome
            else:
                spare, lost = nobody_leads(outcome), was_lost(outcome)
                if lost or not isinstance(message.failure, UnknownOutcome):
                    message.failure = outcome
            key = (message.target, spare, lost)
            if key not in ways:
                ways[key] = self._next_step(frame, message.target, outcome, spare=spare, lost=lost)
            step, target = ways[key]
            too_late = step is _NextStep.THERE and now_ms + pause_ms >= message.deadline_ms
            if (
                step is _NextStep.END
                or too_late
                or (message.stored and step is not _NextStep.ELSEWHERE)
            ):
                final.append((message, message.stored or _conclusive(message, outcome)))
                continue
            message.move(target)
            again.setdefault((step, spare or quota_ms > 0), []).append(message)
        for (step, spare), messages in again.items():
            _log.info(
                "sends-repeated: resending %(messages)d messages %(way)s after: %(error)s",
                {"messages": len(messages), "way": step.value, "error": outcomes[0]},
            )
            self._perform(step, messages, frame, frame.spared + spare, pause_ms)
        self._notice_routes(frame, outcomes)
        self._settle(final)

    def _next_step(
        self, frame: SendFrame, target: SendTarget, outcome: Outcome, *, spare: bool, lost: bool
    ) -> tuple[_NextStep, SendTarget]:
        """Return what happens to messages of a target after this outcome, and their next target."""
        terms = target.terms
        if _quota_pause_ms(outcome) and not (terms.pinned or terms.oneway):
            return _NextStep.THERE, target
        ended = isinstance(outcome, KourouError) and not worth_another_attempt(outcome)
        if terms.oneway or ended or (not spare and frame.attempt - frame.spared >= terms.attempts):
            return _NextStep.END, target
        later = _NextStep.WAIT if spare or lost else _NextStep.THERE
        if terms.pinned:
            return later if later is _NextStep.WAIT else _NextStep.END, target
        known = self._routes.known(target.queue.topic)
        led = None if known is None else known.leader_address(target.broker_name)
        if lost and led not in {None, "", frame.address}:
            return _NextStep.WAIT, target  # its next leader may have the message
        other = target if known is None else self._choose(known, target)
        if other.broker_name == target.broker_name:
            return later, target if later is _NextStep.WAIT else other
        # One round is enough: the other brokers may have no leader either.
        if (spare and frame.spared) or other.broker_name in self._waiting.awaited:
            return _NextStep.WAIT, target
        return _NextStep.ELSEWHERE, other

    def _perform(
        self,
        step: _NextStep,
        messages: list[PendingSend],
        frame: SendFrame,
        spared: int,
        pause_ms: int,
    ) -> None:
        attempt = frame.attempt + 1
        if step is _NextStep.WAIT:
            self._waiting.enter(messages, sent=frame.attempt, spared=spared, address=frame.address)
        elif step is _NextStep.ELSEWHERE:
            asyncio.get_running_loop().call_soon(self._resend, messages, attempt, spared)
        else:
            again = background(
                self._resend_there(messages, attempt, spared, pause_ms), "sending again"
            )
            self._again.add(again)
            again.add_done_callback(self._again.discard)

    def _wait_with_others(self, frame: SendFrame) -> None:
        """Let messages wait whose broker has no leader, or for which earlier messages wait."""
        staying: list[PendingSend] = []
        going: list[PendingSend] = []
        others: dict[SendTarget, SendTarget] = {}
        for target in frame.targets:
            known = None if target.terms.pinned else self._routes.known(target.queue.topic)
            other = target if known is None else self._choose(known, target)
            if other.address in ("", frame.address) or self._connections.lost(other.address):
                continue
            if other.broker_name not in self._waiting.awaited:
                others[target] = other
        for message in frame.messages:
            if message.target in others:
                message.move(others[message.target])
                going.append(message)
            else:
                staying.append(message)
        if frame.terms.oneway:
            self._settle([(message, None) for message in staying])  # dropped silently
        elif staying:
            self._waiting.enter(
                staying, sent=frame.attempt - 1, spared=frame.spared, address=frame.address
            )
        if going:
            self._resend(going, frame.attempt, frame.spared)

    def _target_by_now(
        self, known: QueueMap, target: SendTarget, may_be_asked: Callable[[str], bool]
    ) -> SendTarget | None:
        """Return the target of a waiting message: at its broker, or at another one if allowed."""
        own = target_to(known, target.queue, target.place.topic, target.terms)
        moved = target.queue not in known.sendable and not target.terms.pinned
        if own is not None and not moved and may_be_asked(own.address):
            return own
        if target.terms.pinned:
            return None
        other = self._choose(known, target)
        stays = other.broker_name == target.broker_name and not moved
        return other if other.address and not stays and may_be_asked(other.address) else None

    def _choose(self, known: QueueMap, target: SendTarget) -> SendTarget:
        if not known.writable:
            return target
        if self.faults is None:
            queue = self._robin.next_elsewhere(known.writable, target.broker_name)
        else:
            now_ms = self._clock.monotonic_ms()
            queue = self._robin.next_available(
                known.writable, self.faults, now_ms, target.broker_name
            )
        return target_to(known, queue, target.place.topic, target.terms) or target

    def _resend(self, messages: list[PendingSend], attempt: int, spared: int) -> None:
        for frame in frames(gather(messages), attempt, spared):
            self._send(frame)

    async def _resend_there(
        self, messages: list[PendingSend], attempt: int, spared: int, pause_ms: int
    ) -> None:
        """Retry at the same broker: after a pause, and at its current address."""
        await asyncio.sleep(pause_ms / 1000)
        targets = list(dict.fromkeys(message.target for message in messages))
        for topic in dict.fromkeys(target.queue.topic for target in targets):
            try:
                await within(self._routes.refresh(topic), ROUTE_WAIT_MS / 1000)
            except (KourouError, TimeoutError) as error:
                _log.info(
                    "route-refresh-failed: route of %(topic)s not refreshed: %(error)r",
                    {"topic": topic, "error": error},
                )
        renewed = {target: self._renewed(target) for target in targets}
        for message in messages:
            message.move(renewed[message.target])
        self._resend(messages, attempt, spared)

    def _renewed(self, target: SendTarget) -> SendTarget:
        known = self._routes.known(target.queue.topic)
        if known is None:
            return target
        if target.queue not in known.writable:
            return self._choose(known, target)
        return target_to(known, target.queue, target.place.topic, target.terms) or target

    def _notice_routes(self, frame: SendFrame, outcomes: list[Outcome]) -> None:
        """Refresh routes that a reply shows to be stale, or that were borrowed."""
        at = 0
        for target, count in zip(frame.targets, frame.counts, strict=True):
            outcome = outcomes[at]
            at += count
            if not isinstance(outcome, KourouError):
                if target.borrowed:
                    self._routes.stale(target.queue.topic)
            elif (
                isinstance(outcome, (Unavailable, UnknownOutcome))
                or outcome.wire_code in STALE_ROUTE_CODES
            ):
                self._routes.stale(target.queue.topic)

    def _settle(self, final: Outcomes) -> None:
        if not final:
            return
        if self._tracing is not None:
            self._tracing.settled(message_outcomes(final))
        if self.message_trace is not None:
            self.message_trace.settled(message_outcomes(final))
        first = final[0][0].port
        mixed = failed = False
        for send, outcome in final:
            if send.port is not first:
                mixed = True
            if type(outcome) is not SendResult and isinstance(outcome, KourouError):
                failed = True
        if mixed:
            for port in dict.fromkeys(send.port for send, _ in final):
                port.deliver([one for one in final if one[0].port is port])
        else:
            first.deliver(final)
        self._in_flight -= len(final)
        if not self._in_flight:
            self._idle.set()
        if failed:
            _log_failures(message_outcomes(final))
        if _log.isEnabledFor(self._message_level):
            _log_outcomes(message_outcomes(final), self._message_level)

    # -- lifecycle --------------------------------------------------------------------------------

    async def close(self, timeout_ms: int) -> None:
        """Wait for outcomes, at most `timeout_ms`; then refuse further messages."""
        try:
            await within(self._idle.wait(), timeout_ms / 1000)
        except TimeoutError:
            _log.warning(
                "sends-pending: closing while %(sends)d sends are still pending",
                {"sends": self._in_flight},
            )
        self._closed = True
        self._silent.close()
        await self._waiting.close()


def read_outcomes(frame: SendFrame, answer: Frame | KourouError) -> list[Outcome]:
    """Return the outcomes of a frame's sends, from its reply or from its common error."""
    if isinstance(answer, KourouError):
        return [answer] * len(frame.messages)
    try:
        code, remark, header = decode_reply(answer, SendRecordsResponse)
    except DecodeError as error:
        return [UnknownOutcome(f"{frame.address}: {error}")] * len(frame.messages)
    places = header if isinstance(header, SendRecordsResponse) else None
    return outcomes_of(frame, code, remark, places, retry_after_ms(header))


def target_to(
    known: QueueMap, queue: MessageQueue, topic: bytes, terms: Terms, *, led: bool = True
) -> SendTarget | None:
    """Return the target to a queue by the route; None if its broker has no leader now.

    Without `led` the broker may have no leader if it has replicas: then the address is empty.
    """
    address = known.leader_address(queue.broker_name) or ""
    somebody = address if led else known.member_address(queue.broker_name, 0)
    if not somebody:
        return None
    host = encode_host(store_host_of(somebody))
    place = DraftDestination(
        topic=topic,
        queue_id=queue.queue_id,
        cluster=known.brokers[queue.broker_name].cluster,
        store_host_v6=len(host) > _V4_HOST_BYTES,
    )
    return SendTarget(
        queue, address, place, terms, host_text=host.hex().upper(), borrowed=known.borrowed
    )


def _quota_pause_ms(outcome: Outcome) -> int:
    """Return the time until a message that was over a quota may be sent again; 0 for others."""
    return outcome.retry_after_ms if isinstance(outcome, Throttled) else 0


def _conclusive(message: PendingSend, outcome: Outcome) -> Outcome:
    """Return the outcome; a refusal is not conclusive if an earlier attempt may have succeeded."""
    if (
        isinstance(message.failure, UnknownOutcome)
        and isinstance(outcome, KourouError)
        and not isinstance(outcome, UnknownOutcome)
    ):
        return given_up(message, f"rejected on a retry: {outcome.message}")
    return outcome


def worth_another_attempt(error: KourouError) -> bool:
    """Return whether a message with this error may be retried; a generated page uses this too."""
    if isinstance(error, TimedOut):
        return False
    if isinstance(error, (Unavailable, UnknownOutcome)):
        return True
    return error.wire_code in RETRY_CODES


def _log_failures(final: Outcomes) -> None:
    failures = [(message, out) for message, out in final if isinstance(out, KourouError)]
    message, error = failures[0]
    _log.warning(
        "sends-failed: %(messages)d messages were not sent; the first was for %(queue)s with ID "
        "%(message_id)s and keys %(keys)r: %(error)s",
        {
            "messages": len(failures),
            "queue": message.target.queue,
            "message_id": message.unique_key,
            "keys": message.keys,
            "error": error,
        },
    )


def _log_outcomes(final: Outcomes, level: int) -> None:
    """Log every outcome with its keys."""
    for message, outcome in final:
        if isinstance(outcome, SendResult):
            text = f"{outcome.status} offset {outcome.offset}"
        else:
            text = "oneway" if outcome is None else repr(outcome)
        queue, key = message.target.queue, message.unique_key
        _log.log(
            level,
            "send-completed: send to %(queue)s id %(message_id)s keys %(keys)r: %(outcome)s",
            {"queue": queue, "message_id": key, "keys": message.keys, "outcome": text},
        )
