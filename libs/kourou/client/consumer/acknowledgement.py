"""Outcomes of unordered messages: finished, sent back, or redelivered locally.

    consumed                    it leaves its window, so its queue's offset may pass it
    failed                      it is sent back to the brokers; when they have stored it, it leaves
                                its window: it is redelivered from %RETRY%group, or becomes a dead
                                letter
    failed, no broker accepts   it is redelivered here, as the next attempt; until then it stays in
                                its window and holds back the offset
    failed in broadcasting      a warning is logged, and it leaves its window
    stopped                     the application ended the call (a cancelled task, Ctrl-C): the
                                message did not fail, so it is redelivered here
    too slow                    sent back with delay level 3 while its handler still runs; the
                                handler's later outcome is ignored

A message whose queue was released is not sent back, because the queue's next owner receives it.

State: soft. Used on the I/O thread, except for `HandlerReport`, which runners call from any thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from kourou.client.consumer.handlers import HandlerRunner, Item
from kourou.client.consumer.outcomes import (
    ConsumeRefused,
    PartlyConsumed,
    Shown,
    delay_level_of,
    reason_of,
)
from kourou.client.consumer.queue_consumption import ConsumeCounts, MessageLease
from kourou.client.consumer.received import ReceivedMessage
from kourou.client.consumer.send_back import SendBackRequests
from kourou.client.introspection.running_info import ConsumeStatistics, StuckWatch
from kourou.client.session.io_thread import ThreadQueue, background
from kourou.client.settings.consumer_settings import ConsumerSettings
from kourou.errors import KourouError
from kourou.model.limits import FAILURE_REASON_LENGTH_MAX
from kourou.model.subscription import MessageModel
from kourou.model.units import MINUTE_MS

SEND_BACKS_AT_ONCE = 64
"""The limit of concurrent send-backs.

