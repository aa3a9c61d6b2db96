"""Consumption of one queue: its window, its pulls, and the delivery of pulled messages.

State: soft. Only committed offsets survive.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import repeat

from kourou.client.codecs import Decode
from kourou.client.consumer.handlers import HandlerRunner
from kourou.client.consumer.puller import (
    PullAction,
    Pulled,
    Puller,
    PullParams,
    PullStep,
    step_after,
)
from kourou.client.consumer.received import ReceivedMessage, tag_filter
from kourou.client.filters.pulls import failure_of
from kourou.client.introspection.running_info import ConsumeStatistics, QueueInfo
from kourou.client.session.io_thread import background
from kourou.client.settings.consumer_settings import ConsumerSettings, CorruptPolicy
from kourou.clock import Clock
from kourou.errors import Code, Corrupt, FilterFailed, KourouError, Unavailable, UnknownOutcome
from kourou.model.limits import PULL_MESSAGES_MAX
from kourou.model.names import RETRY_PREFIX
from kourou.model.subscription import Subscription
from kourou.model.topic import MessageQueue
from kourou.model.units import MIB

NO_SPAN = 1 << 62
"""No span limit, for orderly consumption: there the span is as large as the message count."""

_JUDGED = frozenset({Code.SUCCESS, Code.PULL_NOT_FOUND, Code.PULL_RETRY_IMMEDIATELY})
"""Reply codes that show that the filter was evaluated."""

FILTER_REASONS_SAID_MAX = 64
"""The number of distinct filter failure reasons that are kept, so that each is logged once."""

_log = logging.getLogger("kourou.client.consume")


@dataclass(frozen=True, slots=True)
class WindowLimits:
    """The limits at which pulling of a queue pauses; a limit applies when its value is exceeded."""

    count_max: int = 1000
    size_bytes_max: int = 100 * 1024 * 1024
    span_max: int = 2000


class Limit(Enum):
    """The limit that a window exceeds."""

    COUNT = auto()
    SIZE = auto()
    SPAN = auto()


class Window:
    """The cached, unfinished messages of one queue (RocketMQ `ProcessQueue`).

        committed          unfinished (3, 5, 6)          pulled up to
            |                 |                              |
        0 1 2 3 4 5 6 7 8     finished out of order: 4, 7   next_offset = 8

    Invariants:

    - `commit_offset` is the smallest unfinished offset, or `next_offset` if nothing is unfinished;
      so a crash may repeat messages and never skips one.
    - `commit_offset` never decreases, because offsets are added in increasing order and only once.
    - `count` and `size_bytes` cover the unfinished messages.
    - After `drop()` nothing changes any more: the queue may belong to another consumer.

    Not thread-safe: used on the client's I/O thread only.
    """

    __slots__ = ("_last", "_next_offset", "_size_bytes", "_sizes", "dropped")

    def __init__(self, start_offset: int) -> None:
        self._sizes: dict[int, int] = {}
        """The unfinished messages' sizes by offset, in increasing order."""

        self._size_bytes = 0
        self._last = -1
        self._next_offset = start_offset
        self.dropped = False
        """Whether the queue was released; its messages may still be in handlers."""

    @property
    def next_offset(self) -> int:
        """The offset at which the next pull starts."""
        return self._next_offset

    @property
    def commit_offset(self) -> int:
        """The offset that the group may commit: everything below it is finished."""
        return next(iter(self._sizes), self._next_offset)

    @property
    def count(self) -> int:
        """The number of unfinished messages."""
        return len(self._sizes)

    @property
    def bounds(self) -> tuple[int, int]:
        """The lowest and the highest unfinished offset; (-1, -1) if there is none."""
        sizes = self._sizes
        return (next(iter(sizes)), next(reversed(sizes))) if sizes else (-1, -1)

    @property
    def size_bytes(self) -> int:
        """The stored size of the unfinished messages in bytes."""
        return self._size_bytes

    @property
    def span(self) -> int:
        """The distance from the smallest unfinished offset to the last one that was added."""
        return self._last - next(iter(self._sizes)) if self._sizes else 0

    def put(self, offsets: Sequence[int], sizes: Sequence[int], next_offset: int) -> None:
        """Add one pull's messages in increasing order; `next_offset` also covers filtered ones."""
        assert not self.dropped, "a dropped window takes no messages"
        if offsets:
            assert offsets[0] >= self._next_offset, (offsets[0], self._next_offset)
            assert offsets[-1] < next_offset, (offsets[-1], next_offset)
            self._last = offsets[-1]
            self._sizes.update(zip(offsets, sizes, strict=True))
            self._size_bytes += sum(sizes)
        self.skip_to(next_offset)

    def skip_to(self, next_offset: int) -> None:
        """Advance to `next_offset`: no more messages below it will be added."""
        assert next_offset >= self._next_offset, (next_offset, self._next_offset)
        self._next_offset = next_offset

    def finish(self, offsets: Iterable[int]) -> None:
        """Finish these messages; unknown offsets (of a dropped window) have no effect."""
        self._size_bytes -= sum(map(self._sizes.pop, offsets, repeat(0)))

    def holds(self, offset: int) -> bool:
        """Return whether this message is cached and unfinished."""
        return offset in self._sizes

    def drop(self) -> int:
        """Release the queue; returns the last offset to commit."""
        commit_offset = self.commit_offset
        self.dropped = True
        self._next_offset = commit_offset
        self._sizes.clear()
        self._size_bytes = 0
        return commit_offset

    def exceeded(self, limits: WindowLimits) -> Limit | None:
        """Return the limit that is exceeded, or None if pulling may continue."""
        if len(self._sizes) > limits.count_max:
            return Limit.COUNT
        if self._size_bytes > limits.size_bytes_max:
            return Limit.SIZE
        if self.span > limits.span_max:
            return Limit.SPAN
        return None

    def over(self, limits: WindowLimits) -> str:
        """Return a description of the exceeded limit; empty if pulling may continue."""
        match self.exceeded(limits):
            case Limit.COUNT:
                return f"{len(self._sizes)} messages cached, limit {limits.count_max}"
            case Limit.SIZE:
                return f"{self._size_bytes} bytes cached, limit {limits.size_bytes_max}"
            case Limit.SPAN:
                return f"offsets span {self.span}, limit {limits.span_max}"
            case None:
                return ""