A queue in which every message fails must not overload the brokers.
"""
TIMEOUT_LEVEL = 3
"""The delay level of a message whose handler exceeded the time limit (as in RocketMQ's clients)."""

CANCELLED_HANDLERS = (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit)
"""How a call ends that was stopped but did not fail, for example when the application ends."""

_log = logging.getLogger("kourou.client.consume")
_NOTHING_REQUESTED = object()


def offsets_by_lease(items: Iterable[Item]) -> dict[MessageLease, list[int]]:
    """Return the offsets of the items' messages by the lease of each."""
    by_lease: dict[MessageLease, list[int]] = {}
    last: MessageLease | None = None
    offsets: list[int] = []
    for item in items:
        for message in item if type(item) is list else (item,):
            lease = message.lease
            if lease is not last:
                last, offsets = lease, by_lease.setdefault(lease, [])
            offsets.append(message.offset)
    return by_lease


def log_refusal(
    group: str,
    messages: Sequence[ReceivedMessage],
    error: BaseException,
    *,
    later: bool,
    consequence: str = "the queue continues",
) -> None:
    """Log that messages of one queue were not consumed; `later`: the handler requested that."""
    first = messages[0]
    unexpected = first.attempt == 1 and not isinstance(error, ConsumeRefused)
    fields = {
        "group": group,
        "record": first,
        "messages": len(messages),
        "attempt": first.attempt,
        "consequence": consequence,
        "error": Shown(error),
    }
    if later:
        _log.info(
            "retry-requested: group %(group)s: the handler requested a retry at %(record)s "
            "(%(messages)d messages, attempt %(attempt)d; %(consequence)s): %(error)s",
            fields,
            exc_info=error if unexpected else None,
        )
        return
    _log.warning(
        "handler-failed: group %(group)s: the handler failed at %(record)s "
        "(%(messages)d messages, attempt %(attempt)d; %(consequence)s): %(error)s",
        fields,
        exc_info=error if unexpected else None,
    )


class Acknowledgements:
    """The outcomes of one consumer's handlers; the `HandlerReport` of its runner."""

    def __init__(
        self,
        settings: ConsumerSettings,
        send_back: SendBackRequests,
        counts: ConsumeCounts,
        statistics: ConsumeStatistics,
        retry_requested: Callable[[], None],
        *,
        batched: bool,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.group = settings.consumer_group
        self._settings = settings
        self._send_back = send_back
        self._counts = counts
        self._statistics = statistics
        self._retry_wanted = retry_requested
        self._batched = batched
        self._broadcast = settings.message_model is MessageModel.BROADCASTING
        finished: ThreadQueue[Item] = ThreadQueue(loop, self._handle_finished)
        self.finished: Callable[[Item], object] = finished.put
        """The handler returned; called by runners, from any thread."""

        self._failed: ThreadQueue[tuple[Item, BaseException]] = ThreadQueue(
            loop, self._handle_failed
        )
        self._stuck = StuckWatch(settings.consume_timeout_minutes * MINUTE_MS)
        self._send_back_slots = asyncio.Semaphore(SEND_BACKS_AT_ONCE)
        self._send_backs: set[asyncio.Task[None]] = set()
        self._being_sent_back: set[ReceivedMessage] = set()
        self._timers: set[asyncio.TimerHandle] = set()
        self._runner: HandlerRunner | None = None
        self._closing = False

    def serve(self, runner: HandlerRunner) -> None:
        """Set the runner that receives redelivered messages."""
        self._runner = runner

    async def close(self, timeout_ms: int) -> None:
        """Stop local redelivery; wait up to `timeout_ms` for messages that are being sent back."""
        self._closing = True
        for timer in self._timers:
            timer.cancel()
        if self._send_backs:
            await asyncio.wait(self._send_backs, timeout=timeout_ms / 1000)
        for task in self._send_backs:
            task.cancel()  # these messages are not committed, so they are redelivered

    # -- reports of runners, from any thread ------------------------------------------------------

    def failed(self, item: Item, error: BaseException) -> None:
        """The handler raised an exception, or returned a value that means failure."""
        self._failed.put((item, error))

    def wanted(self, item: Item) -> bool:
        """Return whether the item's queue is still assigned."""
        message = item[0] if type(item) is list else item
        return not message.lease.window.dropped

    # -- consumed ---------------------------------------------------------------------------------

    def _handle_finished(self, items: list[Item]) -> None:
        by_lease = offsets_by_lease(items)
        if any(lease.asked for lease in by_lease):
            self._handle_each(items)
            return
        for lease, offsets in by_lease.items():
            self._finish(lease, offsets)

    def _finish(self, lease: MessageLease, offsets: Sequence[int]) -> None:
        self._counts.consumed += len(offsets)
        self._statistics.of(lease.consumed.queue.topic).consumed += len(offsets)
        lease.finish(offsets)

    def _handle_each(self, items: list[Item]) -> None:
        """Do as `_handle_finished`, if handlers acknowledged or rejected single messages."""
        for item in items:
            for message in item if type(item) is list else (item,):
                requested = message.lease.asked.pop(message.offset, None)
                if requested is None:
                    self._finish(message.lease, [message.offset])
                else:
                    self._refuse([message], requested)

    # -- failed -----------------------------------------------------------------------------------

    def _handle_failed(self, failures: list[tuple[Item, BaseException]]) -> None:
        for item, error in failures:
            messages: list[ReceivedMessage] = item if type(item) is list else [item]
            refused: list[ReceivedMessage] = []
            consumed_count = error.count if isinstance(error, PartlyConsumed) else 0
            for index, message in enumerate(messages):
                lease: MessageLease = message.lease
                requested = lease.asked.pop(message.offset, _NOTHING_REQUESTED)
                if isinstance(requested, BaseException):
                    self._refuse([message], requested)
                elif requested is None or index < consumed_count:
                    self._finish(lease, [message.offset])
                else:
                    refused.append(message)
            if refused:
                self._refuse(refused, error)

    def _refuse(self, messages: list[ReceivedMessage], error: BaseException) -> None:
        """Handle messages of one queue that were not consumed, all for the same reason."""
        self._counts.failed += len(messages)
        self._statistics.of(messages[0].queue.topic).failed += len(messages)
        refused = isinstance(error, ConsumeRefused) and not self._broadcast
        log_refusal(self.group, messages, error, later=refused and delay_level_of(error) >= 0)
        if isinstance(error, CANCELLED_HANDLERS):
            self._redeliver_later(messages)
        elif self._broadcast:
            for message in messages:  # there is no retry: it is skipped
                self._finish(message.lease, [message.offset])
        else:
            level = delay_level_of(error)
            reason = reason_of(error, FAILURE_REASON_LENGTH_MAX)
            for message in messages:
                self._start_send_back(message, level, reason)

    # -- sent back --------------------------------------------------------------------------------

    def _start_send_back(self, message: ReceivedMessage, level: int, reason: str) -> None:
        task = background(
            self._send_back_message(message, level, reason),
            f"giving a message of group {self.group} back",
        )
        self._send_backs.add(task)
        task.add_done_callback(self._send_backs.discard)

    async def _send_back_message(self, message: ReceivedMessage, level: int, reason: str) -> None:
        lease: MessageLease = message.lease
        async with self._send_back_slots:
            if message in self._being_sent_back or not lease.window.holds(message.offset):
                return  # it is being sent back already, or its queue was released
            self._being_sent_back.add(message)
            try:
                await self._send_back.send_back(message, delay_level=level, reason=reason)
            except KourouError as error:
                _log.warning(
                    "send-back-failed: group %(group)s: %(record)s could not be sent back to any "
                    "broker; retrying it locally: %(error)s",
                    {"group": self.group, "record": message, "error": error},
                )
                self._redeliver_later([message])
                return
            finally:
                self._being_sent_back.discard(message)
        self._counts.sent_back += 1
        lease.finish([message.offset])
        self._retry_wanted()

    def _redeliver_later(self, messages: list[ReceivedMessage]) -> None:
        batched = self._settings.consume_message_batch_max_size
        for message in messages:
            message.attempt += 1
        if self._closing:
            return
        items: Sequence[Item] = messages
        if self._batched:
            items = [messages[at : at + batched] for at in range(0, len(messages), batched)]
        self._later(self._settings.local_redelivery_delay_ms, partial(self._redeliver, items))

    def _redeliver(self, items: Sequence[Item]) -> None:
        assert self._runner is not None, "serve comes first"
        if not self._closing:
            self._runner.submit([item for item in items if self.wanted(item)])

    def _later(self, delay_ms: int, action: Callable[[], None]) -> None:
        def act() -> None:
            self._timers.discard(timer)
            action()

        timer = asyncio.get_running_loop().call_later(delay_ms / 1000, act)
        self._timers.add(timer)

    # -- too slow ---------------------------------------------------------------------------------

    def check_stuck(self, now_ms: int) -> None:
        """Send back messages whose handlers exceed the time limit; `now_ms` is monotonic."""
        assert self._runner is not None, "serve comes first"
        for item in self._stuck.check(self._runner.running(), now_ms):
            for message in item if type(item) is list else (item,):
                lease: MessageLease = message.lease
                if not lease.window.holds(message.offset):
                    continue
                self._counts.timed_out += 1
                minutes = self._settings.consume_timeout_minutes
                _log.warning(
                    "handler-stuck: group %(group)s: a handler has been processing %(record)s for "
                    "more than %(minutes)d minutes",
                    {"group": self.group, "record": message, "minutes": minutes},
                )
                if self._broadcast:
                    lease.finish([message.offset])
                else:
                    reason = f"the handler took more than {minutes} minutes"
                    self._start_send_back(message, TIMEOUT_LEVEL, reason)