@dataclass(slots=True)
class ConsumeCounts:
    """Counters of a consumer since it started.

    `failed` counts failed attempts. `sent_back` of them were sent back to the brokers, dead letters
    included; the others were repeated locally or, in broadcasting, skipped. `timed_out` counts
    messages whose handler took too long. `skipped` counts offsets that were skipped because of a
    backlog. The `paused_` counters count pulls that were delayed because of the number, the bytes
    or the offset span of the cached messages. `filter_failures` counts pulls that failed because a
    filter could not be evaluated.
    """

    pulled: int = 0
    consumed: int = 0
    failed: int = 0
    sent_back: int = 0
    timed_out: int = 0
    filtered: int = 0
    skipped: int = 0
    corrected: int = 0
    unreadable: int = 0
    paused_by_count: int = 0
    paused_by_size: int = 0
    paused_by_span: int = 0
    filter_failures: int = 0

    def paused(self, limit: Limit) -> None:
        """Count a delayed pull."""
        match limit:
            case Limit.COUNT:
                self.paused_by_count += 1
            case Limit.SIZE:
                self.paused_by_size += 1
            case Limit.SPAN:
                self.paused_by_span += 1


@dataclass(slots=True)
class ConsumptionContext:
    """What the queues of one consumer share. The callbacks belong to the consumer."""

    settings: ConsumerSettings
    puller: Puller
    decode: Decode | None
    runner: HandlerRunner
    batch_size: int
    batched: bool
    heartbeat_soon: Callable[[], None]
    route_stale: Callable[[str], None]
    clock: Clock
    counts: ConsumeCounts = field(default_factory=ConsumeCounts)
    statistics: ConsumeStatistics = field(default_factory=ConsumeStatistics)
    ordered: bool = False
    filters_said: set[tuple[str, str]] = field(default_factory=set)

    def limits(self, queue_count: int) -> WindowLimits:
        """Return a queue's flow-control limits if the consumer has `queue_count` of its topic."""
        settings = self.settings
        count = settings.pull_threshold_for_queue
        if settings.pull_threshold_for_topic > 0:
            count = max(1, settings.pull_threshold_for_topic // queue_count)
        size_mib = settings.pull_threshold_size_for_queue_mib
        if settings.pull_threshold_size_for_topic_mib > 0:
            size_mib = max(1, settings.pull_threshold_size_for_topic_mib // queue_count)
        span = NO_SPAN if self.ordered else settings.consume_concurrently_max_span
        return WindowLimits(count, size_mib * MIB, span)

    def pull_params(self, limits: WindowLimits) -> PullParams:
        """Return the size of one pull: limited by bytes, or by messages if a number is set."""
        settings = self.settings
        return PullParams(
            count_max=min(settings.pull_batch_size or limits.count_max, PULL_MESSAGES_MAX),
            bytes_max=settings.pull_size_bytes,
            hold_ms=settings.broker_suspend_max_time_ms,
            timeout_ms=settings.consumer_timeout_ms_when_suspend,
        )


class MessageLease:
    """Links a delivered message to its queue and to the window that it came from.

    After an offset correction the queue has a new window, and messages of the old one have no
    effect any more. `asked` contains by offset what handlers reported before they ended: None for
    consumed, or the failure.
    """

    __slots__ = ("asked", "consumed", "window")

    def __init__(self, consumed: ConsumedQueue, window: Window) -> None:
        self.consumed = consumed
        self.window = window
        self.asked: dict[int, BaseException | None] = {}

    def ask(self, offset: int, failure: BaseException | None) -> None:
        """Record a handler's outcome for its message; from any thread.

        Only the first one counts.
        """
        if self.window.holds(offset):
            self.asked.setdefault(offset, failure)

    def finish(self, offsets: Sequence[int]) -> None:
        """Mark these messages as consumed."""
        window, consumed = self.window, self.consumed
        smallest = window.commit_offset
        window.finish(offsets)
        consumed.last_consume_ms = consumed.clock.now_ms()
        if window.commit_offset != smallest:
            consumed.moved_ms = consumed.last_consume_ms
        consumed.may_go_on()


class ConsumedQueue:
    """A queue that is assigned to this consumer until `stop`."""

    def __init__(
        self,
        queue: MessageQueue,
        subscription: Subscription,
        start_offset: int,
        around: ConsumptionContext,
        queue_count: int,
    ) -> None:
        self.queue = queue
        self.window = Window(start_offset)
        self._lease = MessageLease(self, self.window)
        self.committed: int | None = None
        self.clock = around.clock
        self.last_pull_ms = 0
        self.last_consume_ms = 0
        self.moved_ms = 0
        """Since when the smallest unfinished message has been the smallest; ms since 1970."""
        self._around = around
        self._is_retry = queue.topic.startswith(RETRY_PREFIX)
        self._sums = around.statistics.of(queue.topic)
        self._subscription = subscription
        self._wanted = tag_filter(subscription)
        self._limits = around.limits(queue_count)
        self._pull_params = around.pull_params(self._limits)
        self.filter_failure: FilterFailed | None = None
        self._refusal: tuple[int, str] | None = None
        """Code and remark of the last refused pull, or None if the last pull was not refused."""
        self._room = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start pulling."""
        self._task = background(self._run(), f"pulling {self.queue!s}")

    def stop(self) -> int:
        """Stop pulling; returns the last offset to commit.

        Messages that finish later have no effect.
        """
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._around.puller.forget(self.queue)
        return self.window.drop()

    @property
    def ended(self) -> bool:
        """Return whether pulling ended without `stop`. Then the queue must be started again."""
        return self._task is not None and self._task.done()

    def info(self) -> QueueInfo:
        """Return the current state of the queue."""
        window = self.window
        lowest, highest = window.bounds
        return QueueInfo(
            commit_offset=window.commit_offset,
            cached_min_offset=lowest,
            cached_max_offset=highest,
            cached_count=window.count,
            cached_size_bytes=window.size_bytes,
            dropped=window.dropped,
            last_pull_ms=self.last_pull_ms,
            last_consume_ms=self.last_consume_ms,
            stalled_since_ms=self.moved_ms if window.count else 0,
        )

    def pause(self) -> None:
        """Stop pulling, but let running messages finish and count."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def divide(self, queue_count: int) -> None:
        """Adapt the limits: this consumer now has `queue_count` queues of the topic."""
        self._limits = self._around.limits(queue_count)
        self._pull_params = self._around.pull_params(self._limits)
        self.may_go_on()

    def may_go_on(self) -> None:
        """Messages were finished: resume pulling if the limits allow it."""
        if not self._room.is_set() and self.window.exceeded(self._limits) is None:
            self._room.set()

    async def _run(self) -> None:
        while not self.window.dropped:
            limit = self.window.exceeded(self._limits)
            if limit is not None:
                self._around.counts.paused(limit)
                _log.debug(
                    "pull-paused: %(queue)s: pulling paused: %(reason)s",
                    {"queue": self.queue, "reason": self.window.over(self._limits)},
                )
                self._room.clear()
                await self._room.wait()
            step = await self._pull_once()
            if step.pause_ms:
                await asyncio.sleep(step.pause_ms / 1000)

    async def _pull_once(self) -> PullStep:
        around = self._around
        offset = self.window.next_offset
        try:
            pulled = await around.puller.pull(
                self.queue, offset, self._subscription, self._pull_params, around.decode
            )
        except FilterFailed as error:
            self._filter_failed(error, str(error))
            return PullStep(pause_ms=around.settings.pull_pause_ms_when_exception)
        except (Unavailable, UnknownOutcome) as error:
            # The connection may be new, and the broker may not know this consumer on it yet.
            _log.info(
                "pull-failed: %(queue)s: pull failed: %(error)s",
                {"queue": self.queue, "error": error},
            )
            around.heartbeat_soon()
            around.route_stale(self.queue.topic)
            return PullStep(pause_ms=around.settings.pull_pause_ms_when_exception)
        except Corrupt as error:
            _log.error(
                "pull-unreadable: %(queue)s: pull from %(offset)d is unreadable: %(error)s",
                {"queue": self.queue, "offset": offset, "error": error},
            )
            return PullStep(pause_ms=around.settings.pull_pause_ms_when_exception)
        except KourouError as error:
            _log.warning(
                "pull-failed: %(queue)s: pull failed: %(error)s",
                {"queue": self.queue, "error": error},
            )
            around.route_stale(self.queue.topic)
            return PullStep(pause_ms=around.settings.pull_pause_ms_when_exception)
        if self.window.dropped:
            return PullStep()
        self.last_pull_ms = self.clock.now_ms()
        sums = self._sums
        sums.pulls += 1
        sums.pull_ms += pulled.elapsed_ms
        sums.pulled += len(pulled.messages)
        step = step_after(
            pulled.code,
            progressed=pulled.next_offset > offset,
            elapsed_ms=pulled.elapsed_ms,
            pull_interval_ms=around.settings.pull_interval_ms,
            exception_pause_ms=around.settings.pull_pause_ms_when_exception,
        )
        return self._take(pulled, step)

    def _take(self, pulled: Pulled, step: PullStep) -> PullStep:
        """Handle a pull reply; returns the step that remains to be done."""
        around = self._around
        if self.filter_failure is not None and pulled.code in _JUDGED:
            self._filter_recovered(pulled)
        if pulled.code in _JUDGED:
            self._refusal = None
        if step.action is PullAction.NONE:
            if around.settings.skip_backlog_over >= 0 and not self._is_retry:
                self._skip_backlog(pulled, around.settings.skip_backlog_over)
            if pulled.messages:
                self._deliver(pulled)
            elif pulled.next_offset > self.window.next_offset:
                self.window.skip_to(pulled.next_offset)
        elif step.action is PullAction.CORRECT_OFFSET:
            self._correct(pulled)
        elif step.action is PullAction.SKIP_CORRUPT:
            return self._pass_unreadable(pulled, step)
        elif step.action is PullAction.FILTER_FAILED:
            self._filter_failed(failure_of(self.queue, pulled), pulled.remark)
        else:
            self._refused(pulled)
            if step.action is PullAction.HEARTBEAT:
                around.heartbeat_soon()
            else:
                around.route_stale(self.queue.topic)
        return step

    def _refused(self, pulled: Pulled) -> None:
        """Log a refused pull: as a warning once, and then on level DEBUG while it repeats."""
        refusal = pulled.code, pulled.remark
        level = logging.DEBUG if refusal == self._refusal else logging.WARNING
        self._refusal = refusal
        _log.log(
            level,
            "pull-refused: %(queue)s: pull refused with code %(code)d: %(remark)s",
            {"queue": self.queue, "code": refusal[0], "remark": refusal[1]},
        )

    def _skip_backlog(self, pulled: Pulled, over: int) -> None:
        """Skip the messages that are more than `over` messages before the end of the queue."""
        kept_from, here = pulled.max_offset - over, self.window.next_offset
        if kept_from <= here:
            return
        _log.warning(
            "backlog-skipped: %(queue)s: backlog of %(messages)d messages; skipped offsets "
            "%(first_offset)d to %(last_offset)d (skip_backlog_over is %(messages_max)d)",
            {
                "queue": self.queue,
                "messages": pulled.max_offset - here,
                "first_offset": here,
                "last_offset": kept_from - 1,
                "messages_max": over,
            },
        )
        self._around.counts.skipped += kept_from - here
        pulled.messages = [message for message in pulled.messages if message.offset >= kept_from]
        pulled.next_offset = max(pulled.next_offset, kept_from)

    def _deliver(self, pulled: Pulled) -> None:
        around = self._around
        messages = pulled.messages
        if self._wanted is not None:
            kept = [message for message in messages if self._wanted(message)]
            around.counts.filtered += len(messages) - len(kept)
            messages = kept
        if pulled.remark.startswith("unreadable"):
            self._report_unreadable(pulled)
        around.counts.pulled += len(messages)
        for message in messages:
            message.lease = self._lease
        if self._is_retry:
            for message in messages:
                message.attempt = message.reconsume_times + 1
        if not self.window.count:
            self.moved_ms = self.last_pull_ms
        self.window.put(
            [message.offset for message in messages],
            [message.size for message in messages],
            pulled.next_offset,
        )
        if messages:
            around.runner.submit(items_of(messages, around.batch_size, batched=around.batched))

    def _correct(self, pulled: Pulled) -> None:
        """Resume at the broker's offset, because this one is outside the queue (OFFSET_ILLEGAL)."""
        self._around.counts.corrected += 1
        _log.warning(
            "offset-corrected: %(queue)s: offset %(offset)d is outside the queue's %(min_offset)d "
            "to %(max_offset)d; resuming at %(next_offset)d",
            {
                "queue": self.queue,
                "offset": self.window.next_offset,
                "min_offset": pulled.min_offset,
                "max_offset": pulled.max_offset,
                "next_offset": pulled.next_offset,
            },
        )
        self.window.drop()
        self.window = Window(max(0, pulled.next_offset))
        self._lease = MessageLease(self, self.window)
        self.committed = None  # so that the correction is committed, even if it is lower

    def _filter_failed(self, error: FilterFailed, why: str) -> None:
        """Wait at this offset until the filter can be evaluated; log each reason once."""
        around = self._around
        around.counts.filter_failures += 1
        self.filter_failure = error
        reason = (error.kind, why)
        if reason in around.filters_said:
            return
        if len(around.filters_said) >= FILTER_REASONS_SAID_MAX:
            around.filters_said.clear()
        around.filters_said.add(reason)
        _log.warning(
            "filter-failed: %(queue)s: stopped at %(offset)d: filter %(filter)s failed (%(kind)s): "
            "%(error)s",
            {
                "queue": self.queue,
                "offset": self.window.next_offset,
                "filter": self._subscription.expression,
                "kind": error.kind or "failed",
                "error": why,
            },
        )

    def _filter_recovered(self, pulled: Pulled) -> None:
        self.filter_failure = None
        self._around.filters_said.clear()
        version = pulled.filter_version  # None: there was no message to evaluate
        _log.info(
            "filter-recovered: %(queue)s: resumed at %(offset)d, with version %(version)s of "
            "filter %(filter)s",
            {
                "queue": self.queue,
                "offset": self.window.next_offset,
                "version": "unknown" if version is None else version,
                "filter": self._subscription.expression,
            },
        )

    def _pass_unreadable(self, pulled: Pulled, step: PullStep) -> PullStep:
        if self._around.settings.on_corrupt is CorruptPolicy.HOLD:
            _log.error(
                "repair-awaited: %(queue)s: waiting for a repair: %(remark)s",
                {"queue": self.queue, "remark": pulled.remark},
            )
            return PullStep(pause_ms=self._around.settings.pull_pause_ms_when_exception)
        self._report_unreadable(pulled)
        if pulled.next_offset > self.window.next_offset:
            self.window.skip_to(pulled.next_offset)
        return step

    def _report_unreadable(self, pulled: Pulled) -> None:
        self._around.counts.unreadable += 1
        _log.error(
            "messages-unreadable: %(queue)s: this consumer skipped unreadable messages: %(remark)s",
            {"queue": self.queue, "remark": pulled.remark},
        )


def items_of(
    messages: list[ReceivedMessage], batch_size: int, *, batched: bool
) -> list[ReceivedMessage] | list[list[ReceivedMessage]]:
    """Return what handler calls take: messages, or lists of at most `batch_size` messages."""
    if not batched:
        return messages
    return [messages[at : at + batch_size] for at in range(0, len(messages), batch_size)]
